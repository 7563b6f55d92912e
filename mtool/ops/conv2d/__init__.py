"""Convolution (ai.onnx Conv 1, 11, 22), one and two dimensions, grouped, float and integer.

Internal form `conv2d`: inputs x[N,H,W,C], w[O,KH,KW,C/group] (constant), bias[O] (float32 or int32,
the input zero point folded in), then whatever the epilogue reads. The output is [N,OH,OW,O].
"""

from mtool.ir import Graph, Node
from mtool.kernels.schedule import KernelOp
from mtool.ops.conv2d import c99, dsp, f32, integer, mve
from mtool.ops.conv2d.geometry import Conv


def _label(node: Node, graph: Graph) -> str:
    conv = Conv.of(node, graph)
    kind = "depthwise" if conv.is_depthwise else "conv2d"
    stride = f" s{conv.stride[0]}" if conv.stride != (1, 1) else ""
    return f"{kind} {conv.kernel[0]}x{conv.kernel[1]}{stride}"


def _macs(node: Node, graph: Graph) -> int:
    if "macs" in node.attrs:  # channels were removed: those of the model as given
        return int(node.attrs["macs"])
    conv = Conv.of(node, graph)
    return conv.batch * conv.pixels * conv.out_channels * conv.depth


KERNEL = KernelOp(_label, _macs, c99.SCHEDULES + integer.SCHEDULES + f32.SCHEDULES + dsp.SCHEDULES + mve.SCHEDULES)
