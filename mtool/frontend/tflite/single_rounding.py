"""Multipliers that round once to what LiteRT's dense layers of 8 bits round to, who multiply their sums by a float64.

Source: tensorflow/lite/kernels/internal/reference/integer_ops/fully_connected.h: sums of int32 times the scales of
input and weights over that of the output, ties away from zero. That and (sum * multiplier + half) >> places are
rising functions of the sum with at most 256 results: they are equal if they take each step at the same sum. A step is
a condition on the multiplier; of those that fulfil all, the nearest to the scale is taken. Where a sum lies on a tie,
or so close to it that 31 bits can't tell, that is not the scale's own.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from mtool.frontend.tflite.fixed_point import multipliers
from mtool.ir.blocks import row_sums
from mtool.ir.types import Array

NEAR = 3  # how far from its quotient a step is looked for
MOST_PLACES = 53  # of a result of 9 bits in 63
MOST_SUM = 2**31 - 1
MOST_MULTIPLIER = 2**31 - 1
ROWS = 1024  # channels at a time


@dataclass(frozen=True, slots=True)
class Reach:
    """The least and the greatest sum of each channel, int64 [N]."""

    least: Array
    most: Array

    @classmethod
    def of(cls, weights: Array, bias: Array, low: int, high: int) -> Self:
        """Find them for inputs between two limits, which are less their zero point.

        Args:
            weights: integers [N, ...] less their zero points.
            bias: integers [N].
            low: the least input.
            high: the greatest.
        """
        sums, start = row_sums(weights), bias.astype(np.int64)
        least = start + low * sums.positive + high * sums.negative
        most = start + high * sums.positive + low * sums.negative
        return cls(np.clip(least, -MOST_SUM, MOST_SUM), np.clip(most, -MOST_SUM, MOST_SUM))

    @property
    def of_all(self) -> Self:
        """That of all channels together, [1]."""
        return type(self)(self.least.min(keepdims=True), self.most.max(keepdims=True))


def single_rounding(scales: Array, reach: Reach, low: int, high: int) -> tuple[Array, Array] | None:
    """Return int32 multipliers and int8 shifts, as `multipliers` does; None: a channel has none.

    Args:
        scales: float64 [N].
        reach: of the sums, [N].
        low: the least result, less its zero point.
        high: the greatest.
    """
    nominal, shifts = multipliers(scales)
    if (shifts.astype(int) + 32 > MOST_PLACES).any() or (shifts.astype(int) + 32 < 1).any() or not nominal.all():
        return None
    found = nominal.copy()
    steps = np.arange(low + 1, high + 1, dtype=np.int64)
    for start in range(0, scales.size, ROWS):
        rows = slice(start, start + ROWS)
        places = shifts[rows].astype(np.int64)[:, None] + 32
        lower, upper = _bounds(scales[rows, None], places, steps, reach.least[rows, None], reach.most[rows, None])
        if (lower > upper).any():
            return None
        found[rows] = np.clip(nominal[rows], lower, upper)
    return found, shifts


def _bounds(scales: Array, places: Array, steps: Array, least: Array, most: Array) -> tuple[Array, Array]:
    """Return the least and the greatest multiplier of each channel that takes all steps where the scale takes them."""
    first = _first(scales, steps, least, most)
    wide = (steps << places) - (1 << (places - 1))  # what sum * multiplier has to reach
    lower, upper = np.ones(len(scales), np.int64), np.full(len(scales), MOST_MULTIPLIER)
    for at, reached in ((first, True), (first - 1, False)):
        here, bound, divisor = (at >= least) & (at <= most), wide if reached else wide - 1, np.where(at == 0, 1, at)
        # at * M >= wide, or at * M <= wide - 1; divided by a negative number the other way round
        is_lower, is_upper = here & ((at > 0) == reached) & (at != 0), here & ((at < 0) == reached) & (at != 0)
        lower = np.maximum(lower, np.where(is_lower, -(-bound // divisor), 1).max(axis=1, initial=1))
        limit = np.where(is_upper, bound // divisor, MOST_MULTIPLIER)
        upper = np.minimum(upper, limit.min(axis=1, initial=MOST_MULTIPLIER))
    return lower, upper


def _first(scales: Array, steps: Array, least: Array, most: Array) -> Array:
    """Return the least sum that gives each step or more, int64 [N, steps]; one beyond the reach where none does."""
    halves = steps - 0.5
    first = np.clip(np.ceil(halves / scales), least - 2, most + 2).astype(np.int64) + NEAR
    for _ in range(2 * NEAR):  # down from above: the product rises
        product = (first - 1) * scales
        first = np.where((product > halves) | ((product == halves) & (steps > 0)), first - 1, first)
    return np.clip(first, least, most + 1)
