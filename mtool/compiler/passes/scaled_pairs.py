"""Integer arithmetic for sums and products of two 8-bit numbers, equal to the float formula for all 65,536 pairs.

A total in fixed point is shifted to the result: (a*m + b*n + o) >> s, or ((a - z)*(b - y)*m + o) >> s. The search for
the numbers compares each step of the result with the totals below and above it. Where a total lies halfway between two
results, float32's own rounding decides, differently from pair to pair; such totals are near a multiple of 2^s, and
those pairs alone are computed otherwise.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, DType, Expr
from mtool.compiler.ir.expr import call, const, number
from mtool.compiler.ir.scalar import FUNCTIONS, NearTie, RescalePair, Shifted

SEARCH = 6  # the largest distance from a pair's rounded multipliers at which others are tried
SAMPLE = 15  # the stride of the first, quick comparison
SPAN = 256  # the largest distance from a product's rounded multiplier
SHIFTS = range(23, 5, -1)  # of a product's total, those tried
MAX_FACTOR = 2**30  # of a product's high word: mt_high_product of mt_math.h
MAX_NEAR = 1 / 16  # the largest share of pairs that the float formula computes, and of a step that counts as near
RARE = 1 / 1000  # the share of pairs up to which that is cheaper than tables
MAX_DENOMINATOR = 512  # of the ratio of two scales with which sums lie halfway
SMALL = (DType.INT8, DType.UINT8)
LookUp = Callable[[Expr, Array], Expr]
Codes = tuple[Array, Array]
Term = tuple[Expr, float, int]  # an 8-bit expression, its scale and zero point


@frozen
class ScaledSum:
    """A sum a * ratios[0] + b * ratios[1] + offset of two 8-bit expressions, rounded and clamped to limits.

    zeros: their zero points; step: the result's scale, in the unit of the terms.
    """

    atoms: tuple[Expr, Expr]
    ratios: tuple[float, float]
    offset: float
    limits: tuple[int, int]
    zeros: tuple[int, int] = (0, 0)
    step: float = 1.0

    @classmethod
    def of(cls, part: Expr) -> "ScaledSum | None":
        """Match a `quantize` of float arithmetic, or TFLite's `rescale` to 8 bits; None: no match."""
        if part.args[1].op != "const" or part.args[2].op != "const":
            return None
        if part.op == "quantize":
            terms, step, zero = _terms(part.args[0], _dequantized), float(part.args[1].value), int(part.args[2].value)
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
        return cls((a, b), ratios, zero - ratios[0] * a_zero - ratios[1] * b_zero, limits, (a_zero, b_zero), step)

    def exact(self, part: Expr, target: Array, codes: Codes) -> Expr | None:
        """Return a sum with multipliers, an offset and a shift that gives `target` [a, b] everywhere; None: not found.

        For a pair of multipliers, the valid offsets for each of the 65,536 sums are an interval; all must intersect.
        """
        (low, high), (a, b) = self.limits, codes
        largest = int(max(np.abs(a).max(), np.abs(b).max()))
        steps = sorted(itertools.product(range(-SEARCH, SEARCH + 1), repeat=2), key=lambda d: abs(d[0]) + abs(d[1]))
        for shift in self.shifts(largest):
            left, right = (round(ratio * 2**shift) for ratio in self.ratios)
            least = np.where(target > low, target << shift, -(2**40))
            most = np.where(target < high, ((target + 1) << shift) - 1, 2**40)
            for more_left, more_right in steps:
                for rows in (slice(None, None, SAMPLE), slice(None)):  # a sample rules out most multipliers
                    sums = (a[rows] * (left + more_left))[:, None] + (b[rows] * (right + more_right))[None]
                    first, last = int((least[rows, rows] - sums).max()), int((most[rows, rows] - sums).min())
                    if first > last:
                        break
                added = (first + last) // 2
                if first <= last and np.abs(sums).max() + abs(added) < 2**31:
                    pair = RescalePair(left + more_left, right + more_right, added, shift, low, high)
                    return Expr("rescale_pair", part.dtype, self.atoms, pair)
        return None

    def even(self, part: Expr, target: Array, codes: Codes) -> Expr | None:
        """Return a sum that rounds ties to even, if it gives `target` [a, b] everywhere.

        It is for scales that are powers of two, with which ties occur.
        """
        shift = max(self.shifts(255), default=0)
        if shift < 1:
            return None
        left, right = (round(ratio * 2**shift) for ratio in self.ratios)
        zero_point = self.offset + sum(ratio * zero for ratio, zero in zip(self.ratios, self.zeros, strict=True))
        added = -left * self.zeros[0] - right * self.zeros[1]
        pair = RescalePair(left, right, added, shift, *self.limits, even=True, zero_point=round(zero_point))
        expr = Expr("rescale_pair", part.dtype, self.atoms, pair)
        got = FUNCTIONS["rescale_pair"].meaning(expr, codes[0][:, None], codes[1][None])
        return expr if np.array_equal(got, target) else None

    def beside_ties(self, part: Expr, target: Array, codes: Codes, terms: Codes, look_up: LookUp) -> Expr | None:
        """Return an integer expression with the results `target` of `part`, if few sums or only ties are in its way.

        Args:
            codes: all values of `a` and of `b`.
            terms: the two terms' values.
            look_up: returns the expression of an element of a constant table, for an 8-bit index.
        """
        shift = max(self.shifts(255), default=0)
        if shift < 1:
            return None
        left, right = (round(ratio * 2**shift) for ratio in self.ratios)
        offset = round(self.offset * 2**shift) + (1 << (shift - 1))
        near = Near.of(target, (codes[0] * left)[:, None] + codes[1] * right + offset, shift, self.limits)
        if near is None:
            return None
        a, b = (call("cast", atom, dtype=DType.INT32) for atom in self.atoms)
        total = _plus(offset + near.added, _times(a, left)) + _times(b, right)
        added = [self._added(number, terms[number], codes[number]) for number in (0, 1)]
        return near.expression(part, total, target, self.atoms, added, look_up)

    def _added(self, number: int, values: Array, codes: Array) -> Array:
        """Return by how much each value of a term is above the code times a fraction of the step, float64."""
        fraction = Fraction(self.ratios[number]).limit_denominator(MAX_DENOMINATOR)
        return values - (codes - self.zeros[number]) * (self.step * fraction.numerator / fraction.denominator)

    def shifts(self, largest: int) -> range:
        """Return the shifts, largest first, with which no sum overflows 32 bits."""
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


def _dequantized(expr: Expr) -> Term | None:
    """Match (x - zero) * scale of floats."""
    if expr.op != "mul" or expr.args[1].op != "const" or expr.args[0].op != "cast":
        return None
    inner, zero = expr.args[0].args[0], 0
    if inner.op == "sub" and inner.args[1].op == "const":
        inner, zero = inner.args[0], int(inner.args[1].value)
    atom = inner.args[0] if inner.op == "cast" else inner
    return (atom, float(expr.args[1].value), zero) if atom.dtype in SMALL else None


def _rescaled(expr: Expr) -> Term | None:
    """Match (x - zero) * 2^n of int32, possibly rescaled."""
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
    """Return the factor of a rescale by constants."""
    _, multiplier, shift = part.args
    return int(multiplier.value) / float(2 ** (32 + int(shift.value)))


@frozen
class ScaledProduct:
    """A product (a - zeros[0]) * (b - zeros[1]) * ratio of two 8-bit expressions, rounded and clamped to limits."""

    atoms: tuple[Expr, Expr]
    zeros: tuple[int, int]
    ratio: float
    zero_point: int
    limits: tuple[int, int]

    @classmethod
    def of(cls, part: Expr) -> "ScaledProduct | None":
        """Match a `quantize` of a product of dequantized numbers; None: no match."""
        inner = part.args[0]
        if part.op != "quantize" or inner.op != "mul" or any(arg.op != "const" for arg in part.args[1:]):
            return None
        left, right = (_dequantized(arg) for arg in inner.args)
        if left is None or right is None or left[0] == right[0] or not left[1] * right[1] > 0:
            return None
        ratio = left[1] * right[1] / float(part.args[1].value)
        limits = part.value or part.dtype.limits
        return cls((left[0], right[0]), (left[2], right[2]), ratio, int(part.args[2].value), limits)

    def total(self, multiplier: int, offset: int) -> Expr:
        """Return product * multiplier + offset, as integers of 32 bits; one factor is multiplied in advance."""
        a, b = (call("cast", atom, dtype=DType.INT32) for atom in self.atoms)
        if multiplier == 1:
            return (a - self.zeros[0]) * (b - self.zeros[1]) + offset
        scaled = _plus(-self.zeros[1] * multiplier, _times(b, multiplier))
        return _plus(offset, (a - self.zeros[0]) * scaled)

    def products(self, codes: Codes) -> Array:
        """Return the products of all pairs of codes."""
        return np.asarray((codes[0] - self.zeros[0])[:, None] * (codes[1] - self.zeros[1]))

    def exact(self, part: Expr, target: Array, codes: Codes) -> Expr | None:
        """Return a product with a multiplier, an offset and a shift that gives `target` everywhere; None: not found."""
        steps, dtype = Steps.of(target, self.products(codes), self.limits), part.dtype
        parameters = steps.multiplier(self.ratio, self.zero_point)
        if parameters is not None:
            multiplier, offset, shift = parameters
            return Expr("shifted", dtype, (self.total(multiplier, offset),), Shifted(shift, *self.limits))
        wide = steps.wide_multiplier(self.ratio, self.zero_point)
        if wide is None:
            return None
        high = call("high_product", self.total(1, 0), const(wide[0], DType.INT32)) + wide[1]
        return Expr("shifted", dtype, (high,), Shifted(wide[2], *self.limits))

    def even(self, part: Expr, target: Array, codes: Codes) -> Expr | None:
        """Return a total that is rounded with ties to even, as float32 does it if the ratio has few bits."""
        products = self.products(codes)
        mantissa, exponent = math.frexp(self.ratio)
        for bits in range(1, 9):
            multiplier, shift = round(mantissa * 2**bits), bits - exponent
            if multiplier == mantissa * 2**bits and 1 <= shift <= 30 and np.abs(products).max() * multiplier < 2**30:
                shifted = Shifted(shift, *self.limits, even=True, zero_point=self.zero_point)
                expr = Expr("shifted", part.dtype, (self.total(multiplier, 0),), shifted)
                got = FUNCTIONS["shifted"].meaning(expr, products * multiplier)
                return expr if np.array_equal(got, target) else None
        return None

    def beside_ties(self, part: Expr, target: Array, codes: Codes, terms: Codes, look_up: LookUp) -> Expr | None:
        """Return an expression with the results `target`; the arguments are those of a sum."""
        products, factors = self.products(codes), [code - zero for code, zero in zip(codes, self.zeros, strict=True)]
        largest = int(np.abs(products).max()) * self.ratio + abs(self.zero_point) + 2
        shift = min(23, math.floor(31 - math.log2(largest)))
        if shift < 1:
            return None
        multiplier, offset = round(self.ratio * 2.0**shift), (2 * self.zero_point + 1) << shift >> 1
        near = Near.of(target, products * multiplier + offset, shift, self.limits)
        if near is None:
            return None
        more = []
        for factor, term in zip(factors, terms, strict=True):
            share = np.where(factor == 0, np.nan, term / np.where(factor == 0, 1, factor))
            more.append(np.nan_to_num(share / np.nanmean(share) - 1))
        total = self.total(multiplier, offset + near.added)
        return near.expression(part, total, target, self.atoms, more, look_up, turns_at=offset + near.added)


def _times(number: Expr, factor: int) -> Expr:
    return number * call("factor", const(factor, DType.INT32))


def _plus(first: int, product: Expr) -> Expr:
    return call("factor", const(first, DType.INT32)) + product if first else product


@frozen
class Near:
    """The totals near a multiple of 2^shift, of which a shift does not give all results.

    Attributes:
        total: of all pairs, with `added`.
        added: the number added to the totals, half the window.
        where: for which pairs a total's fractional bits are within the window, bool [256, 256].
        limits: the least and the greatest result.
    """

    total: Array
    added: int
    where: Array
    shift: int
    limits: tuple[int, int]

    @classmethod
    def of(cls, target: Array, total: Array, shift: int, limits: tuple[int, int]) -> "Near | None":
        """Find the smallest window with all pairs in it whose shifted total is not `target`; None: it is too large."""
        half = 1 << (shift - 1)
        is_wrong = np.clip(total >> shift, *limits) != target
        apart = np.abs(((total + half) & (2 * half - 1)) - half)
        added = int(apart[is_wrong].max(initial=0)) + 1
        if added > half * MAX_NEAR or np.abs(total).max() + added >= 2**31:
            return None
        moved = total + added
        where = ((moved & (2 * half - 1)) < 2 * added) & (moved >> shift > limits[0]) & (moved >> shift <= limits[1])
        return cls(moved, added, where, shift, limits)

    @property
    def share(self) -> float:
        """The share of pairs near a multiple."""
        return float(self.where.mean())

    def expression(
        self, part: Expr, total: Expr, target: Array, atoms: tuple[Expr, Expr], added: Sequence[Array],
        look_up: LookUp, turns_at: int | None = None,
    ) -> Expr | None:  # fmt: skip
        """Return an expression with the results `target` of `part`; None: not found.

        Where a total lies halfway between two results, float32 has rounded both operands and their sum or product. What
        it added to them, beside its own rounding of the result, are two numbers of 8 bits; the tie goes down if
        their sum is below the limit of its result. That takes three tables; where ties are rare, `part` itself is
        computed.

        Args:
            part: the float formula.
            total: the total as an expression.
            target: the results of all pairs.
            atoms: the 8-bit operands.
            added: what was added to each, float64 [256].
            look_up: returns the expression of an element of a constant table, for an 8-bit index.
            turns_at: the total below which what was added counts with the opposite sign.
        """
        scale = 126 / max(sum(float(np.abs(amount).max()) for amount in added), 1e-30)
        errors = [np.rint(amount * scale).astype(np.int8) for amount in added]
        error = errors[0].astype(np.int64)[:, None] + errors[1]
        limits = self._limits_of(target, error if turns_at is None else np.where(self.total < turns_at, -error, error))
        near_tie = NearTie(self.shift, 2 * self.added, *self.limits)
        if self.share <= RARE or limits is None:
            if self.share > MAX_NEAR:
                return None
            shifted = Expr("shifted", part.dtype, (total,), Shifted(self.shift, *self.limits))
            return call("where", Expr("is_near_tie", DType.BOOL, (total,), near_tie), part, shifted, dtype=part.dtype)
        first, second = (
            call("cast", look_up(atom, table), dtype=DType.INT32) for atom, table in zip(atoms, errors, strict=True)
        )
        step = Expr("shifted", DType.INT32, (total,), Shifted(self.shift))
        limit = call("cast", look_up(call("cast", step, dtype=DType.UINT8), limits), dtype=DType.INT32)
        sum_of_both = first + second
        if turns_at is not None:
            is_below = call("less", total, const(turns_at, DType.INT32), dtype=DType.BOOL)
            sum_of_both = call("where", is_below, number(0) - sum_of_both, sum_of_both)
        is_down = call("less", sum_of_both, limit, dtype=DType.BOOL)
        return Expr("shifted_tie", part.dtype, (total, is_down), near_tie)

    def _limits_of(self, target: Array, error: Array) -> Array | None:
        """Return for each result, int8 [256] by its 8 bits, the error from which on its ties go up; None: no limits."""
        step = self.total >> self.shift
        number, is_up = step & 255, step == target
        up, down = self.where & is_up, self.where & ~is_up
        if (down & (step - 1 != target)).any():
            return None
        first, last = np.full(256, 128), np.full(256, -129)
        np.minimum.at(first, number[up], error[up])
        np.maximum.at(last, number[down], error[down])
        if (last >= first).any() or last.max() > 126:
            return None
        return np.where(last > -129, last + 1, np.minimum(first, 127)).astype(np.int8)


@frozen
class Steps:
    """Where the results of whole numbers step up, if they rise with them.

    Attributes:
        step: the results, int64 [K].
        below: the greatest number with a smaller result.
        reached: the least number with that result or a greater one.
        reach: the greatest magnitude of all numbers.
    """

    step: Array
    below: Array
    reached: Array
    reach: int

    @classmethod
    def of(cls, target: Array, numbers: Array, limits: tuple[int, int]) -> "Steps":
        """Find the steps of results, for numbers in any order."""
        low, high = limits
        most, least = np.full(high - low + 1, -(2**40)), np.full(high - low + 1, 2**40)
        np.maximum.at(most, target.reshape(-1) - low, numbers.reshape(-1))
        np.minimum.at(least, target.reshape(-1) - low, numbers.reshape(-1))
        below, reached = np.maximum.accumulate(most)[:-1], np.minimum.accumulate(least[::-1])[::-1][1:]
        is_reached = (below > -(2**40)) & (reached < 2**40)
        step = np.arange(low + 1, high + 1)
        return cls(step[is_reached], below[is_reached], reached[is_reached], int(np.abs(numbers).max()))

    @property
    def rise(self) -> bool:
        """Whether the result is a rising function of the number."""
        return bool((self.below < self.reached).all())

    def multiplier(self, ratio: float, zero_point: int) -> tuple[int, int, int] | None:
        """Return a multiplier, an offset and a shift of 32-bit totals with these steps; None: not found."""
        if not self.rise:
            return None
        for shift in SHIFTS:
            near = round(ratio * 2**shift)
            if near * self.reach + (abs(zero_point) + 1) * 2**shift >= 2**31 or near < 1:
                continue
            span = min(SPAN, near // 64)
            factors = np.arange(near - span, near + span + 1)[:, None]
            first = ((self.step << shift) - self.reached * factors).max(axis=1)
            last = ((self.step << shift) - 1 - self.below * factors).min(axis=1)
            added = (first + last) // 2
            fits = (first <= last) & (factors[:, 0] * self.reach + np.abs(added) < 2**31)
            if fits.any():
                best = np.flatnonzero(fits)[np.argmin(np.abs(np.flatnonzero(fits) - span))]
                return int(factors[best, 0]), int(added[best]), shift
        return None

    def wide_multiplier(self, ratio: float, zero_point: int) -> tuple[int, int, int] | None:
        """Return the same for totals that are the product's high word and an offset."""
        shift = 30 - 32 - math.frexp(ratio)[1]
        if not self.rise or not 1 <= shift <= 20 or self.reach >= 2**16:
            return None
        near = round(ratio * 2.0 ** (32 + shift))
        factors = np.arange(near - SPAN, near + SPAN + 1)[:, None]
        added = (zero_point << shift) + (1 << (shift - 1))
        reached, below = ((bound * factors >> 32) + added >> shift for bound in (self.reached, self.below))
        fits = ((reached >= self.step) & (below < self.step)).all(axis=1) & (factors[:, 0] < MAX_FACTOR)
        if not fits.any():
            return None
        best = np.flatnonzero(fits)[np.argmin(np.abs(np.flatnonzero(fits) - SPAN))]
        return int(factors[best, 0]), added, shift
