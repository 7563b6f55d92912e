"""Convolutions that may write their output over their input."""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.in_place import residual_operands


def pointwise_in_place(node: Node, graph: Graph) -> tuple[int, ...]:
    """Return the inputs that the output of a kernel may be written over that gathers each pixel before it writes it."""
    conv = Conv.of(node, graph)
    x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
    residuals = residual_operands(node, graph)
    shrinks = conv.out_channels * y.dtype.size <= conv.channels * x.dtype.size
    pixel_by_pixel = conv.is_pointwise and conv.group == 1 and conv.batch == 1 and shrinks
    if pixel_by_pixel and not WithEpilogue.of(node).epilogue.operands() & {0}:
        return (0, *residuals)
    return residuals


def own_in_place(node: Node, graph: Graph, *, possible: bool) -> tuple[int, ...]:
    """Return the inputs that the output may be written over: residual operands, and the kernel's own if `possible`.

    It must have elements of the same size, and nothing else may read it.
    """
    x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
    own = possible and x.dtype.size == y.dtype.size and not WithEpilogue.of(node).epilogue.operands() & {0}
    return (0, *residual_operands(node, graph)) if own else residual_operands(node, graph)


def plane_in_place(node: Node, graph: Graph) -> tuple[int, ...]:
    """Return the inputs that the output of a kernel may be written over that reads a channel before it writes it."""
    x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
    return own_in_place(node, graph, possible=x.shape == y.shape)


def shrinks_by_rows(conv: Conv, pixels: int) -> bool:
    """Whether each row of outputs ends before the input that the next one reads, and is whole groups of `pixels`."""
    out_row, in_row = conv.out_size[1] * conv.out_channels, conv.size[1] * conv.channels
    return conv.out_size[1] % pixels == 0 and all(
        (y + 1) * out_row <= max(0, (y + 1) * conv.stride[0] - conv.pad[0]) * in_row
        for y in range(conv.out_size[0] - 1)
    )


def reads_ahead(conv: Conv, rows: int) -> bool:
    """Whether each row of outputs ends before the input that is not in a ring of so many rows yet."""
    out_row, in_row = conv.out_size[1] * conv.out_channels, conv.size[1] * conv.channels
    return all(
        (y + 1) * out_row <= max(0, min(conv.size[0], y * conv.stride[0] - conv.pad[0] + rows)) * in_row
        for y in range(conv.out_size[0])
    )
