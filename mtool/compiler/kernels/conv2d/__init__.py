"""Convolution (ai.onnx Conv 1, 11, 22), one and two dimensions, grouped, float and integer.

Internal form `conv2d`: inputs x[N,H,W,C], w[O,KH,KW,C/group] (constant), bias[O] (float32 or int32,
the input zero point folded in), then whatever the epilogue reads. The output is [N,OH,OW,O].
"""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.node import SPECIFICATION, Conv2d
from mtool.compiler.kernels.discovery import schedules_of
from mtool.compiler.kernels.schedule import KernelOp


def _label(node: Node, graph: Graph) -> str:
    conv = Conv.of(node, graph)
    kind = "depthwise" if conv.is_depthwise else "conv2d"
    stride = f" s{conv.stride[0]}" if conv.stride != (1, 1) else ""
    return f"{kind} {conv.kernel[0]}x{conv.kernel[1]}{stride}"


def _macs(node: Node, graph: Graph) -> int:
    macs = Conv2d.of(node).macs
    if macs is not None:
        return macs
    conv = Conv.of(node, graph)
    return conv.batch * conv.pixels * conv.out_channels * conv.depth


KERNEL = KernelOp(SPECIFICATION, _label, _macs, schedules_of(__name__, __path__))
