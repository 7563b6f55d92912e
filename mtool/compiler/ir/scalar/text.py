"""C text of a number: constants, storage, and how tightly a piece binds."""

import math
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir.expr import Expr
from mtool.compiler.ir.types import DType

ATOM, UNARY, MUL, ADD, SHIFT, COMPARE, AND, OR, SELECT = range(9)  # precedence of C, tightest first


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of C and how tightly its outermost operator binds.

    condition: the same, of any integer type, for who asks only whether it is 0; None: `c` is that.
    """

    c: str
    level: int = ATOM
    condition: "Text | None" = None

    def at(self, level: int) -> str:
        """Return the text, in parentheses unless it binds at least as tightly as `level`."""
        return self.c if self.level <= level else f"({self.c})"

    def truth(self, level: int) -> str:
        """Return the condition that it is not 0, as `at` does."""
        return (self.condition or self).at(level)


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
    """Return what the functions of mt_half.h and mt_float8.h for a type begin with."""
    return {DType.FLOAT16: "mt_f16", DType.BFLOAT16: "mt_bf16"}.get(dtype, f"mt_{dtype.label}")


def loaded(c: str, dtype: DType) -> str:
    """Return the C of an element of storage as a number to compute with."""
    return f"{half(dtype)}_load({c})" if dtype.is_half else c


def stored(c: str, dtype: DType) -> str:
    """Return the C of a number as it is stored."""
    return f"{half(dtype)}_store({c})" if dtype.is_half else c


def wrap(expr: Expr, text: Text) -> Text:
    """Bring C's promoted result back to a small integer type."""
    if expr.dtype.is_nibble:
        return nibble(expr.dtype, text)
    return Text(f"({expr.dtype.c}){text.at(UNARY)}", UNARY) if expr.dtype.is_integer and expr.dtype.size < 4 else text


def nibble(dtype: DType, text: Text) -> Text:
    """Keep the low 4 or 2 bits, with their sign."""
    mask, sign = (1 << dtype.bits) - 1, 1 << (dtype.bits - 1)
    if dtype.kind == "uint":
        return Text(f"(uint8_t)({text.at(MUL)} & {mask})", UNARY)
    return Text(f"(int8_t)((({text.at(MUL)} & {mask}) ^ {sign}) - {sign})", UNARY)
