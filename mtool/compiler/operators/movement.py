"""Operators that move elements: views, transposition, concatenation, slices, padding, gathering."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mtool.compiler.ir import Attributes, DType, Expr, Node
from mtool.compiler.ir.expr import axis, call, compare, const, every, load, wrapped
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.operators.lowering import AlongAxis, Lowering, Operator, moves_integers

MOST = 64  # inputs of one concatenation


@dataclass(frozen=True, slots=True, kw_only=True)
class Permutation(Attributes):
    """Transpose: dimension n of the output is dimension perm[n] of the input."""

    perm: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice(Attributes):
    """For each dimension, the index of the first element, and how far it is from one to the next (may be negative)."""

    first: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pad(Attributes):
    """Padding around the input.

    mode: "constant", "edge", "reflect" or "wrap".
    before: elements before each dimension; negative: they are cut. The output's shape says how many are behind.
    value: of "constant", where no second operand says it.
    """

    mode: str
    before: tuple[int, ...]
    value: float | int | bool


def _reshape(ctx: Lowering, node: Node) -> None:
    ctx.view(node, node.inputs[0], (), node.outputs[0])


def _transpose(ctx: Lowering, node: Node) -> None:
    ctx.transpose(node, node.inputs[0], Permutation.of(node).perm, node.outputs[0])


def _concat(ctx: Lowering, node: Node) -> None:
    if len(node.inputs) == 1:
        ctx.view(node, node.inputs[0], (), node.outputs[0])
        return
    left, axis = list(node.inputs), AlongAxis.of(node).axis
    while len(left) > MOST:
        left = [_part(ctx, node, left[first : first + MOST], axis) for first in range(0, len(left), MOST)]
    ctx.node("concat", left, node.outputs, Concat(axis=axis), like=node)


def _part(ctx: Lowering, node: Node, values: Sequence[str], axis: int) -> str:
    """Append a concatenation of some of the inputs: each input is a parameter of a function, of which C has 127."""
    shape = list(ctx.types[values[0]].shape)
    shape[axis] = sum(ctx.types[value].shape[axis] for value in values)
    part = ctx.value(f"{node.outputs[0]}.part", ctx.types[values[0]].dtype, shape)
    ctx.node("concat", values, [part], Concat(axis=axis), like=node)
    return part


def _slice(ctx: Lowering, node: Node) -> None:
    kind = ctx.types[node.inputs[0]]
    index = []
    for dim, (first, stride) in enumerate(zip(Slice.of(node).first, Slice.of(node).stride, strict=True)):
        step = call("mul", axis(dim), const(stride, DType.INT32), value="index")
        index.append(call("add", step, const(first, DType.INT32), value="index"))
    ctx.loop(node, load(0, kind.dtype, tuple(index)), node.inputs[:1])


def _pad(ctx: Lowering, node: Node) -> None:
    """Pad: each mode is a table of source indices along each axis; a second input is a value that the run gives."""
    kind, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    mode = Pad.of(node).mode
    inputs, index, inside = list(node.inputs), [], []
    for dim, (before, size, total) in enumerate(zip(Pad.of(node).before, kind.shape, result.shape, strict=True)):
        if total == size and before == 0:
            index.append(axis(dim))
            continue
        source = np.arange(total) - before
        if mode == "edge":
            source = np.clip(source, 0, size - 1)
        elif mode == "reflect":
            period = max(2 * (size - 1), 1)
            source = np.minimum(source % period, period - source % period)
        elif mode == "wrap":
            source = source % size
        outside = (source < 0) | (source >= size)
        inputs.append(ctx.constant(f"{node.name}/source", np.where(outside, 0, source).astype(np.int32)))
        index.append(load(len(inputs) - 1, DType.INT32, (axis(dim),)))
        if outside[:1].any():
            inside.append(compare("greater_equal", axis(dim), before))
        if outside[-1:].any():
            inside.append(compare("less", axis(dim), before + size))
    element = load(0, kind.dtype, tuple(index))
    condition = every(inside)
    if condition is not None:
        value = const(Pad.of(node).value, kind.dtype)
        if len(node.inputs) > 1:
            value = load(1, kind.dtype, tuple(const(0, DType.INT32) for _ in ctx.types[node.inputs[1]].shape))
        element = call("where", condition, element, value, dtype=kind.dtype) if kind.count else value
    ctx.loop(node, element, inputs)


def _zero_point(attrs: Attributes, zero_point: int) -> Attributes:
    """The padding of a dequantised input is 0.0: its zero point."""
    assert isinstance(attrs, Pad)
    return replace(attrs, value=zero_point)


def _padded_by_zero(ctx: Lowering, node: Node) -> None:
    if len(node.inputs) > 1 or (Pad.of(node).mode == "constant" and Pad.of(node).value != 0):
        _pad(ctx, node)
    else:
        moves_integers(_pad, _zero_point)(ctx, node)


def _gather(ctx: Lowering, node: Node) -> None:
    """Gather 13: a negative index counts from the end."""
    kind, indices = ctx.types[node.inputs[0]], ctx.types[node.inputs[1]]
    dim = AlongAxis.of(node).axis
    spread = len(indices.shape)
    index = [axis(number) for number in range(dim)]
    chosen, source = chosen_indices(ctx, node, kind.shape[dim], [axis(dim + number) for number in range(spread)])
    index.append(chosen)
    index += [axis(number - 1 + spread) for number in range(dim + 1, len(kind.shape))]
    ctx.loop(node, load(0, kind.dtype, tuple(index)), [node.inputs[0], source])


def chosen_indices(ctx: Lowering, node: Node, size: int, index: Sequence[Expr]) -> tuple[Expr, str]:
    """Return the index that an element of a node's second input is, and what has it; constants count from the start."""
    value = node.inputs[1]
    known = ctx.constants.get(value)
    if known is None:
        return wrapped(load(1, ctx.types[value].dtype, tuple(index)), size), value
    indices = np.where(known < 0, known + size, known).astype(np.int32)
    return load(1, DType.INT32, tuple(index)), ctx.constant(f"{node.name}/indices", indices)


LOWERINGS: dict[str, Operator] = {
    "Reshape": Operator(moves_integers(_reshape)),
    "Transpose": Operator(moves_integers(_transpose), Permutation),
    "Concat": Operator(moves_integers(_concat), AlongAxis),
    "Slice": Operator(moves_integers(_slice), Slice),
    "Pad": Operator(_padded_by_zero, Pad),
    "Gather": Operator(_gather, AlongAxis),
}
