"""Sums of two scaled 8-bit numbers, and the int32 arithmetic that gives the same: (a*m + b*n + o) >> s."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import DType, Expr
from mtool.compiler.ir.scalar import FUNCTIONS, RescalePair
from mtool.compiler.ir.types import Array

SEARCH = 6  # how far from the rounded multipliers of a pair others are tried
SAMPLE = 15  # every how many-th number is looked at first
SMALL = (DType.INT8, DType.UINT8)

Term = tuple[Expr, float, int]  # an 8-bit expression, its scale and zero point


@dataclass(frozen=True, slots=True)
class ScaledSum:
    """A sum a * ratios[0] + b * ratios[1] + offset of two 8-bit expressions, rounded and clamped to limits.

    zeros: their zero points.
    """

    atoms: tuple[Expr, Expr]
    ratios: tuple[float, float]
    offset: float
    limits: tuple[int, int]
    zeros: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, part: Expr) -> "ScaledSum | None":
        """Read it off a `quantise` of float arithmetic, or a `rescale` of TFLite's to 8 bits; None: it is none."""
        if part.args[1].op != "const" or part.args[2].op != "const":
            return None
        if part.op == "quantise":
            terms, step, zero = _terms(part.args[0], _dequantised), float(part.args[1].value), int(part.args[2].value)
            limits = part.value or part.dtype.limits
        elif part.dtype in SMALL and part.args[1].value:
            terms, step, zero = _terms(part.args[0], _rescaled), 1 / _factor(part), part.value.zero_point
            limits = part.value.low, part.value.high
        else:
            return None
        if terms is None or terms[0][0] == terms[1][0]:
            return None
        (a, a_scale, a_zero), (b, b_scale, b_zero) = terms
        ratios = a_scale / step, b_scale / step
        return cls((a, b), ratios, zero - ratios[0] * a_zero - ratios[1] * b_zero, limits, (a_zero, b_zero))

    def exact(self, wanted: Array, a: Array, b: Array) -> RescalePair | None:
        """Find multipliers, an offset and a shift that give `wanted` [a, b] everywhere; None: none were found.

        For a pair of multipliers the offsets that are right for each of the 65,536 sums are an interval: all must meet.
        """
        low, high = self.limits
        largest = int(max(np.abs(a).max(), np.abs(b).max()))
        steps = sorted(itertools.product(range(-SEARCH, SEARCH + 1), repeat=2), key=lambda d: abs(d[0]) + abs(d[1]))
        for shift in self.shifts(largest):
            left, right = (round(ratio * 2**shift) for ratio in self.ratios)
            least = np.where(wanted > low, wanted << shift, -(2**40))
            most = np.where(wanted < high, ((wanted + 1) << shift) - 1, 2**40)
            for more_left, more_right in steps:
                for some in (slice(None, None, SAMPLE), slice(None)):  # a few rule most multipliers out
                    sums = (a[some] * (left + more_left))[:, None] + (b[some] * (right + more_right))[None]
                    first, last = int((least[some, some] - sums).max()), int((most[some, some] - sums).min())
                    if first > last:
                        break
                added = (first + last) // 2
                if first <= last and np.abs(sums).max() + abs(added) < 2**31:
                    return RescalePair(left + more_left, right + more_right, added, shift, low, high)
        return None

    def even(self, wanted: Array, a: Array, b: Array) -> RescalePair | None:
        """Return the roundings of the same numbers with ties to even, if they give `wanted` [a, b] everywhere.

        Of scales that are powers of two, with which ties happen.
        """
        shift = self.shifts(255)[0]
        left, right = (round(ratio * 2**shift) for ratio in self.ratios)
        zero_point = self.offset + sum(ratio * zero for ratio, zero in zip(self.ratios, self.zeros, strict=True))
        added = -left * self.zeros[0] - right * self.zeros[1]
        pair = RescalePair(left, right, added, shift, *self.limits, even=True, zero_point=round(zero_point))
        got = FUNCTIONS["rescale_pair"].meaning(Expr("rescale_pair", DType.INT32, value=pair), a[:, None], b[None])
        return pair if np.array_equal(got, wanted) else None

    def shifts(self, largest: int) -> range:
        """Return the shifts, largest first, with which no sum leaves 32 bits."""
        reach = largest * (abs(self.ratios[0]) + abs(self.ratios[1])) + abs(self.offset) + 2
        return range(min(23, math.floor(31 - math.log2(reach))), 11, -1)


def _terms(expr: Expr, read: Callable[[Expr], Term | None]) -> tuple[Term, Term] | None:
    """Return the two terms of a sum or a difference."""
    if expr.op not in ("add", "sub"):
        return None
    left, right = (read(arg) for arg in expr.args)
    if left is None or right is None:
        return None
    atom, scale, zero = right
    return left, (atom, -scale if expr.op == "sub" else scale, zero)


def _dequantised(expr: Expr) -> Term | None:
    """Read (x - zero) * scale of floats."""
    if expr.op != "mul" or expr.args[1].op != "const" or expr.args[0].op != "cast":
        return None
    inner, zero = expr.args[0].args[0], 0
    if inner.op == "sub" and inner.args[1].op == "const":
        inner, zero = inner.args[0], int(inner.args[1].value)
    atom = inner.args[0] if inner.op == "cast" else inner
    return (atom, float(expr.args[1].value), zero) if atom.dtype in SMALL else None


def _rescaled(expr: Expr) -> Term | None:
    """Read (x - zero) * 2^n of int32, perhaps rescaled."""
    scale, zero = 1.0, 0
    if expr.op == "rescale" and expr.args[1].op == "const" and expr.args[2].op == "const":
        scale, expr = _factor(expr), expr.args[0]
    if expr.op == "mul" and expr.args[1].op == "const":
        scale, expr = scale * float(expr.args[1].value), expr.args[0]
    if expr.op == "sub" and expr.args[1].op == "const":
        zero, expr = int(expr.args[1].value), expr.args[0]
    if expr.op != "cast" or expr.args[0].dtype not in SMALL:
        return None
    return expr.args[0], scale, zero


def _factor(part: Expr) -> float:
    """Return what a rescale by constants multiplies by."""
    _, multiplier, shift = part.args
    return int(multiplier.value) / float(2 ** (32 + int(shift.value)))
