"""Multipliers that round once to what LiteRT's dense layers of 8 bits round to, who multiply their sums by a float64.

Source: tensorflow/lite/kernels/internal/reference/integer_ops/fully_connected.h: sums of int32 times the scales of
input and weights over that of the output, ties away from zero. That and (sum * multiplier + half) >> places are
rising functions of the sum with at most 256 results: they are equal if they take each step at the same sum. A step is
a condition on the multiplier; of those that fulfil all, the nearest to the scale is taken. Where a sum lies on a tie,
or so close to it that 31 bits can't tell, that is not the scale's own.
"""

import numpy as np

from mtool.compiler.frontend.tflite.fixed_point import multipliers
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.threshold_multipliers import Reach, first_sums, multiplier_bounds

MOST_PLACES = 53  # of a result of 9 bits in 63
ROWS = 1024  # channels at a time


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
    halves = steps - 0.5

    def takes(sums: Array) -> Array:
        product = sums * scales
        return np.asarray((product > halves) | ((product == halves) & (steps > 0)))

    first = first_sums(takes, halves / scales, least, most)
    return multiplier_bounds(first, (steps << places) - (1 << (places - 1)), least, most)
