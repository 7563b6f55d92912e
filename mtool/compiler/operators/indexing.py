"""Operators that pick elements by computed indices, as loops.

Tile 13, GatherElements 13, GatherND 13, SpaceToDepth 13, DepthToSpace 13, ReverseSequence 10, TensorScatter 24;
Binarizer (ai.onnx.ml 1).
"""

from dataclasses import dataclass
from typing import Literal

from mtool.compiler.ir import Attributes, Expr, Node
from mtool.compiler.ir.expr import (
    axis,
    choose,
    compare,
    const,
    every,
    inside,
    integer,
    least,
    load,
    minus,
    modulo,
    most,
    number,
    over,
    plus,
    times,
    wrapped,
)
from mtool.compiler.operators.lowering import AlongAxis, Lowering, Operator, moves_integers
from mtool.compiler.operators.movement import chosen_indices


@dataclass(frozen=True, slots=True, kw_only=True)
class GatherND(Attributes):
    """The number of leading dimensions that data and indices share."""

    batch_dims: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks(Attributes):
    """SpaceToDepth, DepthToSpace: squares of `blocksize` elements; mode: channels are (dy, dx, c) or (c, dy, dx)."""

    blocksize: int = 1
    mode: Literal["DCR", "CRD"] = "DCR"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReverseSequence(Attributes):
    """The dimensions of time and of the sequences."""

    time_axis: int = 0
    batch_axis: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Binarizer(Attributes):
    """Elements above the threshold become 1."""

    threshold: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorScatter(AlongAxis):
    """mode: what would be written behind the end is not there, or stands at the beginning ("circular")."""

    mode: Literal["linear", "circular"] = "linear"


def _tile(ctx: Lowering, node: Node) -> None:
    kind, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    index = tuple(
        axis(dim) if size == total else number(0) if size == 1 else modulo(axis(dim), size)
        for dim, (size, total) in enumerate(zip(kind.shape, result.shape, strict=True))
    )
    ctx.loop(node, load(0, kind.dtype, index), node.inputs[:1])


def _gather_elements(ctx: Lowering, node: Node) -> None:
    kind = ctx.types[node.inputs[0]]
    own = tuple(axis(dim) for dim in range(len(kind.shape)))
    dim = AlongAxis.of(node).axis
    chosen, source = chosen_indices(ctx, node, kind.shape[dim], own)
    ctx.loop(node, load(0, kind.dtype, (*own[:dim], chosen, *own[dim + 1 :])), [node.inputs[0], source])


def _gather_nd(ctx: Lowering, node: Node) -> None:
    kind, indices = ctx.types[node.inputs[0]], ctx.types[node.inputs[1]]
    batch, depth, outer = GatherND.of(node).batch_dims, indices.shape[-1], len(indices.shape) - 1
    where = tuple(axis(n) for n in range(outer))
    index = [axis(n) for n in range(batch)]
    for n in range(depth):
        index.append(wrapped(load(1, indices.dtype, (*where, number(n))), kind.shape[batch + n]))
    index += [axis(outer + n) for n in range(len(kind.shape) - batch - depth)]
    ctx.loop(node, load(0, kind.dtype, tuple(index)), node.inputs)


def _space_to_depth(ctx: Lowering, node: Node) -> None:
    """SpaceToDepth: channel (dy, dx, c) of the output, or (c, dy, dx), is what lies dy, dx into the block."""
    kind, size = ctx.types[node.inputs[0]], Blocks.of(node).blocksize
    channels = kind.shape[1]
    crd = Blocks.of(node).mode == "CRD"
    block = modulo(axis(1), size * size) if crd else over(axis(1), channels)
    channel = over(axis(1), size * size) if crd else modulo(axis(1), channels)
    row = plus(times(axis(2), size), over(block, size))
    column = plus(times(axis(3), size), modulo(block, size))
    ctx.loop(node, load(0, kind.dtype, (axis(0), channel, row, column)), node.inputs)


def _depth_to_space(ctx: Lowering, node: Node) -> None:
    """DepthToSpace: mode DCR has channels (dy, dx, c), CRD (c, dy, dx)."""
    kind, size = ctx.types[node.inputs[0]], Blocks.of(node).blocksize
    channels = kind.shape[1] // (size * size)
    block = plus(times(modulo(axis(2), size), size), modulo(axis(3), size))
    if Blocks.of(node).mode == "CRD":
        channel = plus(times(axis(1), size * size), block)
    else:
        channel = plus(times(block, channels), axis(1))
    ctx.loop(node, load(0, kind.dtype, (axis(0), channel, over(axis(2), size), over(axis(3), size))), node.inputs)


def _reverse_sequence(ctx: Lowering, node: Node) -> None:
    kind, lengths = ctx.types[node.inputs[0]], ctx.types[node.inputs[1]]
    time, batch = ReverseSequence.of(node).time_axis, ReverseSequence.of(node).batch_axis
    length = least(most(integer(load(1, lengths.dtype, (axis(batch),))), 0), kind.shape[time])
    turned = minus(minus(length, 1), axis(time))
    index: list[Expr] = [axis(n) for n in range(len(kind.shape))]
    index[time] = choose(compare("less", axis(time), length), turned, axis(time))
    ctx.loop(node, load(0, kind.dtype, tuple(index)), node.inputs)


def _binarizer(ctx: Lowering, node: Node) -> None:
    """Binarizer (ai.onnx.ml 1): 1 above the threshold, 0 elsewhere."""
    kind = ctx.types[node.inputs[0]]
    (element,) = ctx.operands(node.inputs, kind.shape)
    above = compare("greater", element, const(Binarizer.of(node).threshold, kind.dtype))
    ctx.loop(node, choose(above, const(1, kind.dtype), const(0, kind.dtype)), node.inputs)


def _tensor_scatter(ctx: Lowering, node: Node) -> None:
    """TensorScatter 24: the update stands from index write_indices[batch] on; "circular" goes on at the start."""
    past, update = node.inputs[:2]
    kind, dim = ctx.types[past], TensorScatter.of(node).axis
    size, length = kind.shape[dim], ctx.types[update].shape[dim]
    own: list[Expr] = [axis(n) for n in range(len(kind.shape))]
    inputs = [name for name in node.inputs if name]
    start: Expr = number(0)
    if len(inputs) > 2:
        start = least(most(integer(load(2, ctx.types[inputs[2]].dtype, (axis(0),))), 0), size)
    offset = minus(axis(dim), start)
    if TensorScatter.of(node).mode == "circular":
        offset = modulo(plus(offset, size), size)
    new = load(1, kind.dtype, tuple(offset if n == dim else a for n, a in enumerate(own)))
    condition = every(inside(offset, length))
    assert condition is not None
    ctx.loop(node, choose(condition, new, load(0, kind.dtype, tuple(own))), inputs)


LOWERINGS: dict[str, Operator] = {
    "Tile": Operator(moves_integers(_tile)),
    "GatherElements": Operator(_gather_elements, AlongAxis),
    "GatherND": Operator(_gather_nd, GatherND),
    "SpaceToDepth": Operator(moves_integers(_space_to_depth), Blocks),
    "DepthToSpace": Operator(moves_integers(_depth_to_space), Blocks),
    "ReverseSequence": Operator(_reverse_sequence, ReverseSequence),
    "Binarizer": Operator(_binarizer, Binarizer),
    "TensorScatter": Operator(_tensor_scatter, TensorScatter),
}
