"""Reductions (ai.onnx Reduce*, opset 1 to newest) as loops with extra axes."""

import math
from collections.abc import Callable

import numpy as np

from mtool.compiler.ir import Attributes, DType, Expr, Node
from mtool.compiler.ir.expr import Reduction, axis, call, const, load
from mtool.compiler.operators.bounds import Bounded
from mtool.compiler.operators.folding import VECTORIZED, Folding
from mtool.compiler.operators.lowering import Lowering
from mtool.compiler.operators.onnx_node import OnnxNode, QLinear
from mtool.compiler.operators.operator import Case, Draw, Operator
from mtool.compiler.operators.problems import MICROSOFT

Element = Callable[[Expr], Expr]


class Axes(Attributes):
    """A reduction over `axes`, from 0 on, in order; keepdims: they stay with size 1."""

    axes: tuple[int, ...]
    keepdims: bool


class ArgAxes(Axes):
    """ArgMax, ArgMin; last: the last index of equal elements, not the first."""

    last: bool


def _same(x: Expr) -> Expr:
    return x


def _square(x: Expr) -> Expr:
    return call("mul", x, x)


def _magnitude(x: Expr) -> Expr:
    return call("abs", x)


KINDS: dict[str, tuple[str, Element, Element]] = {
    "ReduceSum": ("add", _same, _same),
    "ReduceMean": ("add", _same, _same),
    "ReduceMax": ("maximum", _same, _same),
    "ReduceMin": ("minimum", _same, _same),
    "ReduceProd": ("multiply", _same, _same),
    "ReduceL1": ("add", _magnitude, _same),
    "ReduceL2": ("add", _square, lambda total: _root(total)),
    "ReduceSumSquare": ("add", _square, _same),
    "ReduceLogSum": ("add", _same, lambda total: call("log", total)),
}
"""The combination, the function of each element before it, and the function of the total after it."""


def _root(total: Expr) -> Expr:
    wide = total if total.dtype.is_float else call("cast", total, dtype=DType.FLOAT64)
    return call("cast", call("sqrt", wide), dtype=total.dtype)


def _index(ctx: Lowering, node: Node) -> tuple[tuple[Expr, ...], tuple[tuple[int, int], ...], tuple[Expr, ...]]:
    """Return the index into the input, the reduced axes, and the index of the output's element."""
    kind, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    rank, axes = len(kind.shape), Axes.of(node).axes
    remaining = [dim for dim in range(rank) if dim not in axes]
    extra = {dim: len(result.shape) + number for number, dim in enumerate(axes)}
    position = {dim: dim if Axes.of(node).keepdims else remaining.index(dim) for dim in remaining}
    index = tuple(axis(extra[dim] if dim in extra else position[dim]) for dim in range(rank))
    sizes = tuple((extra[dim], kind.shape[dim]) for dim in axes)
    out_index = tuple(const(0, DType.INT32) if size == 1 else axis(n) for n, size in enumerate(result.shape))
    return index, sizes, out_index


def _reduce(ctx: Lowering, node: Node) -> None:
    kind = ctx.types[node.inputs[0]]
    index, sizes, _ = _index(ctx, node)
    ufunc, before, after = KINDS[node.op]
    element = load(0, kind.dtype, index)
    total = Expr("reduce", kind.dtype, (before(element),), Reduction(ufunc, sizes))
    if node.op == "ReduceMean":
        count = math.prod(size for _, size in sizes)
        total = call("div", total, const(max(count, 1), kind.dtype))  # the mean of no elements is 0, as in onnxruntime
    ctx.loop(node, after(total), node.inputs)


def _log_sum_exp(ctx: Lowering, node: Node) -> None:
    """ReduceLogSumExp 18: log(sum(exp(x - max))) + max, with an infinite maximum taken as 0."""
    kind, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    index, sizes, out_index = _index(ctx, node)
    dtype = kind.dtype
    top = ctx.value(f"{node.outputs[0]}.max", dtype, result.shape)
    highest = Expr("reduce", dtype, (load(0, dtype, index),), Reduction("maximum", sizes))
    infinite = call("isinf", highest, dtype=DType.BOOL)
    ctx.loop(node, call("where", infinite, const(0, dtype), highest, dtype=dtype), node.inputs[:1], top)
    shifted = call("exp", call("sub", load(0, dtype, index), load(1, dtype, out_index)))
    total = Expr("reduce", dtype, (shifted,), Reduction("add", sizes))
    ctx.loop(node, call("add", call("log", total), load(1, dtype, out_index)), [node.inputs[0], top])


def _arg(ctx: Lowering, node: Node) -> None:
    """ArgMax, ArgMin 13: the first (or last) index of the extreme value, or of a NaN if there is one."""
    kind, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    index, sizes, out_index = _index(ctx, node)
    op = "maximum" if node.op == "ArgMax" else "minimum"
    extreme = ctx.value(f"{node.outputs[0]}.extreme", kind.dtype, result.shape)
    element = load(0, kind.dtype, index)
    ctx.loop(node, Expr("reduce", kind.dtype, (element,), Reduction(op, sizes)), node.inputs, extreme)
    number, size = sizes[0]
    last = ArgAxes.of(node).last
    beyond = call("less" if op == "maximum" else "greater", element, load(1, kind.dtype, out_index), dtype=DType.BOOL)
    outside = const(0 if last else size - 1, DType.INT32)  # a neutral start for the search of an index
    dim = call("where", beyond, outside, axis(number), dtype=DType.INT32)
    chosen = Expr("reduce", DType.INT32, (dim,), Reduction("maximum" if last else "minimum", sizes))
    ctx.loop(node, call("cast", chosen, dtype=DType.INT64), [node.inputs[0], extreme])


_PLAIN = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")  # of one element, they are that element


def _reduce_form(node: OnnxNode) -> None:
    rank, axes = len(node.shape), node.vector("axes", 1)
    over_none = not axes and bool(node.attrs.get("noop_with_empty_axes"))
    if over_none and node.op in _PLAIN:
        node.emit(op="Reshape", inputs=node.inputs[:1])
        return
    chosen = tuple(sorted({a % rank for a in axes})) if axes else () if over_none else tuple(range(rank))
    node.emit(Axes(axes=chosen, keepdims=bool(node.attrs.get("keepdims", 1))), inputs=node.inputs[:1])


def _arg_form(node: OnnxNode) -> None:
    if not node.shape:
        node.state.add_constant(node.outputs[0], np.zeros((), np.int64))
        return
    keep, last = bool(node.attrs.get("keepdims", 1)), bool(node.attrs.get("select_last_index"))
    node.emit(ArgAxes(axes=(node.axis(0),), keepdims=keep, last=last))


def _carry_kept(bounded: Bounded) -> int | None:
    attrs, axis = Axes.of(bounded), bounded.axis
    before = 0 if attrs.keepdims else sum(dim < axis for dim in attrs.axes)
    return axis - before if axis not in attrs.axes else None


def _qlinear_mean(parts: QLinear) -> None:
    axes = [list(parts.attrs["axes"])] if parts.attrs.get("axes") else []
    parts.quantize(parts("ReduceMean", parts.dequantize(0), *axes, keepdims=parts.attrs.get("keepdims", 1)), 3)


_FOLDING = Folding(VECTORIZED.cost, of_nothing=False)


def _cases(draw: Draw, op: Operator) -> Case:
    rng, value = draw.rng, draw.pick()
    axes = rng.sample(range(value.rank), rng.randint(0, value.rank))
    axes = [axis - value.rank if rng.random() < 0.3 else axis for axis in axes]
    return Case([value.name, *[draw.whole(axes)] * bool(axes)], {"keepdims": rng.randint(0, 1)})


OPERATORS = (
    *(
        Operator(op, attributes=ArgAxes, canonical=_arg_form, carry=_carry_kept, folding=VECTORIZED, lower=_arg)
        for op in ("ArgMax", "ArgMin")
    ),
    *(
        Operator(
            op, cases=_cases, attributes=Axes, canonical=_reduce_form, sizes=(1,), carry=_carry_kept, folding=_FOLDING,
            lower=_log_sum_exp if op == "ReduceLogSumExp" else _reduce,
        )
        for op in (*KINDS, "ReduceLogSumExp")
    ),
    Operator("QLinearReduceMean", domain=MICROSOFT, cases=None, expand=QLinear.form(_qlinear_mean)),
)  # fmt: skip
