"""Tensors made from little: ConstantOfShape 25, Range 11, EyeLike 22, OneHot 11, Trilu 14."""

from dataclasses import dataclass

from mtool.compiler.ir import Attributes, DType, Expr, Node
from mtool.compiler.ir.expr import axis, call, choose, compare, const, load, minus, plus
from mtool.compiler.operators.lowering import AlongAxis, Lowering, Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Fill(Attributes):
    """ConstantOfShape: what each element is."""

    value: float | int | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EyeLike(Attributes):
    """The diagonal that is ones: `k` columns right of the main one."""

    k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trilu(Attributes):
    """Whether the upper (1) or the lower triangle (0) is kept."""

    upper: int = 1


def _fill(ctx: Lowering, node: Node) -> None:
    kind = ctx.types[node.outputs[0]]
    ctx.loop(node, const(Fill.of(node).value, kind.dtype), [])


def _range(ctx: Lowering, node: Node) -> None:
    """Range: start + number * delta; how many there are is the output's shape."""
    kind = ctx.types[node.outputs[0]]
    start, delta = node.inputs[0], node.inputs[2]
    first, step = ctx.operands([start, delta], ())
    number = call("cast", axis(0), dtype=kind.dtype)
    ctx.loop(node, call("add", first, call("mul", number, step)), [start, delta])


def _eye_like(ctx: Lowering, node: Node) -> None:
    kind = ctx.types[node.outputs[0]]
    diagonal = compare("equal", axis(1), plus(axis(0), EyeLike.of(node).k))
    ctx.loop(node, choose(diagonal, const(1, kind.dtype), const(0, kind.dtype)), [])


def _one_hot(ctx: Lowering, node: Node) -> None:
    """OneHot: an index below zero counts from the end; one outside gives `off` everywhere."""
    indices, values = node.inputs[0], node.inputs[2]
    kind, result = ctx.types[indices], ctx.types[node.outputs[0]]
    dim, depth = AlongAxis.of(node).axis, result.shape[AlongAxis.of(node).axis]
    index = tuple(axis(number) for number in range(len(result.shape)) if number != dim)
    chosen = load(0, kind.dtype, index)
    if not kind.dtype.is_integer:
        chosen = call("cast", chosen, dtype=DType.INT64)
    wide = call("cast", chosen, dtype=DType.INT64)
    zero, size = const(0, DType.INT64), const(depth, DType.INT64)
    from_end = choose(call("less", wide, zero, dtype=DType.BOOL), call("add", wide, size), wide)
    hit = call("equal", from_end, call("cast", axis(dim), dtype=DType.INT64), dtype=DType.BOOL)
    off, on = (load(1, result.dtype, (const(n, DType.INT32),)) for n in (0, 1))
    ctx.loop(node, choose(hit, on, off), [indices, values])


def _trilu(ctx: Lowering, node: Node) -> None:
    """Trilu: the upper or lower triangle, counted from diagonal k."""
    kind = ctx.types[node.outputs[0]]
    rank = len(kind.shape)
    inputs = [name for name in node.inputs if name]
    k: Expr | int = 0
    if len(inputs) > 1:
        (fill,) = ctx.operands(inputs[1:], ())
        fill = load(1, fill.dtype, ()) if fill.op == "load" else fill
        k = call("cast", fill, dtype=DType.INT32) if fill.op == "load" else int(fill.value)
    ahead = minus(axis(rank - 1), axis(rank - 2))
    kept = compare("greater_equal" if Trilu.of(node).upper else "less_equal", ahead, k)
    element = load(0, kind.dtype, tuple(axis(n) for n in range(rank)))
    ctx.loop(node, choose(kept, element, const(0, kind.dtype)), inputs)


LOWERINGS: dict[str, Operator] = {
    "Fill": Operator(_fill, Fill),
    "Range": Operator(_range),
    "EyeLike": Operator(_eye_like, EyeLike),
    "OneHot": Operator(_one_hot, AlongAxis),
    "Trilu": Operator(_trilu, Trilu),
}
