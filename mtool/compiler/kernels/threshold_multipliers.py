"""The sums at which a requantized layer's result steps up, and the multipliers with the same steps.

A requantization to 8 bits is a monotonic function of the sum with at most 256 results, and so is
(sum * multiplier + half) >> places: they are equal if they step at the same sums. Each step is a condition on the
multiplier.
"""

from collections.abc import Callable
from typing import Self

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir.types import Array, row_sums

MOST_MULTIPLIER = 2**31 - 1
MOST_SUM = 2**31 - 1
NEAR = 3  # the largest distance from its quotient at which a step is searched
UNKNOWN = -(2**62)  # a step that was not found


@frozen
class Reach:
    """The smallest and the largest sum of each channel with bias, int64 [N], and whether it has weights, bool [N]."""

    least: Array
    most: Array
    live: Array

    @classmethod
    def of(cls, weights: Array, bias: Array, low: int = -128, high: int = 127) -> Self:
        """Compute the range for inputs between two limits.

        Args:
            weights: integers [N, ...], less their zero points.
            bias: integers of N elements.
            low: the least input, less its zero point unless the bias has it.
            high: the greatest.
        """
        sums, start = row_sums(weights), bias.reshape(-1).astype(np.int64)
        least = start + low * sums.positive + high * sums.negative
        most = start + high * sums.positive + low * sums.negative
        return cls(least, most, sums.magnitude > 0)

    @classmethod
    def within(cls, bound: int, count: int) -> Self:
        """Return the reach of `count` channels of which only the greatest magnitude is known."""
        most = np.full(count, bound, np.int64)
        return cls(-most, most, most > 0)

    @property
    def of_all(self) -> Self:
        """The range of all channels together, [1]."""
        live = np.asarray(self.live.any(keepdims=True))
        return type(self)(self.least.min(keepdims=True), self.most.max(keepdims=True), live)

    @property
    def of_32_bits(self) -> Self:
        """The range clipped to 32 bits, with either sign."""
        least, most = (np.clip(some, -MOST_SUM, MOST_SUM) for some in (self.least, self.most))
        return type(self)(least, most, self.live)


def first_sums(takes: Callable[[Array], Array], quotients: Array, least: Array, most: Array) -> Array:
    """Return the least sum with which each step is taken, int64 [N, steps].

    `most` + 1 where none in the reach takes it, UNKNOWN where it is not near its quotient.

    Args:
        takes: whether sums, int64 [N, steps], take their steps; rising.
        quotients: float64 [N, steps], the positions of the steps without rounding.
        least: the least sum, int64 [N, 1].
        most: the greatest.
    """
    beyond = most + 1
    near = np.clip(np.ceil(quotients), least - 1, beyond + 1).astype(np.int64)
    first = near - NEAR
    for jump in (4, 2, 1):  # a binary search up to NEAR
        first += np.where(takes(first + jump - 1), 0, jump)
    is_near = ((first > near - NEAR) | (first <= least)) & ((first <= near + NEAR) | (near + NEAR >= beyond))
    return np.where(is_near, np.clip(first, least, beyond), UNKNOWN)


def multiplier_bounds(first: Array, wide: Array, least: Array, most: Array) -> tuple[Array, Array]:
    """Return the least and the greatest multiplier with which each step is taken where it has to be, int64 [N] each.

    The least is above the greatest where no multiplier does that.

    Args:
        first: the least sum with which a step is taken, int64 [N, steps]; beyond the reach: none.
        wide: what a sum's product has to reach for the step, int64 [N or 1, steps].
        least: the least sum, int64 [N, 1].
        most: the greatest.
    """
    possible = (first > UNKNOWN // 2).all(axis=1)
    lower, upper = np.ones(len(first), np.int64), np.full(len(first), MOST_MULTIPLIER)
    # at * M >= wide, and at * M <= wide - 1 one before; divided by a negative number the other way round
    for at, bound, is_before in ((first, -wide, False), (first - 1, wide - 1, True)):
        here = (at >= least) & (at <= most)
        rising, falling = here & (at > 0), here & (at < 0)
        quotient = bound // np.maximum(np.abs(at), 1)
        above, below = (rising, falling) if is_before else (falling, rising)
        lower = np.maximum(lower, -quotient.min(axis=1, where=below, initial=-1))
        upper = np.minimum(upper, quotient.min(axis=1, where=above, initial=MOST_MULTIPLIER))
        possible &= ~(here & (at == 0) & (bound < 0)).any(axis=1)
    return np.where(possible, lower, MOST_MULTIPLIER + 1), upper
