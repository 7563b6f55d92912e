"""The scalar functions: for each its meaning (NumPy) and its C text, side by side.

Floating-point C is written for float32 (`expf`, `1.0f`), in which the 16-bit floats are computed too, and
for double. The `mt_` functions are inline functions of crt/include/mt_math.h, mt_scalar.h and mt_float.h; of mt_half.h
for the types of 16 bits.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir.expr import Expr
from mtool.compiler.ir.types import DType

# C text of a number: constants, storage, and how tightly a piece binds.


ATOM, UNARY, MUL, ADD, SHIFT, COMPARE, AND, OR, SELECT = range(9)  # precedence of C, tightest first


@frozen
class Text:
    """A piece of C and how tightly its outermost operator binds.

    condition: the same in any integer type, if only compared with 0; None: `c`.
    uncast: the same number as int32, without the cast to a smaller type in `c`; empty: `c` has no such cast.
    """

    c: str
    level: int = ATOM
    condition: "Text | None" = None
    uncast: str = ""

    def at(self, level: int) -> str:
        """Return the text, in parentheses unless it binds at least as tightly as `level`."""
        return self.c if self.level <= level else f"({self.c})"

    def truth(self, level: int) -> str:
        """Return the condition that it is not 0, in parentheses as for `at`."""
        return (self.condition or self).at(level)


def within(dtype: DType, int32: str) -> Text:
    """Return a call whose int32 result is within a smaller type's limits, as a number of that type."""
    return Text(f"({dtype.c}){int32}", UNARY, uncast=int32)


def boolean(condition: str, level: int) -> Text:
    """Return a condition as the number 0 or 1 of a bool."""
    plain = Text(condition, level)
    return Text(f"(uint8_t){plain.at(UNARY)}", UNARY, plain)


def literal(value: float | int | bool, dtype: DType) -> Text:
    """Return a constant as C; floats round-trip exactly."""
    if dtype.is_float:
        suffix = "" if dtype is DType.FLOAT64 else "f"
        if math.isnan(value):
            return Text("NAN")
        if math.isinf(value):
            return Text("INFINITY") if value > 0 else Text("-INFINITY", UNARY)
        kind = np.float64 if dtype is DType.FLOAT64 else np.float32
        digits = str(kind(dtype.numpy.type(value)))
        digits = digits if any(mark in digits for mark in ".en") else digits + ".0"
        return Text(digits + suffix, UNARY if value < 0 or digits[0] == "-" else ATOM)
    number = int(value)
    if dtype.label == "int64":
        return Text("INT64_MIN") if number == -(2**63) else Text(f"INT64_C({number})")
    if dtype.label == "uint64":
        return Text(f"UINT64_C({number})")
    if dtype.label == "uint32":
        return Text(f"{number}u")
    if number == -(2**31):
        return Text("INT32_MIN")
    return Text(str(number), UNARY if number < 0 else ATOM)


def half(dtype: DType) -> str:
    """Return the prefix of a type's functions in mt_half.h and mt_float8.h."""
    return {DType.FLOAT16: "mt_f16", DType.BFLOAT16: "mt_bf16"}.get(dtype, f"mt_{dtype.label}")


def loaded(c: str, dtype: DType) -> str:
    """Return the C of an element of storage as a number to compute with."""
    return f"{half(dtype)}_load({c})" if dtype.is_half else c


def stored(c: str, dtype: DType) -> str:
    """Return the C that converts a number for storage."""
    return f"{half(dtype)}_store({c})" if dtype.is_half else c


def wrap(expr: Expr, text: Text) -> Text:
    """Convert C's promoted result back to a small integer type."""
    if expr.dtype.is_nibble:
        return nibble(expr.dtype, text)
    return Text(f"({expr.dtype.c}){text.at(UNARY)}", UNARY) if expr.dtype.is_integer and expr.dtype.size < 4 else text


def nibble(dtype: DType, text: Text) -> Text:
    """Keep the low 4 or 2 bits, with their sign."""
    mask, sign = (1 << dtype.bits) - 1, 1 << (dtype.bits - 1)
    if dtype.kind == "uint":
        return Text(f"(uint8_t)({text.at(MUL)} & {mask})", UNARY)
    return Text(f"(int8_t)((({text.at(MUL)} & {mask}) ^ {sign}) - {sign})", UNARY)


# A scalar function, and the forms that most of them have.


A = Any  # arrays of any shape; NumPy's own rules apply


@frozen
class Function:
    """A scalar function: `meaning(expr, *arrays)` and `text(expr, *texts)`."""

    meaning: Callable[..., A]
    text: Callable[..., Text]


def infix(symbol: str, level: int, meaning: Callable[..., A]) -> Function:
    """Return an operator of C that binds at `level`; int32 and int64 wrap around."""

    def text(expr: Expr, left: Text, right: Text) -> Text:
        dtype = expr.dtype
        if dtype.kind == "int" and dtype.size >= 4 and expr.value != "index":  # wraps, as ONNX does; C's would not
            a, b = (_unsigned(operand.at(UNARY), dtype) for operand in (left, right))
            return Text(f"({dtype.c})({a} {symbol} {b})", UNARY)
        if right.c[:1] == "-" and right.c[1:].isdigit() and level == ADD:
            flipped = {"+": "-", "-": "+"}[symbol]
            return wrap(expr, Text(f"{left.at(level)} {flipped} {right.c[1:]}", level))
        return wrap(expr, Text(f"{left.at(level)} {symbol} {right.at(level - 1)}", level))

    return Function(lambda expr, a, b: meaning(a, b).astype(expr.dtype.numpy), text)


def _unsigned(c: str, dtype: DType) -> str:
    """Return an operand as unsigned, of a signed type's size; a cast to that type is dropped: the bits are equal."""
    plain = c.removeprefix(f"({dtype.c})")
    return plain if plain.startswith(f"((u{dtype.c})") else f"(u{dtype.c}){plain}"


def compare(symbol: str, meaning: Callable[..., A]) -> Function:
    """Return a comparison: a bool of two numbers."""
    return Function(
        lambda expr, a, b: meaning(a, b),
        lambda expr, a, b: boolean(f"{a.at(ADD)} {symbol} {b.at(ADD)}", COMPARE),
    )


def called(suffix: Callable[[DType], str], name: str, meaning: Callable[..., A]) -> Function:
    """Return a C function that has a name for each type, which ends in a suffix."""

    def text(expr: Expr, *args: Text) -> Text:
        return Text(f"{name}{suffix(expr.dtype)}({', '.join(arg.c for arg in args)})")

    return Function(lambda expr, *args: np.asarray(meaning(*args)).astype(expr.dtype.numpy), text)


libm = functools.partial(called, lambda dtype: "" if dtype is DType.FLOAT64 else "f")
"""A function of math.h: `expf` for float, `exp` for double."""
inline = functools.partial(called, lambda dtype: f"_{dtype.code}")
"""An inline function of mt_scalar.h: mt_max_f32, mt_max_i32."""


def bits(symbol: str, meaning: Callable[..., A]) -> Function:
    """Return an operator of C on the bits of two integers."""

    def text(expr: Expr, a: Text, b: Text) -> Text:
        return Text(f"({expr.dtype.c})({a.at(UNARY)} {symbol} {b.at(UNARY)})", UNARY)

    return Function(lambda expr, a, b: meaning(a, b).astype(expr.dtype.numpy), text)


def predicate(name: str, meaning: Callable[..., A]) -> Function:
    """Return a test of math.h: a bool of one number."""
    return Function(lambda expr, a: meaning(a), lambda expr, a: boolean(f"{name}({a.c}) != 0", COMPARE))


# gemmlowp's logistic function and hyperbolic tangent of 16-bit fixed point: crt/include/mt_fixed16.h in NumPy.
#
# The expression's value is the number of an argument's integer bits; a result has 15 fractional bits.


_FACTORS = (25520, 19875, 12055, 4435, 600, 11, 0)
"""exp(-2^n), n from -2 on."""
_ONE = 2**15 - 1


def _product(a: A, b: A) -> A:
    return (a * b + (1 << 14)) >> 15


def _saturated(x: A) -> A:
    return np.clip(x, -(2**15), _ONE)


def _divide(x: A, bits: int) -> A:
    mask = (1 << bits) - 1
    return (x >> bits) + ((x & mask) > (mask >> 1) + (x < 0))


def _exp(x: A, whole: int) -> A:
    """Return exp(x) for x <= 0."""
    bits = 15 - whole
    quarter = 1 << (bits - 2)
    rest = (x & (quarter - 1)) - quarter
    a = rest * (1 << whole) + (1 << 12)
    square = _product(a, a)
    cube, fourth = _product(square, a), _product(square, square)
    series = _divide(_product(_divide(fourth, 2) + cube, 10923) + square, 1)
    result = _saturated(28918 + _product(28918, a + series))
    for number, factor in enumerate(_FACTORS[: whole + 2]):
        result = np.where((rest - x) >> (bits - 2 + number) & 1, _product(result, factor), result)
    if whole > 5:
        result = np.where(x < -(32 << bits), 0, result)
    return np.where(x == 0, _ONE, result)


def _quotient(x: A) -> A:
    """Return 4 / (1 + x), with two integer bits."""
    half = (x + _ONE + 1) >> 1
    y = 23130 + _product(half, -15420)
    for _ in range(3):
        y = y + _saturated(_product(y, (1 << 13) - _product(half, y)) * 4)
    return y


def _logistic(expr: Expr, x: A) -> A:
    wide = np.asarray(x, np.int64)
    result = _saturated(_quotient(_exp(-np.abs(wide), expr.value)) * 2)
    result = np.where(wide > 0, result, _ONE - result)
    return np.where(wide == 0, 1 << 14, result).astype(expr.dtype.numpy)


def _tanh(expr: Expr, x: A) -> A:
    wide = np.asarray(x, np.int64)
    result = _saturated((_quotient(_exp(-np.abs(wide), expr.value + 1)) - (1 << 13)) * 4)
    return (np.sign(wide) * result).astype(expr.dtype.numpy)


FIXED16: dict[str, Function] = {
    "logistic16": Function(_logistic, lambda expr, x: Text(f"mt_fixed16_logistic({x.c})")),
    "tanh16": Function(_tanh, lambda expr, x: Text(f"mt_fixed16_tanh({x.c}, {expr.value})")),
}


FINITE = 2.0**100
"""The limit of magnitudes below which no float32 overflows."""


def largest(expr: Expr) -> float:
    """Return a bound of an expression's magnitude, infinite for what may be NaN; a named part has its expression."""

    def bound(part: Expr, args: Sequence[float]) -> float:
        limit = float(max(map(abs, part.dtype.limits))) if part.dtype.is_integer else math.inf
        if part.op == "const":
            return abs(part.value) if part.value == part.value else math.inf
        if part.dtype.is_half or math.inf in args or not args:
            return limit
        if part.op in ("acc", "cast", "neg"):
            return min(limit, args[0])
        if part.op in ("add", "sub"):
            return min(limit, args[0] + args[1])
        return min(limit, args[0] * args[1]) if part.op == "mul" else limit

    return expr.fold(bound, leaves=("load", "reduce"))


# To integers and from integers to others: with a scale in float, in fixed point, or as TFLite has it.


def _quantize(expr: Expr, x: A, scale: A, zero_point: A) -> A:
    low, high = expr.value or expr.dtype.limits
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.rint(np.float32(x) / np.float32(scale)) + zero_point
    return np.where(np.isnan(steps), low, np.clip(steps, low, high)).astype(expr.dtype.numpy)


def _quantize_text(expr: Expr, x: Text, scale: Text, zero_point: Text) -> Text:
    low, high = expr.value or expr.dtype.limits
    value, by, _ = expr.args
    name = "mt_quantize_finite" if by.op == "const" and by.value and largest(value) < FINITE else "mt_quantize"
    return within(expr.dtype, f"{name}({x.c}, {scale.c}, {zero_point.c}, {low}, {high})")


def _limited(expr: Expr, steps: A) -> A:
    """Return whole numbers within the limits of the expression's value."""
    return np.clip(steps, expr.value.low, expr.value.high).astype(expr.dtype.numpy)


def _limited_text(expr: Expr, steps: str) -> Text:
    """Return the same in C."""
    steps = steps.replace("+ -", "- ")
    return within(expr.dtype, f"mt_clamp({steps}, {expr.value.low}, {expr.value.high})")


@frozen
class Requantize:
    """int32 or int64 to a small integer: saturate(round_half_even((float)acc * scale) + zero_point) to [low, high].

    `bounded`: |acc * scale| is known to stay below 2^22, so that the cheap rounding is right.
    """

    zero_point: int
    low: int
    high: int
    bounded: bool


def _requantize(expr: Expr, total: A, scale: A) -> A:
    product = np.asarray(total).astype(np.float32) * np.asarray(scale, np.float32)
    return _limited(expr, np.rint(product) + expr.value.zero_point)


def _requantize_text(expr: Expr, total: Text, scale: Text) -> Text:
    spec: Requantize = expr.value
    name = "mt_requantize" if spec.bounded else "mt_requantize_wide"
    if expr.args[0].dtype is DType.INT64:
        name = "mt_requantize_long"
    call = f"{name}({total.c}, {scale.c}, {spec.zero_point}, {spec.low}, {spec.high})"
    return within(expr.dtype, call)


@frozen
class FixedRequantize:
    """`Requantize` without an FPU: clamp((((int64)acc * multiplier) >> 32) + offset >> shift).

    That rounds ties up; `even` rounds them to even, for scales with which exact ties happen. `near`: some multipliers
    are negative; accumulators near a half are rounded as float32 rounds the product. `scales` are the floats that the
    multipliers replace, and `bounded` is as in `Requantize`. `short`: 32 bits are enough for the product's upper 42.
    """

    zero_point: int
    low: int
    high: int
    shift: int
    even: bool = False
    near: bool = False
    bounded: bool = False
    short: bool = False
    scales: tuple[float, ...] = field(default=(), repr=False)

    @property
    def by_float(self) -> "Requantize":
        """The same with the float scales."""
        return Requantize(self.zero_point, self.low, self.high, self.bounded)

    @property
    def offset(self) -> int:
        """Zero point and rounding, before the shift."""
        return (self.zero_point << self.shift) + (1 << (self.shift - 1))


def _fixed_requantize(expr: Expr, total: A, multiplier: A) -> A:
    spec: FixedRequantize = expr.value
    whole = np.asarray(multiplier, np.int64)
    product = np.asarray(total, np.int64) * np.abs(whole)
    if spec.even:
        half = np.int64(1) << (31 + spec.shift)
        steps = (product + half - 1 + ((product >> (32 + spec.shift)) & 1)) >> (32 + spec.shift)
        return _limited(expr, steps + spec.zero_point)
    steps = (product >> 32) + spec.offset >> spec.shift
    if spec.near:
        scale = np.ldexp(np.abs(whole), -32 - spec.shift).astype(np.float32)
        rounded = np.rint(np.asarray(total).astype(np.float32) * scale).astype(np.int64) + spec.zero_point
        steps = np.where(whole < 0, rounded, steps)
    return _limited(expr, steps)


def _fixed_requantize_text(expr: Expr, total: Text, multiplier: Text) -> Text:
    spec: FixedRequantize = expr.value
    name, offset = ("_even", spec.zero_point) if spec.even else ("_exact" if spec.near else "", spec.offset)
    name += "_short" if spec.short else ""
    call = f"mt_requantize_fixed{name}({total.c}, {multiplier.c}, {offset}, {spec.shift}, {spec.low}, {spec.high})"
    return within(expr.dtype, call)


@frozen
class RescalePair:
    """Two small integers to one: clamp((a * left + b * right + offset) >> shift), all in int32; `even` as `Shifted`."""

    left: int
    right: int
    offset: int
    shift: int
    low: int
    high: int
    even: bool = False
    zero_point: int = 0


def _rescale_pair(expr: Expr, a: A, b: A) -> A:
    spec: RescalePair = expr.value
    return _shifted(expr, np.asarray(a, np.int64) * spec.left + np.asarray(b, np.int64) * spec.right + spec.offset)


def _rescale_pair_text(expr: Expr, a: Text, b: Text) -> Text:
    spec: RescalePair = expr.value
    total = f"{a.at(MUL)} * mt_factor({spec.left}) + {b.at(MUL)} * mt_factor({spec.right}) + {spec.offset}"
    left, right = (f"{factor / 2**spec.shift:.6g}" for factor in (spec.left, spec.right))
    return _shifted_text(expr, Text(total.replace("+ -", "- "), ADD), f" /* scales {left} and {right} */")


@frozen
class Shifted:
    """An int32 total with fractional bits to a small integer: clamp(total >> shift); to int32 without limits.

    `even`: the shift rounds to the nearest, ties to even, and the zero point is added behind it.
    """

    shift: int
    low: int | None = None
    high: int | None = None
    even: bool = False
    zero_point: int = 0


def _shifted(expr: Expr, total: A) -> A:
    spec: Shifted | RescalePair = expr.value
    wide = np.asarray(total, np.int64)
    if spec.even:
        wide = wide + (1 << (spec.shift - 1)) - 1 + ((wide >> spec.shift) & 1)
    steps = (wide >> spec.shift) + spec.zero_point
    return steps.astype(expr.dtype.numpy) if spec.low is None else _limited(expr, steps)


def _shifted_text(expr: Expr, total: Text, comment: str = "") -> Text:
    spec: Shifted | RescalePair = expr.value
    plain = f"{total.at(MUL)} >> {spec.shift}" if spec.shift else total.c
    if spec.low is None:
        return Text(plain, SHIFT)
    steps = f"mt_shift_even({total.c}, {spec.shift}) + {spec.zero_point}" if spec.even else plain
    return _limited_text(expr, steps + comment)


@frozen
class NearTie:
    """An int32 total whose fractional bits are below a window, and whose whole number lies in (low, high].

    `is_near_tie` is true of such a total; `shifted_tie` is `shifted`, one less if it is such a total and its second
    argument is true.
    """

    shift: int
    window: int
    low: int
    high: int


def _near_tie(expr: Expr, total: A) -> A:
    spec: NearTie = expr.value
    wide = np.asarray(total, np.int64)
    whole, rest = wide >> spec.shift, wide & ((1 << spec.shift) - 1)
    return (rest < spec.window) & (whole > spec.low) & (whole <= spec.high)


def _shifted_tie(expr: Expr, total: A, is_down: A) -> A:
    spec: NearTie = expr.value
    return _limited(expr, (np.asarray(total, np.int64) >> spec.shift) - (_near_tie(expr, total) & is_down))


def _near_tie_text(expr: Expr, total: Text) -> Text:
    spec: NearTie = expr.value
    step = f"{total.at(MUL)} >> {spec.shift}"
    near = f"mt_is_near_tie({total.c}, {spec.shift}, {spec.window})"
    return boolean(f"{near} && {step} > {spec.low} && {step} <= {spec.high}", AND)


def _shifted_tie_text(expr: Expr, total: Text, is_down: Text) -> Text:
    spec: NearTie = expr.value  # a total out of range is clamped, one less or not
    is_less = f"mt_is_near_tie({total.c}, {spec.shift}, {spec.window}) && {is_down.truth(AND)}"
    return within(expr.dtype, f"mt_clamp(({total.at(MUL)} >> {spec.shift}) - ({is_less}), {spec.low}, {spec.high})")


@frozen
class Rescale:
    """int32 to an integer as TFLite's kernels do it: clamp(round(acc * multiplier / 2^(32 + shift)) + zero_point).

    The multiplier and the shift are arguments of the expression. Rounding is once, ties up; `twice`: first to
    acc * multiplier / 2^31, ties up, then the rest, ties away from zero. `wide`: a shift may be below 1, down to -31.

    A `rescale_long` is of int64, as TFLite's kernels of int16 do it: acc * multiplier / 2^shift, with 15 bits of a
    multiplier, rounded once.
    """

    zero_point: int
    low: int
    high: int
    wide: bool = False
    twice: bool = False


def _rescale(expr: Expr, total: A, multiplier: A, shift: A) -> A:
    spec: Rescale = expr.value
    product = np.asarray(total, np.int64) * np.asarray(multiplier, np.int64)
    total_shift = np.asarray(shift, np.int64) + (32 if expr.op == "rescale" else 0)
    if spec.twice:
        left = np.maximum(31 - total_shift, 0)
        first = ((product << left) + (1 << 30)) >> 31
        right = np.maximum(total_shift - 31, 0)
        steps = np.where(right > 0, (first + (np.int64(1) << right >> 1) - (first < 0)) >> right, first)
    else:
        steps = (product + (np.int64(1) << (total_shift - 1))) >> total_shift
    return _limited(expr, steps + spec.zero_point)


def _rescale_text(expr: Expr, total: Text, multiplier: Text, shift: Text) -> Text:
    spec: Rescale = expr.value
    form = "_long" if expr.op == "rescale_long" else "_twice" * spec.twice + "_wide" * spec.wide
    call = f"mt_rescale{form}({total.c}, {multiplier.c}, {shift.c})"
    if expr.op == "rescale" and expr.dtype is DType.INT32:
        return Text(call)
    return _limited_text(expr, f"{call} + {spec.zero_point}" if spec.zero_point else call)


def _mean(expr: Expr, total: A, count: A) -> A:
    wide, divisor = np.asarray(total, np.int64), np.asarray(count, np.int64)
    return (np.sign(wide) * ((np.abs(wide) + divisor // 2) // divisor)).astype(expr.dtype.numpy)


# Arithmetic, comparisons, logic, bits and the functions of math.h.


def _truncated_div(a: A, b: A) -> A:
    if not np.issubdtype(np.asarray(a).dtype, np.integer):
        return a / b
    quotient = np.abs(a) // np.abs(b)
    return np.where((np.asarray(a) < 0) != (np.asarray(b) < 0), -quotient, quotient)


def _divide_text(expr: Expr, a: Text, b: Text) -> Text:
    if expr.dtype.is_integer and expr.value != "index":
        return Text(f"mt_div_{expr.dtype.code}({a.c}, {b.c})")
    return Text(f"{a.at(MUL)} / {b.at(UNARY)}", MUL)


def _pow(a: A, b: A) -> A:
    """A negative power of an integer is truncated to 0, except for bases 1 and -1."""
    exponent = np.asarray(b).astype(np.asarray(a).dtype)
    if not np.issubdtype(exponent.dtype, np.signedinteger):
        return np.power(a, exponent)
    below = np.power(np.where(np.abs(a) == 1, a, 0), np.where(exponent < 0, 2 - (exponent & 1), 1))
    return np.where(exponent < 0, below, np.power(a, np.maximum(exponent, 0)))


def _sigmoid(x: A) -> A:
    wide = np.asarray(x, np.float64)
    return np.where(wide >= 0, 1 / (1 + np.exp(-np.abs(wide))), np.exp(-np.abs(wide)) / (1 + np.exp(-np.abs(wide))))


def _softplus(x: A) -> A:
    return np.logaddexp(np.asarray(x, np.float64), 0)


def _mish(x: A) -> A:
    return np.asarray(x, np.float64) * np.tanh(_softplus(x))


def _where_text(expr: Expr, condition: Text, yes: Text, no: Text) -> Text:
    return Text(f"{condition.truth(OR)} ? {yes.at(OR)} : {no.at(OR)}", SELECT)


# From one type to another: casts of values and of bits.


def _cast(expr: Expr, a: A) -> A:
    data = np.asarray(a)
    if expr.args[0].dtype.is_float and expr.dtype.is_integer:
        data = _truncated(data.astype(np.float64), expr.dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        return data.astype(expr.dtype.numpy)


def _truncated(data: A, dtype: DType) -> A:
    """Truncate to integers as mt_scalar.h does; NaN and out-of-range values become the type's smallest number."""
    bits = 64 if dtype.size == 8 else 32
    whole, least = np.trunc(data), -(2.0 ** (bits - 1))
    signed = np.where((whole >= least) & (whole < -least), whole, least).astype(f"int{bits}")
    if dtype.kind == "int" or dtype.size < 4:
        return signed
    fits = (whole >= 0) & (whole < -2 * least)
    return np.where(fits, np.where(fits, whole, 0).astype(f"uint{bits}"), signed.astype(f"uint{bits}"))


def _cast_text(expr: Expr, x: Text) -> Text:
    source = expr.args[0].dtype
    if expr.dtype is DType.BOOL:
        return boolean(f"{x.at(ADD)} != 0", COMPARE)
    if expr.dtype.is_half:
        wide = x.c if source.computed == "float" else f"(float){x.at(UNARY)}"
        return Text(f"{half(expr.dtype)}_round({wide})")
    if source.is_float and expr.dtype.is_integer:
        x = _integer_from(source, expr.dtype, x)
    if expr.dtype.is_nibble:
        return nibble(expr.dtype, x)
    if source.is_float and expr.dtype.is_integer and expr.dtype.size >= 4:
        return x
    if x.uncast and expr.dtype is DType.INT32:
        return Text(x.uncast)
    is_wrapped = x.level == UNARY and x.c.startswith("(int32_t)((uint32_t)")  # whose low bits are the same
    inner = x.c.removeprefix("(int32_t)") if is_wrapped and expr.dtype.is_integer and expr.dtype.size < 4 else ""
    return Text(f"({expr.dtype.c}){x.uncast or inner or x.at(UNARY)}", UNARY)


def _integer_from(source: DType, dtype: DType, x: Text) -> Text:
    """Return a float as an integer; a small one by way of int32, as in onnxruntime. C's own cast may be undefined."""
    code = dtype.code if dtype.size >= 4 else DType.INT32.code
    return Text(f"mt_{code}_from_{source.code}({x.c})")


def _bitcast(expr: Expr, a: A) -> A:
    return np.ascontiguousarray(a).view(expr.dtype.numpy).reshape(np.shape(a))


def _bitcast_text(expr: Expr, x: Text) -> Text:
    source = expr.args[0].dtype
    if source.is_half:
        x = Text(stored(x.c, source))
    elif source.is_float:
        x = Text(f"mt_u{source.size * 8}_of_{source.code}({x.c})")
    if expr.dtype.is_half:
        return Text(loaded(f"({expr.dtype.c}){x.at(UNARY)}", expr.dtype))
    if expr.dtype.is_float:
        unsigned = f"u{expr.dtype.size * 8}"
        return Text(f"mt_{expr.dtype.code}_of_{unsigned}((uint{expr.dtype.size * 8}_t){x.at(UNARY)})")
    return Text(f"({expr.dtype.c}){x.at(UNARY)}", UNARY)


# Whole expressions: their meaning for a tensor, and their C.


FUNCTIONS: dict[str, Function] = {
    "add": infix("+", ADD, np.add),
    "sub": infix("-", ADD, np.subtract),
    "mul": infix("*", MUL, np.multiply),
    "div": Function(lambda expr, a, b: _truncated_div(a, b).astype(expr.dtype.numpy), _divide_text),
    "floordiv": infix("/", MUL, np.floor_divide),  # of index expressions, which are never negative
    "mod": infix("%", MUL, np.mod),
    "neg": Function(lambda expr, a: np.negative(a), lambda expr, a: wrap(expr, Text(f"-{a.at(ATOM)}", UNARY))),
    "maximum": inline("mt_max", np.maximum),
    "minimum": inline("mt_min", np.minimum),
    "abs": inline("mt_abs", np.abs),
    **{name: libm(name, getattr(np, name)) for name in ("sqrt", "expm1", "log1p")},
    **{name: inline(f"mt_{name}", getattr(np, name)) for name in ("exp", "log")},
    **{name: libm(name, getattr(np, name)) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{name: libm(name, getattr(np, name)) for name in ("floor", "ceil", "rint", "trunc")},
    **{name: libm(name, getattr(np, f"arc{name[1:]}")) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "erf": libm("erf", np.vectorize(math.erf, otypes=[np.float64])),
    "round": libm("round", lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)),
    "pow": Function(
        lambda expr, a, b: _pow(a, b).astype(expr.dtype.numpy),
        lambda expr, a, b: (inline("mt_pow", _pow) if expr.dtype.is_integer else libm("pow", _pow)).text(expr, a, b),
    ),
    "sign": inline("mt_sign", np.sign),
    "remainder": inline("mt_mod", np.mod),  # the sign of the divisor
    "fmod": inline("mt_fmod", np.fmod),  # the sign of the dividend
    "shl": inline("mt_shl", np.left_shift),
    "shr": inline("mt_shr", np.right_shift),
    "bit_and": bits("&", np.bitwise_and),
    "bit_or": bits("|", np.bitwise_or),
    "bit_xor": bits("^", np.bitwise_xor),
    "bit_not": Function(lambda expr, a: np.invert(a), lambda expr, a: Text(f"({expr.dtype.c})~{a.at(ATOM)}", UNARY)),
    "isnan": predicate("isnan", np.isnan),
    "isinf": predicate("isinf", np.isinf),
    "sigmoid": inline("mt_sigmoid", _sigmoid),
    "softplus": inline("mt_softplus", _softplus),
    "mish": inline("mt_mish", _mish),
    "less": compare("<", np.less),
    "less_equal": compare("<=", np.less_equal),
    "greater": compare(">", np.greater),
    "greater_equal": compare(">=", np.greater_equal),
    "equal": compare("==", np.equal),
    "and": Function(lambda expr, a, b: a & b, lambda expr, a, b: Text(f"{a.truth(AND)} && {b.truth(AND)}", AND)),
    "or": Function(lambda expr, a, b: a | b, lambda expr, a, b: Text(f"({a.truth(COMPARE)} || {b.truth(COMPARE)})")),
    "xor": Function(lambda expr, a, b: a ^ b, lambda expr, a, b: boolean(f"{a.at(ADD)} != {b.at(ADD)}", COMPARE)),
    "not": Function(lambda expr, a: ~np.asarray(a, bool), lambda expr, a: boolean(f"!{a.truth(ATOM)}", UNARY)),
    "where": Function(lambda expr, c, a, b: np.where(c, a, b), _where_text),
    "bitcast": Function(_bitcast, _bitcast_text),
    "cast": Function(_cast, _cast_text),
    "quantize": Function(_quantize, _quantize_text),
    "requantize": Function(_requantize, _requantize_text),
    "requantize_fixed": Function(_fixed_requantize, _fixed_requantize_text),
    "rescale": Function(_rescale, _rescale_text),
    "rescale_long": Function(_rescale, _rescale_text),
    "mean": Function(_mean, lambda expr, a, b: Text(f"mt_mean({a.c}, {b.c})")),  # int32, ties away from zero
    "rescale_pair": Function(_rescale_pair, _rescale_pair_text),
    "shifted": Function(_shifted, _shifted_text),
    "is_near_tie": Function(_near_tie, _near_tie_text),
    "shifted_tie": Function(_shifted_tie, _shifted_tie_text),
    "factor": Function(lambda expr, a: a, lambda expr, a: Text(f"mt_factor({a.c})")),  # an int32 constant
    # int32: the high word of a product of a number of at most 17 bits and one of 30
    "high_product": Function(
        lambda expr, a, b: (np.asarray(a, np.int64) * np.asarray(b, np.int64) >> 32).astype(np.int32),
        lambda expr, a, b: Text(f"mt_high_product({a.c}, {b.c})"),
    ),
    **FIXED16,
}
"""All scalar functions, by their names in expressions."""


def evaluate(
    expr: Expr, operands: Sequence[np.ndarray[Any, Any]], shape: tuple[int, ...], total: A = None
) -> np.ndarray[Any, Any]:
    """Evaluate an expression for every element of a tensor of `shape`.

    Args:
        expr: the expression of one element.
        operands: the node's inputs, by number.
        shape: the loop's size along axes 0, 1, …
        total: the value of `acc`, an array of `shape`.
    """
    sizes = dict(enumerate(shape))
    for node in expr.parts():
        if node.op == "reduce":
            sizes.update(node.value.axes)
    order = sorted(sizes)
    rank = len(order)

    def grid(number: int) -> A:
        view = [1] * rank
        view[order.index(number)] = sizes[number]
        return np.arange(sizes[number]).reshape(view)

    def visit(node: Expr, args: Sequence[A]) -> A:
        if node.op == "const":
            return np.asarray(node.value, node.dtype.numpy)
        if node.op == "axis":
            return grid(node.value)
        if node.op == "acc":
            return np.asarray(total).reshape([sizes[n] if n < len(shape) else 1 for n in order])
        if node.op == "load":
            data = operands[node.value]
            if not args:
                return data
            if not data.size:  # nothing is inside
                return np.zeros(np.broadcast_shapes(*map(np.shape, args)), data.dtype)
            # An index of a load that a `where` will drop may lie outside.
            inside = [np.clip(arg, 0, size - 1) for arg, size in zip(args, data.shape, strict=True)]
            return data[tuple(np.broadcast_arrays(*inside))]
        if node.op == "reduce":
            axes = tuple(order.index(number) for number, _ in node.value.axes)
            full = [sizes[n] if i in axes else 1 for i, n in enumerate(order)]
            body = np.broadcast_to(args[0], np.broadcast_shapes(np.shape(args[0]), tuple(full)))
            return getattr(np, node.value.kind).reduce(body, axis=axes, keepdims=True).astype(node.dtype.numpy)
        return FUNCTIONS[node.op].meaning(node, *args)

    with np.errstate(all="ignore"):  # infinities and NaN are numbers like others, as they are in C
        result = np.asarray(expr.fold(visit))
    result = result.reshape((1,) * (rank - result.ndim) + result.shape)
    full_shape = tuple(shape) + (1,) * (rank - len(shape))
    return np.broadcast_to(result, full_shape).astype(expr.dtype.numpy).reshape(shape)


def render(expr: Expr, leaf: Callable[[Expr], Text]) -> Text:
    """Return an expression as C; `leaf` gives the text of axes, loads, reductions and acc."""

    def text(node: Expr, args: Sequence[Text]) -> Text:
        if node.op == "const":
            return literal(node.value, node.dtype)
        return leaf(node) if node.op in _LEAVES else FUNCTIONS[node.op].text(node, *args)

    return expr.fold(text, leaves=_LEAVES)


_LEAVES = ("axis", "load", "acc", "reduce")
