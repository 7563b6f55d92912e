"""mtool's own integer operators, which frontends use where ONNX has only real numbers.

Rescale: int32 sums (or float32 ones that are whole numbers), a multiplier and a shift for all or for each channel
along `axis`, to integers between `low` and `high`, rounded once or `twice` (mtool.compiler.ir.scalar).
RescaleLong: the same of int64 sums. RescaleReal: int64 sums times a float64. RoundedMean: int32 sums divided by a
positive count, ties away from zero. RoundedSteps: float32 to integers, ties away from zero. Table: 256 results for the
values of an 8-bit integer. FixedLogistic, FixedTanh: of int16 with `whole` integer bits, to int16 with none.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from mtool.compiler.ir import Attributes, DType, Expr, Node, TensorType
from mtool.compiler.ir.expr import call, const, identity, load
from mtool.compiler.ir.scalar import Rescale
from mtool.compiler.operators.lowering import Lowering, by_template
from mtool.compiler.operators.operator import Operator
from mtool.compiler.operators.problems import OWN


class Limits(Attributes):
    """The smallest and the largest result."""

    low: int
    high: int


class Steps(Limits):
    """RoundedSteps. zero_point: the result's."""

    zero_point: int


class LongRescaling(Steps):
    """RescaleLong, RescaleReal. axis: the channels' axis, if each has its own multiplier."""

    axis: int = 0


class Rescaling(LongRescaling):
    """Rescale. twice: rounded to 31 bits first (1), or once (0)."""

    twice: int


class FixedPoint(Attributes):
    """The integer bits of an argument, without its sign."""

    whole: int


def _sums(ctx: Lowering, node: Node, dtype: DType) -> Expr:
    """Return the element of the first input, as a type."""
    kind = ctx.types[node.inputs[0]]
    return call("cast", load(0, kind.dtype, identity(len(kind.shape))), dtype=dtype)


def _rescale(ctx: Lowering, node: Node) -> None:
    """Rescale; RescaleLong: int64 sums, or float32 sums that represent such."""
    value, multiplier, shift = node.inputs
    result, attrs, inputs, shifts = ctx.types[node.outputs[0]], node.attrs, [value], ctx.constants[shift]
    assert isinstance(attrs, LongRescaling)
    axis = attrs.axis if shifts.size > 1 else None
    by = ctx.parameter(ctx.constants[multiplier], axis, DType.INT32, inputs, node)
    by_bits = ctx.parameter(shifts, axis, DType.INT8, inputs, node)
    spec = Rescale(attrs.zero_point, attrs.low, attrs.high)
    op, total = "rescale_long", _sums(ctx, node, DType.INT64)
    if isinstance(attrs, Rescaling):
        twice = bool(attrs.twice)
        wide = bool((shifts < (0 if twice else 1)).any())
        spec = Rescale(attrs.zero_point, attrs.low, attrs.high, wide, twice)
        op, total = "rescale", _sums(ctx, node, DType.INT32)
    ctx.loop(node, call(op, total, by, by_bits, dtype=result.dtype, value=spec), inputs)


def _rounded(ctx: Lowering, node: Node, steps: Expr, attrs: Steps, inputs: Sequence[str]) -> None:
    """Append a loop that rounds a float, ties away from zero, and adds the zero point."""
    whole = call("cast", steps, dtype=DType.INT32)
    moved = call("add", whole, const(attrs.zero_point, DType.INT32)) if attrs.zero_point else whole
    ctx.loop(node, call("cast", moved, dtype=ctx.types[node.outputs[0]].dtype), inputs)


def _rescale_real(ctx: Lowering, node: Node) -> None:
    """RescaleReal: int64 sums, or float32 sums that represent such, times a float64, ties away from zero."""
    value, scale = node.inputs
    inputs, attrs = [value], LongRescaling.of(node)
    factor = ctx.parameter(ctx.constants[scale], attrs.axis, DType.FLOAT64, inputs, node)
    steps = call("round", call("mul", call("cast", _sums(ctx, node, DType.INT64), dtype=DType.FLOAT64), factor))
    for op, bound in (("maximum", attrs.low), ("minimum", attrs.high)):
        steps = call(op, steps, const(float(bound - attrs.zero_point), DType.FLOAT64))
    _rounded(ctx, node, steps, attrs, inputs)


def _mean(ctx: Lowering, node: Node) -> None:
    result = ctx.types[node.outputs[0]]
    _, count = ctx.operands(node.inputs, result.shape)
    steps = call("mean", _sums(ctx, node, DType.INT32), count)
    limits = Limits.of(node)
    for op, bound, end in zip(("maximum", "minimum"), (limits.low, limits.high), DType.INT32.limits, strict=True):
        steps = steps if bound == end else call(op, steps, const(bound, DType.INT32))
    ctx.loop(node, call("cast", steps, dtype=result.dtype), node.inputs)


def _steps(ctx: Lowering, node: Node) -> None:
    """RoundedSteps: float32 to the nearest integers, ties away from zero, plus the zero point."""
    kind, attrs = ctx.types[node.inputs[0]], Steps.of(node)
    value = load(0, kind.dtype, identity(len(kind.shape)))
    limits = [const(float(bound - attrs.zero_point), DType.FLOAT32) for bound in (attrs.low, attrs.high)]
    inside = call("minimum", call("maximum", value, limits[0]), limits[1])
    _rounded(ctx, node, call("round", inside), attrs, node.inputs)


def _table(ctx: Lowering, node: Node) -> None:
    kind, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    index = call("add", _sums(ctx, node, DType.INT32), const(-kind.dtype.limits[0], DType.INT32), value="index")
    ctx.loop(node, load(1, result.dtype, (index,)), node.inputs)


def _fixed(function: str) -> Callable[[Lowering, Node], None]:
    def lower(ctx: Lowering, node: Node) -> None:
        element, whole = _sums(ctx, node, DType.INT32), FixedPoint.of(node).whole
        ctx.loop(node, call(function, element, dtype=DType.INT16, value=whole), node.inputs)

    return lower


# Quotients, norms, logarithms and products of integers in fixed point, as LiteRT's reference kernels compute them.
#
# They are mtool's own, with one C template each: FixedQuotient of two operands with broadcasting, FixedL2Norm and
# FixedLogSoftmax of the rows of the last dimension, FixedProduct of the rows of a matrix.

_HEADERS = ("mt_fixed.h", "mt_fixed_functions.h")


class FixedQuotient(Attributes):
    """zero_points: of dividend, divisor and quotient. The scale is multiplier / 2^31 * 2^exponent."""

    zero_points: tuple[int, ...]
    multiplier: int
    exponent: int
    low: int
    high: int


class FixedL2Norm(Attributes):
    """zero_point: of the input."""

    zero_point: int


class FixedLogSoftmax(Attributes):
    """The scale of the input, as an argument of exp: multiplier / 2^31 * 2^exponent.

    back, back_exponent: its inverse; least: the smallest difference whose exponential is not 0.
    """

    multiplier: int
    exponent: int
    back: int
    back_exponent: int
    least: int


class FixedProduct(Attributes):
    """zero_points: of input and output. A factor's scale is multiplier / 2^shift."""

    zero_points: tuple[int, ...]
    multiplier: int
    shift: int


def _strides(shape: Sequence[int], result: Sequence[int]) -> tuple[int, ...]:
    padded = (*(1 for _ in range(len(result) - len(shape))), *shape)
    return tuple(math.prod(padded[axis + 1 :]) if size > 1 else 0 for axis, size in enumerate(padded))


def _quotient(ctx: Lowering, node: Node) -> dict[str, object]:
    shape = ctx.types[node.outputs[0]].shape
    steps = {name: _strides(ctx.types[value].shape, shape) for name, value in zip("ab", node.inputs, strict=True)}
    return {"sizes": shape, "attrs": node.attrs, **steps}


def _row_values(ctx: Lowering, node: Node) -> dict[str, object]:
    *rows, count = ctx.types[node.inputs[0]].shape
    low, high = ctx.types[node.outputs[0]].dtype.limits
    return {"rows": math.prod(rows), "count": count, "attrs": node.attrs, "low": int(low), "high": int(high)}


_QUOTIENT = by_template("fixed_quotient", "a b", "y", _quotient, headers=_HEADERS)
_L2_NORM = by_template("fixed_l2_norm", "x", "y", _row_values, headers=_HEADERS)
_LOG_SOFTMAX = by_template("fixed_log_softmax", "x exponential", "y", _row_values, headers=_HEADERS)
_PRODUCT = by_template("fixed_product", "x", "y", _row_values)


def _broadcast(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    return [TensorType(inputs[0].dtype, np.broadcast_shapes(*(kind.shape for kind in inputs)))]


def _same(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    return [inputs[0]]


def _first(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    return [TensorType(inputs[0].dtype, inputs[0].shape[:1])]


OPERATORS = (
    Operator("Rescale", domain=OWN, attributes=Rescaling, lower=_rescale),
    Operator("RescaleLong", domain=OWN, attributes=LongRescaling, lower=_rescale),
    Operator("RescaleReal", domain=OWN, attributes=LongRescaling, lower=_rescale_real),
    Operator("RoundedMean", domain=OWN, attributes=Limits, lower=_mean),
    Operator("RoundedSteps", domain=OWN, attributes=Steps, lower=_steps),
    Operator("Table", domain=OWN, lower=_table),
    Operator("FixedLogistic", domain=OWN, attributes=FixedPoint, lower=_fixed("logistic16")),
    Operator("FixedTanh", domain=OWN, attributes=FixedPoint, lower=_fixed("tanh16")),
    Operator("FixedQuotient", domain=OWN, attributes=FixedQuotient, infer=_broadcast, lower=_QUOTIENT),
    Operator("FixedL2Norm", domain=OWN, attributes=FixedL2Norm, infer=_same, lower=_L2_NORM),
    Operator("FixedLogSoftmax", domain=OWN, attributes=FixedLogSoftmax, infer=_same, lower=_LOG_SOFTMAX),
    Operator("FixedProduct", domain=OWN, attributes=FixedProduct, infer=_first, lower=_PRODUCT),
)  # fmt: skip
