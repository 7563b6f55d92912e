"""Convolution (ai.onnx Conv 1, 11, 22), one and two dimensions, grouped, float and integer.

Internal form `conv2d`: inputs x[N,H,W,C], w[O,KH,KW,C/group] (constant), bias[O] (float32 or int32,
the input zero point folded in), then whatever the epilogue reads. The output is [N,OH,OW,O].
"""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.node import SPECIFICATION
from mtool.compiler.kernels.discovery import schedules_of
from mtool.compiler.kernels.schedule import KernelOp
from mtool.compiler.kernels.weighted_sum import macs_of


def _label(node: Node, graph: Graph) -> str:
    conv = Conv.of(node, graph)
    kind = "depthwise" if conv.is_depthwise else "conv2d"
    stride = f" s{conv.stride[0]}" if conv.stride != (1, 1) else ""
    return f"{kind} {conv.kernel[0]}x{conv.kernel[1]}{stride}"


KERNEL = KernelOp(SPECIFICATION, _label, schedules_of(__name__, __path__), macs_of)
