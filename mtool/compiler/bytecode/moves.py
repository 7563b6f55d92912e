"""The calls of loops and concatenations: moves, sums of two tensors, expressions."""

from collections.abc import Sequence

import numpy as np

from mtool.compiler.bytecode.call import Address, Call, Constant, Value, padded
from mtool.compiler.bytecode.epilogue import pair_of
from mtool.compiler.bytecode.method import Method, NoKernel
from mtool.compiler.bytecode.program import calls_of, flat_affine
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.node import expression_of
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.kernels.schedule import identity_loads

DIMENSIONS = 4  # of a copy


def loop(node: Node, graph: Graph) -> Method:
    """Return the call of a loop.

    Raises:
        NoKernel: it has something that no kernel computes.
    """
    expr = expression_of(node)
    assert expr is not None
    if expr.op == "load":
        copied = _copy(node, graph)
        if copied is not None:
            return Method((copied,))
    over = identity_loads(node, graph, expr)
    pair = pair_of(expr, node, graph, None)
    if pair is not None:
        return Method((pair,), over=over)
    calls, scratch = calls_of(expr, node, graph)
    return Method(calls, scratch, over)


def _copy(node: Node, graph: Graph) -> Call | None:
    """Return a loop that moves elements as a copy; None: it does not go along a tensor's dimensions."""
    load, out = expression_of(node), graph.types[node.outputs[0]]
    assert load is not None
    value = node.inputs[load.value]
    kind = graph.types[value]
    index = flat_affine(load, kind.shape)
    if index is None or index.steps.keys() - set(range(len(out.shape))):
        return None
    along = [axis for axis, size in enumerate(out.shape) if size != 1]
    counts = [out.shape[axis] for axis in along]
    ends = [int(np.prod(out.shape[axis + 1 :], dtype=np.int64)) for axis in along]
    counts, starts, ends = _joined(counts, [index.steps.get(axis, 0) for axis in along], ends)
    if len(counts) > DIMENSIONS:
        return None
    size, first = kind.dtype.size, index.first * kind.dtype.size
    data = graph.constants.get(value)
    at: Address = Value(value, first) if data is None else Constant(data, first)
    return copy_call(
        at, Value(node.outputs[0]), size, counts, [size * one for one in starts], [size * one for one in ends]
    )


def _joined(counts: list[int], starts: list[int], ends: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Return dimensions with those made one that lie row by row in both tensors."""
    made: list[tuple[int, int, int]] = []
    for count, start, end in zip(counts, starts, ends, strict=True):
        if made and made[-1][1] == start * count and made[-1][2] == end * count:
            made[-1] = made[-1][0] * count, start, end
        else:
            made.append((count, start, end))
    return [one[0] for one in made], [one[1] for one in made], [one[2] for one in made]


def copy_call(
    source: Address, to: Address, size: int, counts: Sequence[int], starts: Sequence[int], ends: Sequence[int]
) -> Call:
    """Return the copy of elements of `size` bytes along dimensions, with the steps in bytes of both tensors."""
    filling = [0] * (DIMENSIONS - len(counts))
    return Call("copy", (source, to, size, *padded(counts, DIMENSIONS), *filling, *starts, *filling, *ends))


def concat(node: Node, graph: Graph) -> Method:
    """Return the copies of a concatenation.

    Raises:
        NoKernel: its output lies over an input.
    """
    attrs, out = Concat.of(node), graph.types[node.outputs[0]]
    if attrs.appends:
        raise NoKernel("a stream buffer")
    size, row = out.dtype.size, int(np.prod(out.shape[attrs.axis + 1 :], dtype=np.int64))
    rows, step = int(np.prod(out.shape[: attrs.axis], dtype=np.int64)), out.shape[attrs.axis] * row * size
    calls, first = [], 0
    for value in node.inputs:
        length = graph.types[value].shape[attrs.axis] * row
        data = graph.constants.get(value)
        at: Address = Value(value) if data is None else Constant(data)
        if length and rows:
            to = Value(node.outputs[0], first)
            calls.append(copy_call(at, to, size, (rows, length), (length * size, size), (step, size)))
        first += length * size
    return Method(tuple(calls))
