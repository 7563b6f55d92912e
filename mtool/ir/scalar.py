"""The scalar functions: for each its meaning (NumPy) and its C text, side by side.

Floating-point C is written for float32 (`expf`, `1.0f`), in which the 16-bit floats are computed too, and
for double. The `mt_` functions are inline functions of crt/include/mt_math.h, mt_scalar.h and mt_half.h.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtool.ir.expr import Expr
from mtool.ir.types import DType

A = Any  # arrays of any shape; NumPy's own rules apply

ATOM, UNARY, MUL, ADD, SHIFT, COMPARE, AND, OR, SELECT = range(9)  # precedence of C, tightest first


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of C and how tightly its outermost operator binds."""

    c: str
    level: int = ATOM

    def at(self, level: int) -> str:
        """Return the text, in parentheses unless it binds at least as tightly as `level`."""
        return self.c if self.level <= level else f"({self.c})"


@dataclass(frozen=True, slots=True)
class Function:
    """A scalar function: `meaning(expr, *arrays)` and `text(expr, *texts)`."""

    meaning: Callable[..., A]
    text: Callable[..., Text]


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


def _wrap(expr: Expr, text: Text) -> Text:
    """Bring C's promoted result back to a small integer type."""
    if expr.dtype.is_nibble:
        return _nibble(expr.dtype, text)
    return Text(f"({expr.dtype.c}){text.at(UNARY)}", UNARY) if expr.dtype.is_integer and expr.dtype.size < 4 else text


def _nibble(dtype: DType, text: Text) -> Text:
    """Keep the low 4 or 2 bits, with their sign."""
    mask, sign = (1 << dtype.bits) - 1, 1 << (dtype.bits - 1)
    if dtype.kind == "uint":
        return Text(f"(uint8_t)({text.at(MUL)} & {mask})", UNARY)
    return Text(f"(int8_t)((({text.at(MUL)} & {mask}) ^ {sign}) - {sign})", UNARY)


def _infix(symbol: str, level: int, meaning: Callable[..., A]) -> Function:
    def text(expr: Expr, left: Text, right: Text) -> Text:
        dtype = expr.dtype
        if dtype.kind == "int" and dtype.size >= 4 and expr.value != "index":  # wraps, as ONNX does; C's would not
            unsigned = "u" + dtype.c
            plain = f"(({unsigned}){left.at(UNARY)} {symbol} ({unsigned}){right.at(UNARY)})"
            return Text(f"({dtype.c}){plain}", UNARY)
        if right.c[:1] == "-" and right.c[1:].isdigit() and level == ADD:
            flipped = {"+": "-", "-": "+"}[symbol]
            return _wrap(expr, Text(f"{left.at(level)} {flipped} {right.c[1:]}", level))
        return _wrap(expr, Text(f"{left.at(level)} {symbol} {right.at(level - 1)}", level))

    return Function(lambda expr, a, b: meaning(a, b).astype(expr.dtype.numpy), text)


def _compare(symbol: str, meaning: Callable[..., A]) -> Function:
    return Function(
        lambda expr, a, b: meaning(a, b),
        lambda expr, a, b: Text(f"(uint8_t)({a.at(ADD)} {symbol} {b.at(ADD)})", UNARY),
    )


def _libm(name: str, meaning: Callable[..., A]) -> Function:
    def text(expr: Expr, *args: Text) -> Text:
        suffix = "" if expr.dtype is DType.FLOAT64 else "f"
        return Text(f"{name}{suffix}({', '.join(arg.c for arg in args)})")

    return Function(lambda expr, *args: np.asarray(meaning(*args)).astype(expr.dtype.numpy), text)


def _inline(name: str, meaning: Callable[..., A]) -> Function:
    """An inline function of mt_scalar.h, one for each type: mt_max_f32, mt_max_i32."""

    def text(expr: Expr, *args: Text) -> Text:
        return Text(f"{name}_{expr.dtype.code}({', '.join(arg.c for arg in args)})")

    return Function(lambda expr, *args: np.asarray(meaning(*args)).astype(expr.dtype.numpy), text)


def _truncated_div(a: A, b: A) -> A:
    if not np.issubdtype(np.asarray(a).dtype, np.integer):
        return a / b
    quotient = np.abs(a) // np.abs(b)
    return np.where((np.asarray(a) < 0) != (np.asarray(b) < 0), -quotient, quotient)


def _sigmoid(x: A) -> A:
    wide = np.asarray(x, np.float64)
    return np.where(wide >= 0, 1 / (1 + np.exp(-np.abs(wide))), np.exp(-np.abs(wide)) / (1 + np.exp(-np.abs(wide))))


def _quantise(expr: Expr, x: A, scale: A, zero_point: A) -> A:
    low, high = expr.value or expr.dtype.limits
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.rint(np.float32(x) / np.float32(scale)) + zero_point
    return np.clip(np.nan_to_num(steps), low, high).astype(expr.dtype.numpy)


def _quantise_text(expr: Expr, x: Text, scale: Text, zero_point: Text) -> Text:
    low, high = expr.value or expr.dtype.limits
    call = f"mt_quantise({x.c}, {scale.c}, {zero_point.c}, {low}, {high})"
    return Text(f"({expr.dtype.c}){call}", UNARY)


@dataclass(frozen=True, slots=True)
class Requantise:
    """int32 to a small integer: saturate(round_half_even((float)acc * scale) + zero_point) to [low, high].

    `bounded`: |acc * scale| is known to stay below 2^22, so that the cheap rounding is right.
    """

    zero_point: int
    low: int
    high: int
    bounded: bool


@dataclass(frozen=True, slots=True)
class FixedRequantise:
    """The same without an FPU: clamp((((int64)acc * multiplier) >> 32) + offset >> shift).

    That rounds ties up; `even` rounds them to even, for scales with which exact ties happen.
    """

    zero_point: int
    low: int
    high: int
    shift: int
    even: bool

    @property
    def offset(self) -> int:
        """Zero point and rounding, before the shift."""
        return (self.zero_point << self.shift) + (1 << (self.shift - 1))


@dataclass(frozen=True, slots=True)
class RescalePair:
    """Two small integers to one: clamp((a * left + b * right + offset) >> shift), all in int32."""

    left: int
    right: int
    offset: int
    shift: int
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Rescale:
    """int32 to an integer as TFLite's kernels do it: clamp(round(acc * multiplier / 2^(32 + shift)) + zero_point).

    The multiplier and the shift are arguments of the expression. Rounding is once, ties up; `twice`: first to
    acc * multiplier / 2^31, ties up, then the rest, ties away from zero. `wide`: a shift may be below 1, down to -31.
    """

    zero_point: int
    low: int
    high: int
    wide: bool
    twice: bool


def _requantise(expr: Expr, total: A, scale: A) -> A:
    how: Requantise = expr.value
    product = np.asarray(total).astype(np.float32) * np.asarray(scale, np.float32)
    return np.clip(np.rint(product) + how.zero_point, how.low, how.high).astype(expr.dtype.numpy)


def _requantise_text(expr: Expr, total: Text, scale: Text) -> Text:
    how: Requantise = expr.value
    name = "mt_requantise" if how.bounded else "mt_requantise_wide"
    call = f"{name}({total.c}, {scale.c}, {how.zero_point}, {how.low}, {how.high})"
    return Text(f"({expr.dtype.c}){call}", UNARY)


def _fixed_requantise(expr: Expr, total: A, multiplier: A) -> A:
    how: FixedRequantise = expr.value
    product = np.asarray(total, np.int64) * np.asarray(multiplier, np.int64)
    if how.even:
        half = np.int64(1) << (31 + how.shift)
        steps = (product + half - 1 + ((product >> (32 + how.shift)) & 1)) >> (32 + how.shift)
        return np.clip(steps + how.zero_point, how.low, how.high).astype(expr.dtype.numpy)
    high_word = product >> 32
    return np.clip((high_word + how.offset) >> how.shift, how.low, how.high).astype(expr.dtype.numpy)


def _fixed_requantise_text(expr: Expr, total: Text, multiplier: Text) -> Text:
    how: FixedRequantise = expr.value
    name, offset = ("_even", how.zero_point) if how.even else ("", how.offset)
    call = f"mt_requantise_fixed{name}({total.c}, {multiplier.c}, {offset}, {how.shift}, {how.low}, {how.high})"
    return Text(f"({expr.dtype.c}){call}", UNARY)


def _rescale_pair(expr: Expr, a: A, b: A) -> A:
    how: RescalePair = expr.value
    total = np.asarray(a, np.int64) * how.left + np.asarray(b, np.int64) * how.right + how.offset
    return np.clip(total >> how.shift, how.low, how.high).astype(expr.dtype.numpy)


def _rescale_pair_text(expr: Expr, a: Text, b: Text) -> Text:
    how: RescalePair = expr.value
    total = f"{a.at(MUL)} * {how.left} + {b.at(MUL)} * {how.right} + {how.offset}".replace("+ -", "- ")
    return Text(f"({expr.dtype.c})mt_clamp(({total}) >> {how.shift}, {how.low}, {how.high})", UNARY)


def _rescale(expr: Expr, total: A, multiplier: A, shift: A) -> A:
    how: Rescale = expr.value
    product = np.asarray(total, np.int64) * np.asarray(multiplier, np.int64)
    places = np.asarray(shift, np.int64) + 32
    if how.twice:
        left = np.maximum(31 - places, 0)
        first = ((product << left) + (1 << 30)) >> 31
        right = np.maximum(places - 31, 0)
        steps = np.where(right > 0, (first + (np.int64(1) << right >> 1) - (first < 0)) >> right, first)
    else:
        steps = (product + (np.int64(1) << (places - 1))) >> places
    return np.clip(steps + how.zero_point, how.low, how.high).astype(expr.dtype.numpy)


def _rescale_text(expr: Expr, total: Text, multiplier: Text, shift: Text) -> Text:
    how: Rescale = expr.value
    call = (
        f"mt_rescale{'_twice' if how.twice else ''}{'_wide' if how.wide else ''}({total.c}, {multiplier.c}, {shift.c})"
    )
    if expr.dtype is DType.INT32:
        return Text(call)
    moved = f"{call} + {how.zero_point}".replace("+ -", "- ") if how.zero_point else call
    return Text(f"({expr.dtype.c})mt_clamp({moved}, {how.low}, {how.high})", UNARY)


def _mean(expr: Expr, total: A, count: A) -> A:
    wide, divisor = np.asarray(total, np.int64), np.asarray(count, np.int64)
    return (np.sign(wide) * ((np.abs(wide) + divisor // 2) // divisor)).astype(expr.dtype.numpy)


def _where_text(expr: Expr, condition: Text, yes: Text, no: Text) -> Text:
    return Text(f"{condition.at(OR)} ? {yes.at(OR)} : {no.at(OR)}", SELECT)


def _cast_text(expr: Expr, x: Text) -> Text:
    source = expr.args[0].dtype
    if expr.dtype is DType.BOOL:
        return Text(f"(uint8_t)({x.at(ADD)} != 0)", UNARY)
    if expr.dtype.is_half:
        wide = x.c if source.computed == "float" else f"(float){x.at(UNARY)}"
        return Text(f"{half(expr.dtype)}_round({wide})")
    if expr.dtype.is_nibble:
        return _nibble(expr.dtype, Text(f"(int32_t){x.at(UNARY)}", UNARY) if source.is_float else x)
    if source.is_float and expr.dtype.size < 4:  # by way of int32, as C's own conversion is undefined out of range
        return Text(f"({expr.dtype.c})(int32_t){x.at(UNARY)}", UNARY)
    return Text(f"({expr.dtype.c}){x.at(UNARY)}", UNARY)


def _cast(expr: Expr, a: A) -> A:
    data = np.asarray(a)
    with np.errstate(invalid="ignore", over="ignore"):
        if data.dtype.kind == "f" and expr.dtype.is_integer and expr.dtype.size < 4:
            data = data.astype(np.int32)
        return data.astype(expr.dtype.numpy)


def half(dtype: DType) -> str:
    """Return what the functions of mt_half.h and mt_float8.h for a type begin with."""
    return {DType.FLOAT16: "mt_f16", DType.BFLOAT16: "mt_bf16"}.get(dtype, f"mt_{dtype.label}")


def loaded(c: str, dtype: DType) -> str:
    """Return the C of an element of storage as a number to compute with."""
    return f"{half(dtype)}_load({c})" if dtype.is_half else c


def stored(c: str, dtype: DType) -> str:
    """Return the C of a number as it is stored."""
    return f"{half(dtype)}_store({c})" if dtype.is_half else c


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


def _pow(a: A, b: A) -> A:
    return np.power(a, np.asarray(b).astype(np.asarray(a).dtype))


def _pow_text(expr: Expr, a: Text, b: Text) -> Text:
    if expr.dtype.is_integer:
        return Text(f"mt_pow_{expr.dtype.code}({a.c}, {b.c})")
    return Text(f"pow{'' if expr.dtype is DType.FLOAT64 else 'f'}({a.c}, {b.c})")


def _divide_text(expr: Expr, a: Text, b: Text) -> Text:
    if expr.dtype.is_integer and expr.value != "index":
        return Text(f"mt_div_{expr.dtype.code}({a.c}, {b.c})")
    return Text(f"{a.at(MUL)} / {b.at(UNARY)}", MUL)


def _bits(symbol: str, meaning: Callable[..., A]) -> Function:
    def text(expr: Expr, a: Text, b: Text) -> Text:
        return Text(f"({expr.dtype.c})({a.at(UNARY)} {symbol} {b.at(UNARY)})", UNARY)

    return Function(lambda expr, a, b: meaning(a, b).astype(expr.dtype.numpy), text)


def _test(name: str, meaning: Callable[..., A]) -> Function:
    return Function(lambda expr, a: meaning(a), lambda expr, a: Text(f"(uint8_t)({name}({a.c}) != 0)", UNARY))


def _erf(x: A) -> A:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


FUNCTIONS: dict[str, Function] = {
    "add": _infix("+", ADD, np.add),
    "sub": _infix("-", ADD, np.subtract),
    "mul": _infix("*", MUL, np.multiply),
    "div": Function(lambda expr, a, b: _truncated_div(a, b).astype(expr.dtype.numpy), _divide_text),
    "floordiv": _infix("/", MUL, np.floor_divide),  # of index expressions, which are never negative
    "mod": _infix("%", MUL, np.mod),
    "neg": Function(lambda expr, a: np.negative(a), lambda expr, a: _wrap(expr, Text(f"-{a.at(ATOM)}", UNARY))),
    "maximum": _inline("mt_max", np.maximum),
    "minimum": _inline("mt_min", np.minimum),
    "abs": _inline("mt_abs", np.abs),
    "exp": _libm("exp", np.exp),
    "log": _libm("log", np.log),
    "sqrt": _libm("sqrt", np.sqrt),
    "tanh": _libm("tanh", np.tanh),
    "erf": _libm("erf", _erf),
    "sin": _libm("sin", np.sin),
    "cos": _libm("cos", np.cos),
    "floor": _libm("floor", np.floor),
    "ceil": _libm("ceil", np.ceil),
    "rint": _libm("rint", np.rint),
    "round": _libm("round", lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)),
    "trunc": _libm("trunc", np.trunc),
    "tan": _libm("tan", np.tan),
    "asin": _libm("asin", np.arcsin),
    "acos": _libm("acos", np.arccos),
    "atan": _libm("atan", np.arctan),
    "sinh": _libm("sinh", np.sinh),
    "cosh": _libm("cosh", np.cosh),
    "asinh": _libm("asinh", np.arcsinh),
    "acosh": _libm("acosh", np.arccosh),
    "atanh": _libm("atanh", np.arctanh),
    "expm1": _libm("expm1", np.expm1),
    "log1p": _libm("log1p", np.log1p),
    "pow": Function(lambda expr, a, b: _pow(a, b).astype(expr.dtype.numpy), _pow_text),
    "sign": _inline("mt_sign", np.sign),
    "remainder": _inline("mt_mod", np.mod),  # the sign of the divisor
    "fmod": _inline("mt_fmod", np.fmod),  # the sign of the dividend
    "shl": _inline("mt_shl", np.left_shift),
    "shr": _inline("mt_shr", np.right_shift),
    "bit_and": _bits("&", np.bitwise_and),
    "bit_or": _bits("|", np.bitwise_or),
    "bit_xor": _bits("^", np.bitwise_xor),
    "bit_not": Function(lambda expr, a: np.invert(a), lambda expr, a: Text(f"({expr.dtype.c})~{a.at(ATOM)}", UNARY)),
    "bitcast": Function(_bitcast, _bitcast_text),
    "isnan": _test("isnan", np.isnan),
    "isinf": _test("isinf", np.isinf),
    "sigmoid": _inline("mt_sigmoid", _sigmoid),
    "less": _compare("<", np.less),
    "less_equal": _compare("<=", np.less_equal),
    "greater": _compare(">", np.greater),
    "greater_equal": _compare(">=", np.greater_equal),
    "equal": _compare("==", np.equal),
    "and": Function(lambda expr, a, b: a & b, lambda expr, a, b: Text(f"{a.at(COMPARE)} && {b.at(COMPARE)}", AND)),
    "or": Function(lambda expr, a, b: a | b, lambda expr, a, b: Text(f"({a.at(COMPARE)} || {b.at(COMPARE)})")),
    "xor": Function(lambda expr, a, b: a ^ b, lambda expr, a, b: Text(f"(uint8_t)({a.at(ADD)} != {b.at(ADD)})", UNARY)),
    "not": Function(lambda expr, a: ~np.asarray(a, bool), lambda expr, a: Text(f"!{a.at(ATOM)}", UNARY)),
    "where": Function(lambda expr, c, a, b: np.where(c, a, b), _where_text),
    "cast": Function(_cast, _cast_text),
    "quantise": Function(_quantise, _quantise_text),
    "requantise": Function(_requantise, _requantise_text),
    "requantise_fixed": Function(_fixed_requantise, _fixed_requantise_text),
    "rescale": Function(_rescale, _rescale_text),
    "mean": Function(_mean, lambda expr, a, b: Text(f"mt_mean({a.c}, {b.c})")),  # int32, ties away from zero
    "rescale_pair": Function(_rescale_pair, _rescale_pair_text),
}


def evaluate(
    expr: Expr, operands: Sequence[np.ndarray[Any, Any]], shape: tuple[int, ...], total: A = None
) -> np.ndarray[Any, Any]:
    """Return what an expression means for every element of a tensor of `shape`.

    Args:
        expr: the expression of one element.
        operands: the node's inputs, by number.
        shape: the loop's size along axes 0, 1, …
        total: what stands for `acc`, an array of `shape`.
    """
    sizes = dict(enumerate(shape))
    for node in expr.walk():
        if node.op == "reduce":
            sizes.update(node.value.axes)
    order = sorted(sizes)
    rank = len(order)

    def grid(number: int) -> A:
        view = [1] * rank
        view[order.index(number)] = sizes[number]
        return np.arange(sizes[number]).reshape(view)

    def visit(node: Expr) -> A:
        if node.op == "const":
            return np.asarray(node.value, node.dtype.numpy)
        if node.op == "axis":
            return grid(node.value)
        if node.op == "acc":
            return np.asarray(total).reshape([sizes[n] if n < len(shape) else 1 for n in order])
        args = [visit(arg) for arg in node.args]
        if node.op == "load":
            data = operands[node.value]
            if not args:
                return data
            # An index of a load that a `where` will drop may lie outside.
            inside = [np.clip(arg, 0, size - 1) for arg, size in zip(args, data.shape, strict=True)]
            return data[tuple(np.broadcast_arrays(*inside))]
        if node.op == "reduce":
            places = tuple(order.index(number) for number, _ in node.value.axes)
            full = [sizes[n] if i in places else 1 for i, n in enumerate(order)]
            body = np.broadcast_to(args[0], np.broadcast_shapes(np.shape(args[0]), tuple(full)))
            return getattr(np, node.value.kind).reduce(body, axis=places, keepdims=True).astype(node.dtype.numpy)
        return FUNCTIONS[node.op].meaning(node, *args)

    result = np.asarray(visit(expr))
    result = result.reshape((1,) * (rank - result.ndim) + result.shape)
    full_shape = tuple(shape) + (1,) * (rank - len(shape))
    return np.broadcast_to(result, full_shape).astype(expr.dtype.numpy).reshape(shape)


def render(expr: Expr, leaf: Callable[[Expr], Text]) -> Text:
    """Return an expression as C; `leaf` gives the text of axes, loads and acc."""
    if expr.op == "const":
        return literal(expr.value, expr.dtype)
    if expr.op in ("axis", "load", "acc", "reduce"):
        return leaf(expr)
    return FUNCTIONS[expr.op].text(expr, *(render(arg, leaf) for arg in expr.args))
