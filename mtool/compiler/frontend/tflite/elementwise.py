"""Elementwise operators."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from mtool.base import plural
from mtool.compiler.frontend.tflite.fixed_point import (
    SIGMOIDS,
    between,
    divided,
    inverse_root,
    limits,
    narrowed,
    rescaled,
    scaled_by,
)
from mtool.compiler.frontend.tflite.rescaling import (
    EIGHT_BITS,
    centred,
    clamp_to,
    eight_bits,
    mean_of,
    requantized,
    rescale,
    rescale_to,
)
from mtool.compiler.frontend.tflite.translation import GRIDS, Translate, Translation
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.interpolation import HIGH, LOW, away, with_lines
from mtool.compiler.kernels.scaling import fixed_multiplier
from mtool.compiler.operators.problems import Unsupported

Function = Callable[[Translation, Array], Array]
"""A function of the input's numbers."""


def plain(onnx: str, inputs: int = 1, *, is_stored: bool = False) -> Translate:
    """A builtin that is one ONNX operator on its real inputs and a fused activation, or on the stored elements."""

    def translate(t: Translation) -> None:
        result = t(onnx, *[(t.stored if is_stored else t.real)(index) for index in range(inputs)])
        if is_stored:
            t.put(result)
        else:
            t.store(t.activated(result))

    return translate


def composed(build: Callable[..., str], inputs: int = 1) -> Translate:
    """An operator that `build` composes from several ONNX operators on its real inputs."""

    def translate(t: Translation) -> None:
        t.store(build(t, *[t.real(index) for index in range(inputs)]))

    return translate


def floor_div(t: Translation) -> None:
    """Append FLOOR_DIV."""
    a, b = t.real(0), t.real(1)
    if t.tensor(0).dtype.kind == "f" or t.tensor(0).is_quantized:
        t.store(t("Floor", t("Div", a, b)))
        return
    remainder = t("Mod", a, b)  # with the sign of the divisor; the rest is divisible
    t.put(t("Div", t("Sub", a, remainder), b))


def floor_mod(t: Translation, a: str, b: str) -> str:
    """FLOOR_MOD."""
    if t.tensor(0).dtype.kind != "f":
        return t("Mod", a, b)
    return t("Sub", a, t("Mul", t("Floor", t("Div", a, b)), b))


def add_n(t: Translation) -> None:
    """Append ADD_N."""
    total = t.real(0)
    for index in range(1, len(t.op.inputs)):
        total = t("Add", total, t.real(index))
    t.store(total)


def select(t: Translation) -> None:
    """SELECT, SELECT_V2; SELECT's condition may have one dimension, which belongs to the first axis."""
    condition, x = t.shape(0), t.shape(1)
    name = t.stored(0)
    if t.op.kind == "SELECT" and len(condition) == 1 and len(x) > 1:
        name = t("Reshape", name, (*condition, *[1] * (len(x) - 1)))
    t.move(lambda *values: t("Where", name, *values), 1, 2)


def prelu(t: Translation, x: str, slope: str) -> str:
    """PRELU."""
    if t.tensor(0).dtype == np.int16 and t.tensor(1).dtype != np.int8:
        raise Unsupported(f"its slopes are {t.tensor(1).dtype}, which LiteRT reads as int8")
    return t("PRelu", x, slope)


def requantize(t: Translation) -> None:
    """QUANTIZE, DEQUANTIZE: the same numbers with another quantization, or as floats."""
    if t.op.kind == "DEQUANTIZE" and not t.tensor(0).is_quantized and t.tensor(0).dtype != np.float16:
        raise Unsupported(f"its input is {t.tensor(0).dtype}, which is not quantized")
    if t.tensor(0).is_quantized and t.result().is_quantized and t.result().dtype == np.int32:
        t.put(requantized(t))  # QuantizeLinear has no int32
    else:
        t.store(t.real(0))


def atan2(t: Translation, y: str, x: str) -> str:
    """ATAN2: the angle of (x, y), from that of y / x; LiteRT ignores the operands' shapes."""
    if t.shape(0) != t.shape(1):
        raise Unsupported(f"its operands are {list(t.shape(0))} and {list(t.shape(1))}; LiteRT needs equal shapes")
    angle, half = t("Atan", t("Div", y, x)), t.constant("half", np.pi, np.float32)
    left = t("Where", t("GreaterOrEqual", y, 0.0), half, t("Neg", half))
    beside = t("Add", angle, t("Where", t("Less", x, 0.0), left, 0.0))
    above = t("Mul", t("Sign", y), np.pi / 2)
    return t("Where", t("Equal", x, 0.0), above, beside)


def right_shift(t: Translation) -> None:
    """RIGHT_SHIFT: an arithmetic shift of signed integers; larger shifts than the type has bits are clamped."""
    kind, x = t.tensor(0).dtype, t.stored(0)
    if kind.kind not in "iu" or t.tensor(1).dtype != kind:
        raise Unsupported(f"its inputs are {kind} and {t.tensor(1).dtype}; expected the same integer type")
    unsigned = f"uint{8 * kind.itemsize}"
    bits = t.cast(t("Clip", t.stored(1), kind.type(0), kind.type(8 * kind.itemsize - 1)), unsigned)

    def shifted(value: str) -> str:
        return t("BitShift", t.cast(value, unsigned), bits, direction="RIGHT")

    if kind.kind == "u":
        t.put(shifted(x))
        return
    above = t.cast(shifted(x), kind)
    below = t("BitwiseNot", t.cast(shifted(t("BitwiseNot", x)), kind))
    t.put(t("Where", t("Less", x, kind.type(0)), below, above))


def stablehlo_and(t: Translation) -> None:
    """STABLEHLO_AND: logical for booleans, bitwise for integers."""
    plain("And" if t.result().dtype == np.bool_ else "BitwiseAnd", 2, is_stored=True)(t)


def fake_quant(t: Translation, x: str) -> str:
    """FAKE_QUANT: floats rounded to a grid of `num_bits` that contains 0; LiteRT ignores `narrow_range`."""
    single = np.float32
    low, high, bits = single(t.op.option("Min")), single(t.op.option("Max")), t.op.option("NumBits")
    if not 2 <= bits <= 16 or not low <= 0 <= high or not low < high:
        raise Unsupported(f"its range {low} to {high} in {bits} bits is not valid")
    most = single(2**bits - 1)
    step = (high - low) / most
    point = single(np.clip(np.floor(-low / step + single(0.5)), 0, most))
    bottom, top = -point * step, (most - point) * step
    scaled = t("Mul", t("Sub", t("Clip", x, bottom, top), bottom), single(1) / step)
    return t("Add", t("Mul", t("Floor", t("Add", scaled, 0.5)), step), bottom)


SUM_SHIFT = 20  # the left shift of a sum's operands before they are scaled
WIDE_SUM_SHIFT = 15  # the same for int16
DIFFERENCE_SHIFT = 7  # the same for a squared difference


def exact_sum(kind: str) -> Translate:
    """ADD, SUB: both operands in steps of twice the larger scale, shifted left by 20 bits, int16 by 15 bits."""

    def translate(t: Translation) -> None:
        eight_bits(t, 0, 1, wide=True)
        wide = t.result().dtype == np.int16
        if wide and t.op.option("PotScaleInt16", False):
            exponents = [power_of_2(tensor.scale[0]) for tensor in (t.tensor(0), t.tensor(1), t.result())]
            if None not in exponents:
                _shifted_sum(t, kind, [number for number in exponents if number is not None])
                return
        left = WIDE_SUM_SHIFT if wide else SUM_SHIFT
        terms, unit = _on_one_grid(t, left)
        t.put(rescale(t, t(kind, *terms), unit / float(np.float32(1 << left) * t.result().scale[0]), t.result()))

    return translate


def _on_one_grid(t: Translation, left: int) -> tuple[list[str], float]:
    """Return both operands less their zero points in steps of twice the larger scale / 2^left, and twice that scale."""
    scales = [float(t.tensor(index).scale[0]) for index in (0, 1)]
    unit, terms = 2 * max(scales), []
    for index, scale in enumerate(scales):
        value, share = centred(t, index), scale / unit
        if share == 0.5 and left:  # half of an even number needs no rounding
            terms.append(t("Mul", value, 1 << (left - 1)))
        else:
            terms.append(rescale_to(t, t("Mul", value, 1 << left) if left else value, share))
    return terms, unit


def power_of_2(scale: np.float32) -> int | None:
    """Return the exponent of a scale that is (almost) a power of 2; None for others."""
    exponent = math.log2(float(scale))
    return round(exponent) if abs(exponent - round(exponent)) < 1e-3 else None


def _shifted_sum(t: Translation, kind: str, exponents: Sequence[int]) -> None:
    """ADD, SUB of int16 whose scales are powers of 2: one operand is shifted right, ties away from zero."""
    shifts = [exponents[2] - exponents[index] for index in (0, 1)]
    if min(shifts) != 0 or max(shifts) > 15:
        powers = ", ".join(f"2^{exponent}" for exponent in exponents)
        raise Unsupported(f"LiteRT does not support the scales of its operands and its result, {powers}")
    if kind == "Add" and t.shape(0) != t.shape(1):
        raise Unsupported("its operands differ in shape; with scales that are powers of 2, LiteRT needs equal ones")
    terms = [mean_of(t, centred(t, index), 1 << shift) for index, shift in enumerate(shifts)]
    t.put(t.cast(t("Clip", t(kind, *terms), *limits(t.result(), t.activation)), np.int16))


def exact_squared_difference(t: Translation) -> None:
    """SQUARED_DIFFERENCE: int8 is shifted left by 7 bits, int16 (TFLite Micro) is not."""
    eight_bits(t, 0, 1, wide=True)
    if t.result().dtype == np.uint8:
        raise Unsupported("uint8 is not supported by LiteRT or TFLite Micro")
    left = 0 if t.result().dtype == np.int16 else DIFFERENCE_SHIFT
    terms, unit = _on_one_grid(t, left)
    difference = t("Sub", *terms)
    factor = unit * unit / float(np.float32(1 << (2 * left)) * t.result().scale[0])
    t.put(rescale(t, t("Mul", difference, difference), factor, t.result()))


def exact_prelu(t: Translation) -> None:
    """PRELU: negative numbers are multiplied by the slope, with their own multiplier; int16 has int8 slopes."""
    eight_bits(t, 0, wide=True)
    slope = t.tensor(1)
    if slope.dtype not in EIGHT_BITS or slope.scale.size != 1:
        raise Unsupported(f"its slopes are {slope.dtype} with {plural.count(slope.scale.size, 'scale')}")
    _put_by_sign(t, t.tensor(0).scale[0] * slope.scale[0], lambda x: t("Mul", x, centred(t, 1)))


def _put_by_sign(t: Translation, slope: np.float32, below: Callable[[str], str] = lambda x: x) -> None:
    """Set the output: positive numbers and 0 unchanged, `below` of negative ones in steps of `slope`."""
    x, out = centred(t, 0), t.result()
    above = rescale_to(t, x, _ratio(t), out.dtype, out.zero)
    other = rescale_to(t, below(x), float(slope / out.scale[0]), out.dtype, out.zero)
    t.put(t("Where", t("GreaterOrEqual", x, 0), above, other))


def exact_product(t: Translation) -> None:
    """Append MUL in integers."""
    eight_bits(t, 0, 1, wide=True)
    product = t("Mul", centred(t, 0), centred(t, 1))
    factor = t.tensor(0).scale * t.tensor(1).scale / t.result().scale  # of float32
    t.put(rescale(t, product, factor.astype(np.float64), t.result()))


def exact_quotient(t: Translation) -> None:
    """DIV: the dividend times the divisor's 31-bit reciprocal, scaled to the result's grid."""
    eight_bits(t, 0, 1, wide=True)
    a, b, out = t.tensor(0), t.tensor(1), t.result()
    if a.dtype != b.dtype or a.dtype != out.dtype:
        raise Unsupported(f"its operands are {a.dtype} and {b.dtype}, its result {out.dtype}; expected one type")
    if b.data is not None and (b.data == b.zero).any():
        raise Unsupported("a constant divisor is 0")
    by, exponent = fixed_multiplier(float(a.scale[0] / (b.scale[0] * out.scale[0])))  # of float32
    kind = np.iinfo(b.dtype)
    bounds = (kind.min, kind.max) if b.data is None else (b.data.min(), b.data.max())
    furthest = max(abs(int(bound) - b.zero) for bound in bounds)
    if not furthest.bit_length() - 1 <= exponent <= (15 if out.dtype == np.int16 else 23):
        raise Unsupported(
            f"its quotients are scaled by 2^{exponent}; for divisors up to {furthest}, "
            "LiteRT's kernel shifts numbers by more bits than they have"
        )
    low, high = limits(out, t.activation)
    t.put(t(
        "FixedQuotient", t.stored(0), t.stored(1), zero_points=[a.zero, b.zero, out.zero], multiplier=by,
        exponent=exponent, low=low, high=max(low, high),
    ))  # fmt: skip


def exact_quantize(t: Translation) -> None:
    """QUANTIZE: of float32, rounded with ties away from zero, or of integers."""
    x, out = t.tensor(0), t.result()
    if x.dtype != np.float32:
        t.put(requantized(t))
        return
    if out.dtype.name not in GRIDS or out.scale.size != 1:
        raise Unsupported(f"its output is {out.dtype} with {plural.count(out.scale.size, 'scale')}")
    t.put(t("RoundedSteps", t("Div", t.stored(0), out.scale[0]), zero_point=out.zero, **clamp_to(out)))


def exact_extreme(kind: str) -> Translate:
    """MAXIMUM, MINIMUM of the stored integers."""

    def translate(t: Translation) -> None:
        if not t.same_grid(0, 1):
            raise Unsupported("its inputs and its output have different quantizations; LiteRT needs equal ones")
        t.put(t(kind, t.stored(0), t.stored(1)))

    return translate


def exact_hard_swish(t: Translation, x: Array) -> Array:
    """HARD_SWISH: x * relu6(x + 3) / 6 of integers less their zero point, in 16-bit fixed point."""
    out = t.result()
    fine = np.float32(1 / 128) * t.tensor(0).scale[0]
    out_by, out_exponent = fixed_multiplier(float(fine / out.scale[0]))
    by, exponent = fixed_multiplier(float(fine / (np.float32(3) / np.float32(32768))))
    if out_exponent > 0:
        raise Unsupported("the scale of its output is too small for LiteRT")

    def product(values: Array, multiplier: int) -> Array:
        return np.asarray((values * narrowed(multiplier) + (1 << 14)) >> 15)

    def saturated(values: Array) -> Array:
        return np.clip(values, -(2**15), 2**15 - 1)

    hires = x * 128
    share = product(saturated(hires << max(exponent - 1, 0)), by)
    share = saturated(share * 2) if exponent > 0 else divided(share, -exponent)
    whole = ((share + (1 << 15)) >> 1) * product(hires, out_by)
    steps = np.sign(whole) * (np.abs(whole) >> 15)  # towards zero
    return _clamped(t, divided(steps, -out_exponent))


def is_wide(t: Translation) -> bool:
    """Whether the current operator works on int16 with zero point 0."""
    tensors = t.tensor(0), t.result()
    return all(tensor.dtype == np.int16 and tensor.scale.size == 1 and not tensor.zero for tensor in tensors)


def _shifted(t: Translation, value: str, bits: int, most: int) -> str:
    """Return int32 numbers of at most `most`, shifted right: divided, rounded down."""
    more = -(-most // (1 << bits))
    return t("Sub", t("Div", t("Add", value, more << bits), 1 << bits), more)


def looked_up(t: Translation, value: str, points: Array) -> str:
    """Return the table's interpolated results for 16-bit numbers."""
    moved = t("Add", value, 2**15)
    index = t("Div", moved, 128)
    offset = t("Sub", moved, t("Mul", index, 128))
    base = t("Gather", t.constant("table", points), index)
    slopes = np.append(np.diff(points), 0).astype(np.int16).astype(np.int32)
    slope = t("Gather", t.constant("slopes", slopes), index)
    rise = t("Add", t("Mul", slope, offset), 64)
    return t("Add", base, _shifted(t, rise, 7, 2**23))


def interpolated(function: Function) -> Translate:
    """A function of real numbers for int16, with its table computed in float32 (LUTPopulateInt16)."""

    def translate(t: Translation) -> None:
        least, most = (t.tensor(0).scale[0] * np.float32(bound) for bound in (LOW, HIGH))
        bottom, top = (t.result().scale[0] * np.float32(bound) for bound in (LOW, HIGH))

        def of(inputs: Array) -> Array:
            result: Array = np.clip(function(t, inputs.astype(np.float64)), -3e38, 3e38).astype(np.float32)
            return result

        points = with_lines(of, least, most, np.float32(2**16) / (top - bottom))
        t.put(t.cast(looked_up(t, t.cast(t.stored(0), np.int32), points), np.int16))

    return translate


def _argument(t: Translation, most: int) -> str:
    """Return the input in steps of 1 / (3 * 4096); scales from 2^-12 to 2^(most - 12) need no multiplication."""
    scale, exponent = float(t.tensor(0).scale[0]), power_of_2(t.tensor(0).scale[0])
    x = t.cast(t.stored(0), np.int32)
    if exponent is not None and 0 <= 12 + exponent <= most:
        return t("Mul", x, 3 << (12 + exponent))
    bits, multiplier = 0, scale * 4096.0 * 3.0
    while multiplier <= 32767.0 / 2.0 and bits <= 30:
        bits, multiplier = bits + 1, multiplier * 2
    if bits > 16 or multiplier > 32767:
        raise Unsupported(f"the scale of its input, {scale:.3g}, is out of range")
    return _shifted(t, t("Add", t("Mul", x, int(multiplier)), (1 << bits) >> 1), bits, 2**30)


def _between(t: Translation, x: str, bits: int) -> str:
    """Return the sigmoid of the argument's absolute value, with `bits` more bits than its table has."""
    absolute = t("Abs", x)
    index = t("Div", absolute, 1 << bits)
    rest = t("Sub", absolute, t("Mul", index, 1 << bits))
    inside = t("Clip", index, 0, 254)
    base = t("Gather", t.constant("table", SIGMOIDS), inside)
    rise = t("Gather", t.constant("slopes", np.append(np.diff(SIGMOIDS), 0), np.int32), inside)
    line = t("Add", t("Mul", base, 1 << bits), t("Mul", rest, rise))
    most = 0x7FFF << 10 if bits == 9 else 0xFFFF << 8
    return t("Where", t("GreaterOrEqual", index, 255), most, line)


def wide_logistic(t: Translation) -> None:
    """LOGISTIC, by the table of sigmoid(i / 24)."""
    x = _argument(t, 0)
    result = _between(t, x, 9)
    above = t("Add", result, 1 << 9)
    below = t("Sub", (1 << 25) + (1 << 9) - 1, result)
    t.put(t.cast(t("Div", t("Where", t("GreaterOrEqual", x, 0), above, below), 1 << 10), np.int16))


def wide_tanh(t: Translation) -> None:
    """TANH, by 2 * sigmoid(2 * x) - 1."""
    x = _argument(t, 1)
    result = _between(t, x, 8)
    above = t("Sub", result, (1 << 23) - (1 << 7))
    below = t("Sub", (1 << 23) + (1 << 7) - 1, result)
    t.put(t.cast(_shifted(t, t("Where", t("GreaterOrEqual", x, 0), above, below), 8, 2**24), np.int16))


def by_table(results: Function) -> Translate:
    """An operator of one 8-bit input as a table of 256 results, computed from the integers less their zero point."""

    def translate(t: Translation) -> None:
        eight_bits(t, 0)
        bounds, dtype = np.iinfo(t.tensor(0).dtype), t.result().dtype
        values = np.arange(bounds.min, bounds.max + 1, dtype=np.int64) - t.tensor(0).zero
        t.put(t("Table", t.stored(0), t.constant("table", results(t, values), dtype), to=dtype))

    return translate


def _ratio(t: Translation) -> float:
    return float(t.tensor(0).scale[0] / t.result().scale[0])  # of float32


def _clamped(t: Translation, steps: Array, least: float = -math.inf, most: float = math.inf) -> Array:
    """Return steps as the output's integers, clamped to two real numbers."""
    low, high = between(t.result(), least, most)
    results: Array = np.clip(steps + t.result().zero, low, max(low, high))
    return results


def linear(least: float, most: float) -> Function:
    """RELU and similar operators: a clamp to two numbers."""
    return lambda t, x: _clamped(t, rescaled(x, _ratio(t)), least, most)


def wide_linear(least: float, most: float) -> Translate:
    """The same for int16."""
    return lambda t: t.put(
        rescale_to(t, centred(t, 0), _ratio(t), np.int16, t.result().zero, between(t.result(), least, most))
    )


def negative(t: Translation, x: Array) -> Array:
    """NEG of the stored integers; the smallest one stays as it is."""
    if t.tensor(0).zero or not t.same_grid(0):
        raise Unsupported("its input and its output need the same quantization, with zero point 0")
    return -x


def wide_leaky_relu(t: Translation) -> None:
    """LEAKY_RELU of int16."""
    _put_by_sign(t, t.tensor(0).scale[0] * np.float32(t.op.option("Alpha", 0.0)))


def exact_leaky_relu(t: Translation, x: Array) -> Array:
    """Append LEAKY_RELU in integers."""
    slope = float(t.tensor(0).scale[0] * np.float32(t.op.option("Alpha", 0.0)) / t.result().scale[0])
    return _clamped(t, np.where(x >= 0, rescaled(x, _ratio(t)), rescaled(x, slope)))


def absolute(t: Translation, x: Array) -> Array:
    """Append ABS."""
    return _clamped(t, rescaled(np.abs(x), _ratio(t)))


def wide_absolute(t: Translation) -> None:
    """ABS of int16."""
    t.put(rescale_to(t, t("Abs", centred(t, 0)), _ratio(t), np.int16, t.result().zero))


def single(function: Function) -> Function:
    """A function of real numbers, computed in float32, with ties rounded away from zero (LUTPopulate)."""

    def results(t: Translation, x: Array) -> Array:
        real = (x.astype(np.float32) * t.tensor(0).scale[0]).astype(np.float64)
        steps = function(t, real).astype(np.float32) * (np.float32(1) / t.result().scale[0])
        return _clamped(t, away(np.clip(np.nan_to_num(steps.astype(np.float64)), -(2.0**31), 2.0**31)).astype(np.int64))

    return results


def sigmoid(_t: Translation, x: Array) -> Array:
    """The sigmoid, with every step in float32."""
    one, power = np.float32(1), np.exp(np.minimum(-x, 88.0)).astype(np.float32)
    result: Array = one / (one + power)
    return result


def root(t: Translation, x: Array) -> Array:
    """SQRT, truncated towards zero; of negative numbers, on which LiteRT fails, it is 0."""
    real = np.maximum(x, 0).astype(np.float32) * t.tensor(0).scale[0]
    return _clamped(t, (np.sqrt(real) / t.result().scale[0]).astype(np.int64))


def wide_root(t: Translation) -> None:
    """SQRT of int16, in float32."""
    real = t("Mul", t.cast(t("Relu", centred(t, 0)), np.float32), t.tensor(0).scale[0])
    steps = t("Div", t("Sqrt", real), t.result().scale[0])
    t.put(t.cast(t("Clip", steps, 0.0, float(np.iinfo(np.int16).max)), np.int16))


def logarithm(t: Translation, x: Array) -> Array:
    """LOG; of numbers that are not positive it is the smallest number of the output."""
    out = t.result()
    least = (np.iinfo(out.dtype).min - out.zero) * float(out.scale[0])
    return np.where(x > 0, np.log(np.maximum(x, 1e-300)), least)


def gaussian(t: Translation, x: Array) -> Array:
    """GELU, by erfc, or by tanh with the option `approximate`."""
    if t.op.option("Approximate", False):
        result: Array = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return result
    of_each = np.vectorize(lambda number: 0.5 * number * math.erfc(-number / math.sqrt(2)))
    return np.asarray(of_each(x), np.float64)


def inverse_root_or_most(t: Translation, x: Array) -> Array:
    """RSQRT of int16: the largest number for 0; LiteRT fails on negative numbers."""
    most = float(np.float32(2**15 - 1) * t.result().scale[0])
    return np.where(x > 0, 1 / np.sqrt(np.maximum(x, 1e-30)), most)


def exact_inverse_root(t: Translation, numbers: Array) -> Array:
    """RSQRT of int8: the largest number for 0; LiteRT fails on negative numbers."""
    out, fine = t.result(), 20  # fractional bits of an inverse square root
    if out.dtype != np.int8:
        raise Unsupported(f"its type {out.dtype} is not supported by LiteRT")
    by, shift = fixed_multiplier(1 / float(np.sqrt(t.tensor(0).scale[0]) * out.scale[0]))  # the product is of float32
    result = np.full(numbers.shape, np.iinfo(out.dtype).max - out.zero)
    for index in np.flatnonzero(numbers > 0):
        multiplier, exponent = inverse_root(int(numbers[index]))
        result[index] = scaled_by(scaled_by(np.asarray(1), multiplier, exponent + fine), by, shift - fine)
    return _clamped(t, result)
