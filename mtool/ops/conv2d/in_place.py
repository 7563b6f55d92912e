"""Which convolutions may write their output over their input."""

from mtool.ir import Graph, Node
from mtool.ir.node import WithEpilogue
from mtool.kernels.in_place import residual_operands
from mtool.ops.conv2d.geometry import Conv


def pointwise_in_place(node: Node, graph: Graph) -> tuple[int, ...]:
    """Return the inputs that the output of a kernel may be written over that gathers each pixel before it writes it."""
    conv = Conv.of(node, graph)
    x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
    residuals = residual_operands(node, graph)
    shrinks = conv.out_channels * y.dtype.size <= conv.channels * x.dtype.size
    direct = conv.is_pointwise and conv.group == 1 and conv.batch == 1 and shrinks
    if direct and not WithEpilogue.of(node).epilogue.operands() & {0}:
        return (0, *residuals)
    return residuals


def plane_in_place(node: Node, graph: Graph) -> tuple[int, ...]:
    """Return the inputs that the output of a kernel may be written over that reads a channel before it writes it."""
    x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
    residuals = residual_operands(node, graph)
    same = x.shape == y.shape and x.dtype.size == y.dtype.size
    return (0, *residuals) if same and not WithEpilogue.of(node).epilogue.operands() & {0} else residuals


def shrinks_by_rows(conv: Conv, pixels: int) -> bool:
    """Whether each row of outputs ends before the input that the next one reads, and is whole groups of `pixels`."""
    out_row, in_row = conv.out_size[1] * conv.out_channels, conv.size[1] * conv.channels
    return conv.out_size[1] % pixels == 0 and all(
        (y + 1) * out_row <= max(0, (y + 1) * conv.stride[0] - conv.pad[0]) * in_row
        for y in range(conv.out_size[0] - 1)
    )
