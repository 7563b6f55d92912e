"""Normalisations as loops: LRN 13, LpNormalization 22, Hardmax 13; softmax of other types."""

from dataclasses import dataclass

from mtool.compiler.ir import Attributes, DType, Expr, Node
from mtool.compiler.ir.expr import (
    Reduction,
    axis,
    call,
    choose,
    const,
    every,
    identity,
    inside,
    integer,
    load,
    minus,
    number,
    plus,
)
from mtool.compiler.operators.lowering import AlongAxis, Lowering, Operator
from mtool.compiler.operators.sliding_window import accumulator


def _wide(number_: int, kind_dtype: DType, index: tuple[Expr, ...]) -> Expr:
    return call("cast", load(number_, kind_dtype, index), dtype=accumulator(kind_dtype))


@dataclass(frozen=True, slots=True, kw_only=True)
class LRN(Attributes):
    """x / (bias + alpha * sum of squares) ** beta, over `size` channels of which `before` lie before one's own."""

    alpha: float
    beta: float
    bias: float
    before: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LpNormalization(AlongAxis):
    """p: of the norm, 1 or 2."""

    p: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax(AlongAxis):
    """Softmax and LogSoftmax; `log` tells which."""

    log: bool


def _lrn(ctx: Lowering, node: Node) -> None:
    """LRN: x / (bias + alpha / size * sum of squares of the channels around) ** beta."""
    kind, attrs = ctx.types[node.inputs[0]], LRN.of(node)
    rank, size = len(kind.shape), attrs.size
    own = identity(rank)
    channel = minus(plus(axis(1), axis(rank)), attrs.before)
    near = _wide(0, kind.dtype, (own[0], channel, *own[2:]))
    dtype = near.dtype
    condition = every(inside(channel, kind.shape[1]))
    assert condition is not None
    body = choose(condition, call("mul", near, near), const(0, dtype))
    total = Expr("reduce", dtype, (body,), Reduction("add", ((rank, size),)))
    base = call("add", const(attrs.bias, dtype), call("mul", const(attrs.alpha, dtype), total))
    result = call("div", _wide(0, kind.dtype, own), call("pow", base, const(attrs.beta, dtype)))
    ctx.loop(node, call("cast", result, dtype=kind.dtype), node.inputs)


def _along(shape: tuple[int, ...], dim: int) -> tuple[tuple[Expr, ...], tuple[tuple[int, int], ...]]:
    """Return the index of an element of the reduction along one axis, and that axis."""
    rank = len(shape)
    index = tuple(axis(rank) if n == dim else axis(n) for n in range(rank))
    return index, ((rank, shape[dim]),)


def _lp_normalization(ctx: Lowering, node: Node) -> None:
    """LpNormalization: x / norm, and 0 where the norm is 0."""
    kind, dim = ctx.types[node.inputs[0]], LpNormalization.of(node).axis
    index, axes = _along(kind.shape, dim)
    element = _wide(0, kind.dtype, index)
    dtype = element.dtype
    one = LpNormalization.of(node).p == 1
    body = call("abs", element) if one else call("mul", element, element)
    total = Expr("reduce", dtype, (body,), Reduction("add", axes))
    norm = ctx.value(f"{node.outputs[0]}.norm", dtype, [1 if n == dim else s for n, s in enumerate(kind.shape)])
    ctx.loop(node, total if one else call("sqrt", total), node.inputs, norm)
    own = identity(len(kind.shape))
    size = load(1, dtype, tuple(number(0) if n == dim else a for n, a in enumerate(own)))
    zero = const(0, dtype)
    quotient = call("div", _wide(0, kind.dtype, own), size)
    result = choose(call("equal", size, zero, dtype=DType.BOOL), zero, quotient)
    ctx.loop(node, call("cast", result, dtype=kind.dtype), [node.inputs[0], norm])


def _hardmax(ctx: Lowering, node: Node) -> None:
    """Hardmax: 1 at the first maximum along the axis, 0 elsewhere."""
    kind, dim = ctx.types[node.inputs[0]], AlongAxis.of(node).axis
    shape = tuple(1 if n == dim else size for n, size in enumerate(kind.shape))
    index, axes = _along(kind.shape, dim)
    own = identity(len(kind.shape))
    once = tuple(number(0) if n == dim else a for n, a in enumerate(own))
    top = ctx.value(f"{node.outputs[0]}.max", kind.dtype, shape)
    highest = Expr("reduce", kind.dtype, (load(0, kind.dtype, index),), Reduction("maximum", axes))
    ctx.loop(node, highest, node.inputs, top)
    first = ctx.value(f"{node.outputs[0]}.first", DType.INT32, shape)
    lower = call("less", load(0, kind.dtype, index), load(1, kind.dtype, once), dtype=DType.BOOL)
    candidate = choose(lower, number(kind.shape[dim]), axis(len(kind.shape)))
    lowest = Expr("reduce", DType.INT32, (candidate,), Reduction("minimum", axes))
    ctx.loop(node, lowest, [node.inputs[0], top], first)
    hit = call("equal", integer(load(0, DType.INT32, once)), own[dim], dtype=DType.BOOL)
    ctx.loop(node, choose(hit, const(1, kind.dtype), const(0, kind.dtype)), [first])


def softmax(ctx: Lowering, node: Node) -> None:
    """Softmax and LogSoftmax along one axis, of element types and shapes that the kernel is not for."""
    kind, dim = ctx.types[node.inputs[0]], Softmax.of(node).axis
    shape = tuple(1 if n == dim else size for n, size in enumerate(kind.shape))
    index, axes = _along(kind.shape, dim)
    own = identity(len(kind.shape))
    once = tuple(number(0) if n == dim else a for n, a in enumerate(own))
    dtype = accumulator(kind.dtype)
    top, sums = (ctx.value(f"{node.outputs[0]}.{what}", dtype, shape) for what in ("max", "sum"))
    highest = Expr("reduce", dtype, (_wide(0, kind.dtype, index),), Reduction("maximum", axes))
    ctx.loop(node, highest, node.inputs, top)
    power = call("exp", call("sub", _wide(0, kind.dtype, index), load(1, dtype, once)))
    ctx.loop(node, Expr("reduce", dtype, (power,), Reduction("add", axes)), [node.inputs[0], top], sums)
    centred = call("sub", _wide(0, kind.dtype, own), load(1, dtype, once))
    total = load(2, dtype, once)
    log = Softmax.of(node).log
    result = call("sub", centred, call("log", total)) if log else call("div", call("exp", centred), total)
    ctx.loop(node, call("cast", result, dtype=kind.dtype), [node.inputs[0], top, sums])


LOWERINGS: dict[str, Operator] = {
    "LRN": Operator(_lrn, LRN),
    "LpNormalization": Operator(_lp_normalization, LpNormalization),
    "Hardmax": Operator(_hardmax, AlongAxis),
}
