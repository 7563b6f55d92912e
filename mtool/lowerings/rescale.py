"""mtool's own Rescale, Mean and Table: integer arithmetic that a frontend spells out, where ONNX has only real numbers.

Rescale: int32 sums (or float32 ones that are whole numbers), a multiplier and a shift for all or for each channel
along `axis`, to integers between `low` and `high`, rounded once or `twice` (mtool.ir.scalar.Rescale). Mean: such sums
divided by a positive count, ties away from zero. Table: 256 results for the values of an 8-bit integer.
"""

from dataclasses import dataclass

from mtool.ir import Attributes, DType, Node
from mtool.ir.expr import call, const, identity, load
from mtool.ir.scalar import Rescale
from mtool.lowerings.lowering import Lowering, Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Attributes):
    """The least and the largest result."""

    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescaling(Limits):
    """Rescale.

    axis: that of the channels, which have a multiplier each if there are several.
    zero_point: of the result.
    twice: rounded to 31 bits first (1), or once (0).
    """

    axis: int = 0
    zero_point: int
    twice: int


def _rescale(ctx: Lowering, node: Node) -> None:
    value, multiplier, shift = node.inputs
    kind, result = ctx.types[value], ctx.types[node.outputs[0]]
    inputs, attrs = [value], Rescaling.of(node)
    shifts = ctx.constants[shift]
    axis = attrs.axis if shifts.size > 1 else None
    total = call("cast", load(0, kind.dtype, identity(len(kind.shape))), dtype=DType.INT32)
    twice = bool(attrs.twice)
    wide = bool((shifts < (0 if twice else 1)).any())
    how = Rescale(attrs.zero_point, attrs.low, attrs.high, wide, twice)
    by = ctx.parameter(ctx.constants[multiplier], axis, DType.INT32, inputs, node)
    by_bits = ctx.parameter(shifts, axis, DType.INT8, inputs, node)
    ctx.loop(node, call("rescale", total, by, by_bits, dtype=result.dtype, value=how), inputs)


def _mean(ctx: Lowering, node: Node) -> None:
    kind, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    _, count = ctx.operands(node.inputs, result.shape)
    total = load(0, kind.dtype, identity(len(kind.shape)))
    steps = call("mean", call("cast", total, dtype=DType.INT32), count)
    limits = Limits.of(node)
    for how, bound in (("maximum", limits.low), ("minimum", limits.high)):
        steps = call(how, steps, const(bound, DType.INT32))
    ctx.loop(node, call("cast", steps, dtype=result.dtype), node.inputs)


def _table(ctx: Lowering, node: Node) -> None:
    kind, result = ctx.types[node.inputs[0]], ctx.types[node.outputs[0]]
    element = call("cast", load(0, kind.dtype, identity(len(kind.shape))), dtype=DType.INT32)
    place = call("add", element, const(-kind.dtype.limits[0], DType.INT32), value="index")
    ctx.loop(node, load(1, result.dtype, (place,)), node.inputs)


LOWERINGS: dict[str, Operator] = {
    "Rescale": Operator(_rescale, Rescaling),
    "RoundedMean": Operator(_mean, Limits),
    "Table": Operator(_table),
}
