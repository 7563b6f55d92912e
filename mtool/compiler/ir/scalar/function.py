"""A scalar function, and the forms that most of them have."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtool.compiler.ir.expr import Expr
from mtool.compiler.ir.scalar.text import ADD, COMPARE, UNARY, Text, boolean, wrap
from mtool.compiler.ir.types import DType

A = Any  # arrays of any shape; NumPy's own rules apply


@dataclass(frozen=True, slots=True)
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
    """Return an operand as an unsigned number of a signed type's size; of a cast to that type the bits stay."""
    own = c.removeprefix(f"({dtype.c})")
    return own if own.startswith(f"((u{dtype.c})") else f"(u{dtype.c}){own}"


def compare(symbol: str, meaning: Callable[..., A]) -> Function:
    """Return a comparison: a bool of two numbers."""
    return Function(
        lambda expr, a, b: meaning(a, b),
        lambda expr, a, b: boolean(f"{a.at(ADD)} {symbol} {b.at(ADD)}", COMPARE),
    )


def libm(name: str, meaning: Callable[..., A]) -> Function:
    """Return a function of math.h: `expf` for float, `exp` for double."""

    def text(expr: Expr, *args: Text) -> Text:
        suffix = "" if expr.dtype is DType.FLOAT64 else "f"
        return Text(f"{name}{suffix}({', '.join(arg.c for arg in args)})")

    return Function(lambda expr, *args: np.asarray(meaning(*args)).astype(expr.dtype.numpy), text)


def inline(name: str, meaning: Callable[..., A]) -> Function:
    """Return an inline function of mt_scalar.h, one for each type: mt_max_f32, mt_max_i32."""

    def text(expr: Expr, *args: Text) -> Text:
        return Text(f"{name}_{expr.dtype.code}({', '.join(arg.c for arg in args)})")

    return Function(lambda expr, *args: np.asarray(meaning(*args)).astype(expr.dtype.numpy), text)


def bits(symbol: str, meaning: Callable[..., A]) -> Function:
    """Return an operator of C on the bits of two integers."""

    def text(expr: Expr, a: Text, b: Text) -> Text:
        return Text(f"({expr.dtype.c})({a.at(UNARY)} {symbol} {b.at(UNARY)})", UNARY)

    return Function(lambda expr, a, b: meaning(a, b).astype(expr.dtype.numpy), text)


def predicate(name: str, meaning: Callable[..., A]) -> Function:
    """Return a test of math.h: a bool of one number."""
    return Function(lambda expr, a: meaning(a), lambda expr, a: boolean(f"{name}({a.c}) != 0", COMPARE))
