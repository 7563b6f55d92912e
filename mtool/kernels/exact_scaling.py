"""Requantisation by one product and one saturating shift, proved to give what ONNX's float scale gives.

With a multiplier M of a channel and an offset of the layer, ((acc * M) >> 32) + offset >> places is a step function of
the accumulator, as saturate(round_half_even((float)acc * scale) + zero_point) is. Both rise, and have 8 bits: they are
equal if each of the 255 steps is taken at the same accumulator. For each step that is a condition on M, and a channel
has the multipliers that fulfil all of them, or none: of a few in a hundred some accumulator's product lies within
float32's own rounding of a half, where the float goes to the even neighbour. Those keep their scale.
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from mtool.ir.blocks import row_sums
from mtool.ir.scalar import Requantise
from mtool.ir.types import Array
from mtool.kernels.scaling import FloatScaling, Scaling

PLACES = (4, 1)  # that are tried: a scale has 24 bits, and its multiplier of 31 keeps them in one or the other
LIMIT = 2**31
FAR = 2**62
NEAR = 3  # how far from its quotient a step is looked for
LEAST = 0.5  # the part of the channels that must have a multiplier


@dataclass(frozen=True, slots=True)
class Reach:
    """The least and the greatest sum of each channel with its bias, int64 [N], and which have weights, bool [N]."""

    least: Array
    most: Array
    live: Array

    @classmethod
    def of(cls, weights: Array, bias: Array) -> Self:
        """Find them for inputs of int8.

        Args:
            weights: integers [N, ...].
            bias: int32 [N].
        """
        sums, start = row_sums(weights), bias.astype(np.int64)
        least = start - 128 * sums.positive + 127 * sums.negative
        most = start + 127 * sums.positive - 128 * sums.negative
        return cls(least, most, sums.magnitude > 0)


@dataclass(frozen=True, slots=True)
class ExactScaling(Scaling):
    """A multiplier and an offset a channel, or 0 and the bits of its scale; see mt_requantise_exact of mt_math.h.

    scale: float32 [N], of all channels.
    """

    places: int
    scale: Array

    @property
    def kind(self) -> str:
        """By the places, which the instructions hold."""
        return f"_exact{self.places}"

    @property
    def meaning(self) -> str:
        """Two words."""
        return "multiplier and offset (or 0 and the bits of a float)"

    @property
    def has_multiplier(self) -> Array:
        """Which channels have one, bool [N]."""
        return np.asarray(self.words[:, 0] != 0)

    def without_dead_channels(self, weights: Array, bias: Array) -> tuple[Array, Self]:
        """Make the bias small; what it gives is in the offset already."""
        bias, floats = FloatScaling.of(self.scale).without_dead_channels(weights, bias)
        return bias, replace(self, scale=floats.scale)

    def together(self, count: int) -> Self:
        """Give none of so many neighbours a multiplier where one has none."""
        padded = self.padded(-(-len(self.words) // count) * count)
        all_have = np.repeat(padded.has_multiplier.reshape(-1, count).all(axis=1), count)[: len(self.words)]
        return replace(self, words=np.where(all_have[:, None], self.words, _bits(self.scale)))

    def stepped(self, sign: Array) -> Self:
        """Turn the sign, or divide; the runtime's function has 8 places more."""
        multiplier, offset = self.words[:, 0].view(np.int32), self.words[:, 1].view(np.int32)
        whole = np.stack([multiplier * sign.astype(np.int32), offset << 8], axis=1).astype(np.int32).view(np.uint32)
        scale = (self.scale * sign / np.float32(256)).astype(np.float32)
        return replace(self, words=np.where(self.has_multiplier[:, None], whole, _bits(scale)), scale=scale)

    def padded(self, count: int) -> Self:
        """Return numbers for `count` channels; the new ones have a multiplier, and give 0."""
        more = count - len(self.words)
        words = np.concatenate([self.words, np.array([[1, 0]], np.uint32).repeat(more, axis=0)])
        return replace(self, words=words, scale=np.pad(self.scale, (0, more), constant_values=1))

    def __getitem__(self, channels: slice) -> Self:
        """Return the numbers of some channels."""
        return replace(self, words=self.words[channels], scale=self.scale[channels])


def _bits(scale: Array) -> Array:
    """Return the words of channels without a multiplier, uint32 [N, 2]."""
    return np.stack([np.zeros(len(scale), np.uint32), np.ascontiguousarray(scale, np.float32).view(np.uint32)], axis=1)


@dataclass(frozen=True, slots=True)
class Steps:
    """The accumulators at which a layer's channels take their steps.

    Attributes:
        scale: float32 [N].
        first: the least accumulator that gives `step` or more, int64 [N, steps]; one beyond the reach where none does.
        step: above the zero point, int64 [steps].
        reach: of the accumulators.
    """

    scale: Array
    first: Array
    step: Array
    reach: Reach

    @classmethod
    def of(cls, scale: Array, how: Requantise, reach: Reach) -> Self:
        """Find them: near the quotients of the halves before the steps, by asking the float arithmetic itself."""
        step = np.arange(how.low + 1, how.high + 1, dtype=np.int64) - how.zero_point
        factor = scale.astype(np.float32)[:, None]
        halves = (step - 0.5)[None] / factor.astype(np.float64)
        least, beyond = reach.least[:, None], reach.most[:, None] + 1
        first = np.clip(np.ceil(halves), least - 1, beyond + 1).astype(np.int64) + NEAR
        lower = first - 2 * NEAR
        for _ in range(2 * NEAR):  # down from above: the float function rises
            below = np.rint((first - 1).astype(np.float32) * factor) >= step
            first = np.where(below, first - 1, first)
        first_is_right = np.rint(first.astype(np.float32) * factor) >= step
        known = ((first > lower) | (first <= least)) & (first_is_right | (first >= beyond))
        return cls(scale, np.where(known, np.clip(first, least, beyond), -FAR), step, reach)

    def multipliers(self, places: int) -> Array:
        """Return a multiplier for each channel that has one, int64 [N]; 0: none.

        Every accumulator from `first` on has to give the step, and the one before it less.
        """
        wide = (self.step << (32 + places)) - (1 << (31 + places))  # what acc * multiplier has to reach
        least, most = self.reach.least[:, None], self.reach.most[:, None]
        known = np.asarray((self.first > -FAR).all(axis=1))
        lower, upper = np.full(len(known), 1), np.full(len(known), LIMIT - 1)
        for at, reached in ((self.first, True), (self.first - 1, False)):
            here = (at >= least) & (at <= most)
            # at * M >= wide, or at * M <= wide - 1; divided by a negative number the other way round
            bound = np.broadcast_to(wide if reached else wide - 1, at.shape)
            divisor = np.where(at == 0, 1, at)
            down, up = bound // divisor, -(-bound // divisor)
            from_below = here & ((at > 0) if reached else (at < 0))
            from_above = here & ((at < 0) if reached else (at > 0))
            lower = np.maximum(lower, np.where(from_below, up, 1).max(axis=1, initial=1))
            upper = np.minimum(upper, np.where(from_above, down, LIMIT - 1).min(axis=1, initial=LIMIT - 1))
            known &= ~(here & (at == 0) & ((bound > 0) if reached else (bound < 0))).any(axis=1)
        nearest = np.clip(np.rint(self.scale.astype(np.float64) * 2.0 ** (32 + places)), lower, upper).astype(np.int64)
        return np.where(known & (lower <= upper), nearest, 0)


def exact_scaling(scaling: FloatScaling, how: Requantise, weights: Array, bias: Array) -> Scaling:
    """Return multipliers for the channels of a layer of int8 that have one; the scaling as it is: too few have.

    Args:
        scaling: of N channels.
        how: the limits and zero point of the results.
        weights: integers [N, ...], with their offset if they are stored without one.
        bias: int32 [N], the input's zero point folded in.
    """
    if not np.isfinite(scaling.scale).all():
        return scaling
    reach, scale = Reach.of(weights, bias), np.where(scaling.scale > 0, scaling.scale, np.float32(1))
    steps = Steps.of(scale, how, reach)
    known = np.clip(np.rint(bias.astype(np.float32) * scaling.scale) + how.zero_point, how.low, how.high)
    best = None
    for places in PLACES:
        found = np.where(reach.live & (scaling.scale > 0), steps.multipliers(places), 0)
        half = 1 << (places - 1)
        found = np.where(_stays(found, reach, how, places), found, 0)
        offset = np.full(len(scale), (how.zero_point << places) + half)
        words = np.stack([found, offset], axis=1)
        words[~reach.live] = 1, 0
        words[~reach.live, 1] = (known[~reach.live].astype(np.int64) << places) + half
        if best is None or (words[:, 0] != 0).sum() > (best[0][:, 0] != 0).sum():
            best = words, places
        if (words[:, 0] != 0).all():
            break
    assert best is not None
    words, places = best
    exact = words[:, 0] != 0
    if exact.mean() < LEAST:
        return scaling
    bits = np.where(exact[:, None], words.astype(np.int32).view(np.uint32), _bits(scaling.scale))
    return ExactScaling(bits, places, scaling.scale)


def _stays(multiplier: Array, reach: Reach, how: Requantise, places: int) -> Array:
    """Whether no sum with the offset leaves 32 bits, in pairs of 256 times the sum either; bool [N]."""
    furthest = np.maximum(-reach.least, reach.most).astype(np.float64) * multiplier / 2.0**32
    return (furthest + (abs(how.zero_point) + 1) * 2.0**places) * 256 < LIMIT
