"""gemmlowp's logistic function and hyperbolic tangent of 16-bit fixed point: crt/include/mt_fixed16.h in NumPy.

An argument has so many bits before the point as the expression's value says; a result has 15 behind it.
"""

import numpy as np

from mtool.compiler.ir.expr import Expr
from mtool.compiler.ir.scalar.function import A, Function
from mtool.compiler.ir.scalar.text import Text

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
    """Return exp of what is not positive."""
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
    """Return 4 / (1 + x), with two bits before the point."""
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
