"""Operators on single elements."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import tflite
from onnx import helper

from mtool.compiler.frontend.tflite.fixed_point import (
    SIGMOIDS,
    between,
    inverse_root,
    limits,
    multipliers,
    rescaled,
    scaled_by,
)
from mtool.compiler.frontend.tflite.rescaling import (
    EIGHT_BITS,
    centred,
    clamped,
    divided,
    eight_bits,
    kept_of,
    requantised,
    rescale,
    rescale_to,
    widened,
)
from mtool.compiler.frontend.tflite.translation import Translate, Translation
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.interpolation import HIGH, LOW, STEPS, away
from mtool.compiler.operators.problems import OWN, Unsupported

Function = Callable[[Translation, Array], Array]
"""A function of the input's numbers."""


def plain(onnx: str, inputs: int = 1, *, is_stored: bool = False) -> Translate:
    """A builtin that is one ONNX operator of its real inputs and a fused activation, or of the elements as stored."""

    def translate(t: Translation) -> None:
        made = t.node(onnx, [(t.stored if is_stored else t.real)(index) for index in range(inputs)])
        if is_stored:
            t.put(made)
        else:
            t.store(t.activated(made, t.op.option("FusedActivationFunction")))

    return translate


def composed(build: Callable[[Translation, str], str]) -> Translate:
    """An operator of one input that is several of ONNX's."""

    def translate(t: Translation) -> None:
        t.store(build(t, t.real(0)))

    return translate


def not_equal(t: Translation) -> None:
    """NOT_EQUAL."""
    t.put(t.node("Not", [t.node("Equal", [t.real(0), t.real(1)])]))


def squared_difference(t: Translation) -> None:
    """Append SQUARED_DIFFERENCE."""
    difference = t.node("Sub", [t.real(0), t.real(1)])
    t.store(t.node("Mul", [difference, difference]))


def floor_div(t: Translation) -> None:
    """Append FLOOR_DIV."""
    a, b = t.real(0), t.real(1)
    if t.tensor(0).dtype.kind == "f" or t.tensor(0).is_quantised:
        t.store(t.node("Floor", [t.node("Div", [a, b])]))
        return
    remainder = t.node("Mod", [a, b])  # the sign of the divisor: what is left is divisible
    t.put(t.node("Div", [t.node("Sub", [a, remainder]), b]))


def floor_mod(t: Translation) -> None:
    """Append FLOOR_MOD."""
    a, b = t.real(0), t.real(1)
    if t.tensor(0).dtype.kind != "f":
        t.store(t.node("Mod", [a, b]))
        return
    quotient = t.node("Floor", [t.node("Div", [a, b])])
    t.store(t.node("Sub", [a, t.node("Mul", [quotient, b])]))


def leaky_relu(t: Translation) -> None:
    """Append LEAKY_RELU."""
    t.store(t.node("LeakyRelu", [t.real(0)], alpha=float(t.op.option("Alpha", 0.0))))


def gelu(t: Translation) -> None:
    """Append GELU."""
    t.store(t.node("Gelu", [t.real(0)], approximate="tanh" if t.op.option("Approximate", False) else "none"))


def add_n(t: Translation) -> None:
    """Append ADD_N."""
    made = t.real(0)
    for index in range(1, len(t.op.inputs)):
        made = t.node("Add", [made, t.real(index)])
    t.store(made)


def select(t: Translation) -> None:
    """SELECT, SELECT_V2; the former's condition may have one dimension, that of the first axis."""
    condition, x = t.shape(0), t.shape(1)
    name = t.stored(0)
    if t.op.kind == "SELECT" and len(condition) == 1 and len(x) > 1:
        name = t.node("Reshape", [name, t.whole("shape", (*condition, *[1] * (len(x) - 1)))])
    if t.same_grid(1, 2):
        t.put(t.node("Where", [name, t.stored(1), t.stored(2)]))
    else:
        t.store(t.node("Where", [name, t.real(1), t.real(2)]))


def prelu(t: Translation) -> None:
    """Append PRELU."""
    if t.tensor(0).dtype == np.int16 and t.tensor(1).dtype != np.int8:
        raise Unsupported(f"its slopes are {t.tensor(1).dtype}, which LiteRT reads as int8")
    plain("PRelu", 2)(t)


def cast(t: Translation) -> None:
    """Append CAST."""
    t.put(t.node("Cast", [t.stored(0)], to=helper.np_dtype_to_tensor_dtype(t.result().dtype)))


def requantise(t: Translation) -> None:
    """QUANTIZE, DEQUANTIZE: the same numbers on another grid, or on none."""
    if t.op.kind == "DEQUANTIZE" and not t.tensor(0).is_quantised and t.tensor(0).dtype != np.float16:
        raise Unsupported(f"its input is {t.tensor(0).dtype}, which is not quantised")
    if t.tensor(0).is_quantised and t.result().is_quantised and t.result().dtype == np.int32:
        t.put(requantised(t))  # QuantizeLinear has no int32
        return
    t.store(t.real(0))


def atan2(t: Translation) -> None:
    """ATAN2: the angle of (x, y), by that of y / x; LiteRT reads as many numbers of both, whatever their shapes."""
    if t.shape(0) != t.shape(1):
        raise Unsupported(f"its operands are {list(t.shape(0))} and {list(t.shape(1))}, which LiteRT does not heed")
    y, x = t.real(0), t.real(1)
    angles = (("zero", 0.0), ("quarter", np.pi / 2), ("half", np.pi))
    zero, quarter, half = (t.constant(stem, value, np.float32) for stem, value in angles)
    angle = t.node("Atan", [t.node("Div", [y, x])])
    left = t.node("Where", [t.node("GreaterOrEqual", [y, zero]), half, t.node("Neg", [half])])
    beside = t.node("Add", [angle, t.node("Where", [t.node("Less", [x, zero]), left, zero])])
    above = t.node("Mul", [t.node("Sign", [y]), quarter])
    t.store(t.node("Where", [t.node("Equal", [x, zero]), above, beside]))


def right_shift(t: Translation) -> None:
    """RIGHT_SHIFT: by as many bits as there are at most; of signed integers the sign fills what is left."""
    kind = t.tensor(0).dtype
    if kind.kind not in "iu" or t.tensor(1).dtype != kind:
        raise Unsupported(f"its inputs are {kind} and {t.tensor(1).dtype}")
    unsigned = helper.np_dtype_to_tensor_dtype(np.dtype(f"uint{8 * kind.itemsize}"))
    bounds = (t.constant(stem, number, kind) for stem, number in (("least", 0), ("most", 8 * kind.itemsize - 1)))
    bits = t.node("Cast", [t.node("Clip", [t.stored(1), *bounds])], to=unsigned)

    def shifted(value: str) -> str:
        return t.node("BitShift", [t.node("Cast", [value], to=unsigned), bits], direction="RIGHT")

    if kind.kind == "u":
        t.put(shifted(t.stored(0)))
        return
    same = helper.np_dtype_to_tensor_dtype(kind)
    above = t.node("Cast", [shifted(t.stored(0))], to=same)
    below = t.node("BitwiseNot", [t.node("Cast", [shifted(t.node("BitwiseNot", [t.stored(0)]))], to=same)])
    t.put(t.node("Where", [t.node("Less", [t.stored(0), t.constant("zero", 0, kind)]), below, above]))


def stablehlo_and(t: Translation) -> None:
    """STABLEHLO_AND: of truths, or of the bits of integers."""
    plain("And" if t.result().dtype == np.bool_ else "BitwiseAnd", 2, is_stored=True)(t)


def fake_quant(t: Translation) -> None:
    """FAKE_QUANT: floats on a grid of so many bits, one of whose steps is 0; LiteRT does not heed `narrow_range`."""
    single = np.float32
    low, high, bits = single(t.op.option("Min")), single(t.op.option("Max")), t.op.option("NumBits")
    if not 2 <= bits <= 16 or not low <= 0 <= high or not low < high:
        raise Unsupported(f"its range is {low} to {high} in {bits} bits")
    most = single(2**bits - 1)
    step = (high - low) / most
    point = single(np.clip(np.floor(-low / step + single(0.5)), 0, most))
    bottom, top = -point * step, (most - point) * step
    moved = t.node("Sub", [t.clip(t.real(0), float(bottom), float(top)), t.constant("bottom", bottom, np.float32)])
    scaled = t.node("Mul", [moved, t.constant("per_step", single(1) / step, np.float32)])
    whole = t.node("Floor", [t.node("Add", [scaled, t.constant("half", 0.5, np.float32)])])
    back = t.node("Mul", [whole, t.constant("step", step, np.float32)])
    t.store(t.node("Add", [back, t.constant("bottom", bottom, np.float32)]))


SUM_SHIFT = 20  # bits by which the operands of a sum are shifted to the left before they are scaled
WIDE_SUM_SHIFT = 15  # the same of int16
DIFFERENCE_SHIFT = 7  # the same of a difference that is squared
POWER = 1e-3  # how far a logarithm may be from a whole number to be taken for it


def exact_sum(kind: str) -> Translate:
    """ADD, SUB: both operands in steps of twice the larger scale, 20 bits to the left, those of int16 15 bits."""

    def translate(t: Translation) -> None:
        eight_bits(t, 0, 1, wide=True)
        wide = t.result().dtype == np.int16
        if wide and t.op.option("PotScaleInt16", False) and None not in (exponents := _exponents(t)):
            _shifted_sum(t, kind, [number for number in exponents if number is not None])
            return
        left = WIDE_SUM_SHIFT if wide else SUM_SHIFT
        terms, unit = _on_one_grid(t, left)
        factor = unit / float(np.float32(1 << left) * t.result().scale[0])
        t.put(rescale(t, t.node(kind, terms), np.asarray([factor]), t.result()))

    return translate


def _on_one_grid(t: Translation, left: int) -> tuple[list[str], float]:
    """Return both operands less their zero points in steps of twice the larger scale / 2^left, and twice that scale."""
    scales = [float(t.tensor(index).scale[0]) for index in (0, 1)]
    unit, terms = 2 * max(scales), []
    for index, scale in enumerate(scales):
        value, share = centred(t, index), scale / unit
        if share == 0.5 and left:  # of an even number that is no rounding
            terms.append(t.node("Mul", [value, t.constant("left", 1 << (left - 1), np.int32)]))
            continue
        shifted = t.node("Mul", [value, t.constant("left", 1 << left, np.int32)]) if left else value
        terms.append(rescale(t, shifted, np.asarray([share])))
    return terms, unit


def _exponents(t: Translation) -> list[int | None]:
    """Return the scales of both operands and of the result as powers of 2; None: it is none."""
    found: list[int | None] = []
    for tensor in (t.tensor(0), t.tensor(1), t.result()):
        exponent = math.log2(float(tensor.scale[0]))
        found.append(round(exponent) if abs(exponent - round(exponent)) < POWER else None)
    return found


def _shifted_sum(t: Translation, kind: str, exponents: Sequence[int]) -> None:
    """ADD, SUB of int16 whose scales are powers of 2: one operand is shifted to the right, ties away from zero."""
    shifts = [exponents[2] - exponents[index] for index in (0, 1)]
    if min(shifts) != 0 or max(shifts) > 15:
        powers = ", ".join(f"2^{exponent}" for exponent in exponents)
        raise Unsupported(f"the scales of its operands and its result are {powers}, which LiteRT refuses")
    if kind == "Add" and t.shape(0) != t.shape(1):
        raise Unsupported("its scales are powers of 2 and its operands of two shapes, which LiteRT does not heed")
    terms = [divided(t, centred(t, index), 1 << shift) for index, shift in enumerate(shifts)]
    total = clamped(t, t.node(kind, terms), *limits(t.result(), t.op.option("FusedActivationFunction")))
    t.put(t.node("Cast", [total], to=onnx.TensorProto.INT16))


def exact_squared_difference(t: Translation) -> None:
    """SQUARED_DIFFERENCE: of int8 7 bits to the left; of int16, which TFLite Micro has, none."""
    eight_bits(t, 0, 1, wide=True)
    if t.result().dtype == np.uint8:
        raise Unsupported("it is of uint8, which neither LiteRT nor TFLite Micro has")
    left = 0 if t.result().dtype == np.int16 else DIFFERENCE_SHIFT
    terms, unit = _on_one_grid(t, left)
    difference = t.node("Sub", terms)
    factor = unit * unit / float(np.float32(1 << (2 * left)) * t.result().scale[0])
    t.put(rescale(t, t.node("Mul", [difference, difference]), np.asarray([factor]), t.result()))


def exact_prelu(t: Translation) -> None:
    """PRELU: what is below 0 times the slope, with a multiplier of its own; of int16 with slopes of int8."""
    eight_bits(t, 0, wide=True)
    x, slope, out = t.tensor(0), t.tensor(1), t.result()
    if slope.dtype not in EIGHT_BITS or slope.scale.size != 1:
        raise Unsupported(f"its slopes are {slope.dtype} with {slope.scale.size} scales")
    value = centred(t, 0)
    above = rescale_to(t, value, *_multiplier(x.scale[0] / out.scale[0]), out.dtype, out.zero)
    product = t.node("Mul", [value, centred(t, 1)])
    below = rescale_to(t, product, *_multiplier(x.scale[0] * slope.scale[0] / out.scale[0]), out.dtype, out.zero)
    positive = t.node("GreaterOrEqual", [value, t.constant("zero", 0, np.int32)])
    t.put(t.node("Where", [positive, above, below]))


def _multiplier(scale: np.float32) -> tuple[Array, Array]:
    return multipliers(np.asarray([float(scale)]))


def exact_product(t: Translation) -> None:
    """Append MUL in integers."""
    eight_bits(t, 0, 1, wide=True)
    product = t.node("Mul", [centred(t, 0), centred(t, 1)])
    factor = t.tensor(0).scale * t.tensor(1).scale / t.result().scale  # of float32
    t.put(rescale(t, product, factor.astype(np.float64), t.result()))


def scaling(scale: float) -> tuple[int, int]:
    """Return a scale as a multiplier and an exponent."""
    (by,), (shift,) = multipliers(np.asarray([scale]))
    return int(by), -1 - int(shift)


def exact_quotient(t: Translation) -> None:
    """DIV: the reciprocal of the divisor with 31 bits, times the dividend, then to the grid of the result."""
    eight_bits(t, 0, 1, wide=True)
    a, b, out = t.tensor(0), t.tensor(1), t.result()
    if a.dtype != b.dtype or a.dtype != out.dtype:
        raise Unsupported(f"its operands are {a.dtype} and {b.dtype}, its result {out.dtype}")
    if b.data is not None and (b.data == b.zero).any():
        raise Unsupported("a divisor is 0, which LiteRT refuses when the model runs")
    by, exponent = scaling(float(a.scale[0] / (b.scale[0] * out.scale[0])))  # of float32
    kind = np.iinfo(b.dtype)
    bounds = (kind.min, kind.max) if b.data is None else (b.data.min(), b.data.max())
    furthest = max(abs(int(bound) - b.zero) for bound in bounds)
    if not furthest.bit_length() - 1 <= exponent <= (15 if out.dtype == np.int16 else 23):
        raise Unsupported(
            f"its quotients are scaled by 2^{exponent}; for divisors up to {furthest}, "
            "LiteRT's kernel shifts numbers by more bits than they have"
        )
    low, high = limits(out, t.op.option("FusedActivationFunction"))
    zeros = [a.zero, b.zero, out.zero]
    node = t.node(
        "FixedQuotient", [t.stored(0), t.stored(1)], domain=OWN,
        zero_points=zeros, multiplier=by, exponent=exponent, low=low, high=max(low, high),
    )  # fmt: skip
    t.put(node)


INTEGERS = ("int8", "uint8", "int16")


def exact_quantize(t: Translation) -> None:
    """QUANTIZE: of float32, rounded with ties away from zero, or of integers."""
    x, out = t.tensor(0), t.result()
    if x.dtype != np.float32:
        t.put(requantised(t))
        return
    if out.dtype.name not in INTEGERS or out.scale.size != 1:
        raise Unsupported(f"its output is {out.dtype} with {out.scale.size} scales")
    scaled = t.node("Div", [t.stored(0), t.constant("scale", out.scale[0], np.float32)])
    t.put(t.node("RoundedSteps", [scaled], domain=OWN, zero_point=out.zero, **kept_of(out)))


def exact_extreme(kind: str) -> Callable[[Translation], None]:
    """MAXIMUM, MINIMUM: of the integers as they are stored."""

    def translate(t: Translation) -> None:
        if not t.same_grid(0, 1):
            raise Unsupported("its inputs and its output stand on different grids, which LiteRT does not heed")
        t.put(t.node(kind, [t.stored(0), t.stored(1)]))

    return translate


def exact_hard_swish(t: Translation, x: Array) -> Array:
    """HARD_SWISH: x * relu6(x + 3) / 6 of integers less their zero point, in fixed point of 16 bits."""
    source, out = t.tensor(0), t.result()
    fine = np.float32(1 / 128) * source.scale[0]
    out_by, out_exponent = _of_16_bits(float(fine / out.scale[0]))
    by, exponent = _of_16_bits(float(fine / (np.float32(3) / np.float32(32768))))
    if out_exponent > 0:
        raise Unsupported("its output has a finer scale than LiteRT takes")
    hires = x * 128
    preshift = _product_of_16_bits(hires, out_by)
    share = _saturated(hires << max(exponent - 1, 0))
    share = _product_of_16_bits(share, by)
    share = _saturated(share * 2) if exponent > 0 else _divided_by_power(share, -exponent)
    share = (share + (1 << 15)) >> 1
    product = share * preshift
    steps = np.sign(product) * (np.abs(product) >> 15)  # towards zero
    bounds = np.iinfo(out.dtype)
    results: Array = np.clip(_divided_by_power(steps, -out_exponent) + out.zero, bounds.min, bounds.max)
    return results


def _of_16_bits(scale: float) -> tuple[int, int]:
    """Return a multiplier of 15 bits behind the point, and an exponent."""
    (by,), (shift,) = multipliers(np.asarray([scale]))
    exponent = -1 - int(shift)
    rounded = (int(by) + (1 << 15)) >> 16 if int(by) < 2**31 - 1 - (1 << 15) else 2**15 - 1
    return rounded, exponent


def _product_of_16_bits(values: Array, by: int) -> Array:
    return (values * by + (1 << 14)) >> 15


def _saturated(values: Array) -> Array:
    return np.clip(values, -(2**15), 2**15 - 1)


def _divided_by_power(values: Array, bits: int) -> Array:
    """Return values / 2^bits, ties away from zero."""
    mask = (1 << bits) - 1
    found: Array = (values >> bits) + ((values & mask) > (mask >> 1) + (values < 0))
    return found


INT32 = np.dtype(np.int32)


def is_wide(t: Translation) -> bool:
    """Whether the operator at work is one of int16 around 0."""
    tensors = t.tensor(0), t.result()
    return all(tensor.dtype == np.int16 and tensor.scale.size == 1 and not tensor.zero for tensor in tensors)


def number(t: Translation, value: int, stem: str = "number") -> str:
    """Add a constant of int32."""
    return t.constant(stem, value, np.int32)


def _shifted(t: Translation, value: str, bits: int, most: int) -> str:
    """Return int32 numbers of at most so much, shifted to the right: divided, rounded down."""
    more = -(-most // (1 << bits))
    moved = t.node("Add", [value, number(t, more << bits)])
    return t.node("Sub", [t.node("Div", [moved, number(t, 1 << bits)]), number(t, more)])


def looked_up(t: Translation, value: str, points: Array) -> str:
    """Return the table's results for numbers of 16 bits."""
    moved = t.node("Add", [value, number(t, 2**15)])
    index = t.node("Div", [moved, number(t, 128)])
    offset = t.node("Sub", [moved, t.node("Mul", [index, number(t, 128)])])
    base = t.node("Gather", [t.constant("table", points), index])
    slopes = np.append(np.diff(points), 0).astype(np.int16).astype(np.int32)
    slope = t.node("Gather", [t.constant("slopes", slopes), index])
    rise = t.node("Add", [t.node("Mul", [slope, offset]), number(t, 64)])
    return t.node("Add", [base, _shifted(t, rise, 7, 2**23)])


def interpolated(function: Function) -> Translate:
    """A function of real numbers of int16, its table in float32 (LUTPopulateInt16)."""
    return lambda t: _interpolate(t, function)


def _interpolate(t: Translation, function: Function) -> None:
    single, out = np.float32, t.result()
    least, most = (t.tensor(0).scale[0] * single(bound) for bound in (LOW, HIGH))
    bottom, top = (out.scale[0] * single(bound) for bound in (LOW, HIGH))
    step, unit = (most - least) / single(STEPS), single(2**16) / (top - bottom)
    at = least + np.arange(STEPS, dtype=single) * step
    after = least + np.arange(1, STEPS + 1, dtype=single) * step

    def of(inputs: Array) -> Array:
        made: Array = np.clip(function(t, inputs.astype(np.float64)), -3e38, 3e38).astype(single)
        return made

    with np.errstate(over="ignore"):
        value, middle, behind = (of(inputs) * unit for inputs in (at, at + step / single(2), after))
        bias = away((away((behind + away(value)) / single(2)) - away(middle)) / single(2))
        points = np.append(away(value) - bias, away(of(np.asarray([most])) * unit))
    table = np.clip(np.nan_to_num(points), LOW, HIGH).astype(np.int32)
    t.put(t.node("Cast", [looked_up(t, widened(t, t.stored(0)), table)], to=onnx.TensorProto.INT16))


def _argument(t: Translation, most: int) -> str:
    """Return the input in steps of 1 / (3 * 4096); a scale of 2^-12 to 2^(most - 12) is no multiplication there."""
    scale = float(t.tensor(0).scale[0])
    exponent = math.log2(scale)
    left = 12 + round(exponent)
    x = widened(t, t.stored(0))
    if abs(exponent - round(exponent)) < 1e-3 and 0 <= left <= most:
        return t.node("Mul", [x, number(t, 3 << left)])
    bits, multiplier = 0, scale * 4096.0 * 3.0
    while multiplier <= 32767.0 / 2.0 and bits <= 30:
        bits, multiplier = bits + 1, multiplier * 2
    if bits > 16 or multiplier > 32767:
        raise Unsupported(f"its input has a scale of {scale:.3g}")
    product = t.node("Mul", [x, number(t, int(multiplier))])
    rounded = t.node("Add", [product, number(t, (1 << bits) >> 1)])
    return _shifted(t, rounded, bits, 2**30)


def _between(t: Translation, x: str, bits: int) -> str:
    """Return the sigmoid of the argument's absolute value, with `bits` more bits than its table has."""
    absolute = t.node("Abs", [x])
    index = t.node("Div", [absolute, number(t, 1 << bits)])
    rest = t.node("Sub", [absolute, t.node("Mul", [index, number(t, 1 << bits)])])
    inside = clamped(t, index, 0, 254)
    base = t.node("Gather", [t.constant("table", SIGMOIDS), inside])
    rise = t.node("Gather", [t.constant("slopes", np.append(np.diff(SIGMOIDS), 0), np.int32), inside])
    line = t.node("Add", [t.node("Mul", [base, number(t, 1 << bits)]), t.node("Mul", [rest, rise])])
    most = 0x7FFF << 10 if bits == 9 else 0xFFFF << 8
    far = t.node("GreaterOrEqual", [index, number(t, 255)])
    return t.node("Where", [far, number(t, most), line])


def _signed(t: Translation, x: str, above: str, below: str) -> str:
    return t.node("Where", [t.node("GreaterOrEqual", [x, number(t, 0)]), above, below])


def wide_logistic(t: Translation) -> None:
    """LOGISTIC, by the table of sigmoid(i / 24)."""
    x = _argument(t, 0)
    result = _between(t, x, 9)
    above = t.node("Add", [result, number(t, 1 << 9)])
    below = t.node("Sub", [number(t, (1 << 25) + (1 << 9) - 1), result])
    steps = t.node("Div", [_signed(t, x, above, below), number(t, 1 << 10)])
    t.put(t.node("Cast", [steps], to=onnx.TensorProto.INT16))


def wide_tanh(t: Translation) -> None:
    """TANH, as twice the sigmoid of twice the argument, less 1."""
    x = _argument(t, 1)
    result = _between(t, x, 8)
    above = t.node("Sub", [result, number(t, (1 << 23) - (1 << 7))])
    below = t.node("Sub", [number(t, (1 << 23) + (1 << 7) - 1), result])
    t.put(t.node("Cast", [_shifted(t, _signed(t, x, above, below), 8, 2**24)], to=onnx.TensorProto.INT16))


FINE = 20  # bits behind the point of a reciprocal of a root


def table(t: Translation, results: Array) -> None:
    """Make the output one of 256 results, by the value of the input."""
    data = t.constant("table", results, t.result().dtype)
    to = helper.np_dtype_to_tensor_dtype(t.result().dtype)
    t.put(t.node("Table", [t.stored(0), data], domain=OWN, to=to))


def by_table(results: Function) -> Translate:
    """An operator of one 8-bit input: its results for each of the 256, from the integers less their zero point."""

    def translate(t: Translation) -> None:
        eight_bits(t, 0)
        bounds, point = np.iinfo(t.tensor(0).dtype), int(t.tensor(0).zero_point[0])
        table(t, results(t, np.arange(bounds.min, bounds.max + 1, dtype=np.int64) - point))

    return translate


def _ratio(t: Translation) -> float:
    return float(t.tensor(0).scale[0] / t.result().scale[0])  # of float32


def _clamped(t: Translation, steps: Array, activation: int = 0) -> Array:
    low, high = limits(t.result(), activation)
    results: Array = np.clip(steps + int(t.result().zero_point[0]), low, max(low, high))
    return results


def linear(activation: int) -> Function:
    """Append RELU, RELU6, RELU_N1_TO_1."""
    return lambda t, x: _clamped(t, rescaled(x, _ratio(t)), activation)


def from_0_to_1(t: Translation, x: Array) -> Array:
    """Append RELU_0_TO_1."""
    low, high = between(t.result(), 0.0, 1.0)
    made: Array = np.clip(rescaled(x, _ratio(t)) + t.result().zero, low, max(low, high))
    return made


def negative(t: Translation, x: Array) -> Array:
    """NEG: of the integers as they are stored; that of the least one is itself."""
    if t.tensor(0).zero or not t.same_grid(0):
        raise Unsupported("its numbers stand on two grids, or on one not around 0, which LiteRT does not heed")
    return -x


def wide_relu(t: Translation) -> None:
    """RELU, RELU6, RELU_N1_TO_1 of int16."""
    out = t.result()
    low, high = limits(out, getattr(tflite.ActivationFunctionType, t.op.kind))
    by, shifts = multipliers(np.asarray([_ratio(t)]))
    t.put(rescale_to(t, centred(t, 0), by, shifts, out.dtype, out.zero, (low, high)))


def wide_leaky_relu(t: Translation) -> None:
    """LEAKY_RELU of int16."""
    x, out = centred(t, 0), t.result()
    slope = float(t.tensor(0).scale[0] * np.float32(t.op.option("Alpha", 0.0)) / out.scale[0])
    above, below = (
        rescale_to(t, x, *multipliers(np.asarray([factor])), out.dtype, out.zero) for factor in (_ratio(t), slope)
    )
    positive = t.node("GreaterOrEqual", [x, t.constant("zero", 0, np.int32)])
    t.put(t.node("Where", [positive, above, below]))


def exact_leaky_relu(t: Translation, x: Array) -> Array:
    """Append LEAKY_RELU in integers."""
    slope = float(t.tensor(0).scale[0] * np.float32(t.op.option("Alpha", 0.0)) / t.result().scale[0])
    return _clamped(t, np.where(x >= 0, rescaled(x, _ratio(t)), rescaled(x, slope)))


def absolute(t: Translation, x: Array) -> Array:
    """Append ABS."""
    return _clamped(t, rescaled(np.abs(x), _ratio(t)))


def single(function: Function) -> Function:
    """A function of real numbers in float32, its results rounded with ties away from zero (LUTPopulate)."""

    def results(t: Translation, x: Array) -> Array:
        real = (x.astype(np.float32) * t.tensor(0).scale[0]).astype(np.float64)
        made = function(t, real).astype(np.float32) * (np.float32(1) / t.result().scale[0])
        bounds = np.clip(np.nan_to_num(made.astype(np.float64)), -(2.0**31), 2.0**31)
        return _clamped(t, (np.sign(bounds) * np.floor(np.abs(bounds) + 0.5)).astype(np.int64))

    return results


def sigmoid(_t: Translation, x: Array) -> Array:
    """Each of its steps is one of float32."""
    one, power = np.float32(1), np.exp(np.minimum(-x, 88.0)).astype(np.float32)
    made: Array = one / (one + power)
    return made


def root(t: Translation, x: Array) -> Array:
    """SQRT, its results cut off towards zero; LiteRT stops at numbers below 0, which have a root of 0 here."""
    real = np.maximum(x, 0).astype(np.float32) * t.tensor(0).scale[0]
    return _clamped(t, (np.sqrt(real) / t.result().scale[0]).astype(np.int64))


def wide_root(t: Translation) -> None:
    """SQRT of int16, in float32."""
    out = t.result()
    real = t.node("Cast", [t.node("Relu", [centred(t, 0)])], to=onnx.TensorProto.FLOAT)
    scaled = t.node("Mul", [real, t.constant("scale", t.tensor(0).scale[0], np.float32)])
    steps = t.node("Div", [t.node("Sqrt", [scaled]), t.constant("scale", out.scale[0], np.float32)])
    inside = t.clip(steps, 0.0, float(np.iinfo(out.dtype).max))
    t.put(t.node("Cast", [inside], to=onnx.TensorProto.INT16))


def wide_absolute(t: Translation) -> None:
    """ABS of int16."""
    x, out = centred(t, 0), t.result()
    t.put(rescale_to(t, t.node("Abs", [x]), *multipliers(np.asarray([_ratio(t)])), out.dtype, out.zero))


def logarithm(t: Translation, x: Array) -> Array:
    """LOG: of what is not positive the least number of the output."""
    out = t.result()
    least = (np.iinfo(out.dtype).min - out.zero) * float(out.scale[0])
    return np.where(x > 0, np.log(np.maximum(x, 1e-300)), least)


def gaussian(t: Translation, x: Array) -> Array:
    """GELU, by erfc, or by tanh where that is near enough to its user."""
    if t.op.option("Approximate", False):
        made: Array = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return made
    of_each = np.vectorize(lambda number: 0.5 * number * math.erfc(-number / math.sqrt(2)))
    return np.asarray(of_each(x), np.float64)


def inverse_root_or_most(t: Translation, x: Array) -> Array:
    """RSQRT of int16: of 0 the largest number; LiteRT stops at numbers below 0."""
    most = float(np.float32(2**15 - 1) * t.result().scale[0])
    return np.where(x > 0, 1 / np.sqrt(np.maximum(x, 1e-30)), most)


def exact_inverse_root(t: Translation, numbers: Array) -> Array:
    """RSQRT of int8: of 0 the largest number; LiteRT stops at numbers below 0."""
    x, out = t.tensor(0), t.result()
    if out.dtype != np.int8:
        raise Unsupported(f"it is of {out.dtype}, which LiteRT does not have")
    scale = 1 / float(np.sqrt(x.scale[0]) * out.scale[0])  # the product is one of float32
    (by,), (shift,) = multipliers(np.asarray([scale]))
    made = []
    for number in numbers.tolist():
        if number <= 0:
            made.append(np.iinfo(out.dtype).max - out.zero)
            continue
        multiplier, exponent = inverse_root(number)
        fine = scaled_by(np.asarray(1), multiplier, exponent + FINE)
        made.append(int(scaled_by(fine, int(by), -1 - int(shift) - FINE)))
    return _clamped(t, np.asarray(made, np.int64))
