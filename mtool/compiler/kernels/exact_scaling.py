"""Requantization by one product and one saturating shift, proved to give what ONNX's float scale gives.

With a multiplier M of a channel and an offset of the layer, ((acc * M) >> 32) + offset >> places is a step function of
the accumulator, as saturate(round_half_even((float)acc * scale) + zero_point) is. Both rise, and have 8 bits: they are
equal if each of the 255 steps is taken at the same accumulator. For each step that is a condition on M, and a channel
has the multipliers that fulfil all of them, or none: of a few in a hundred some accumulator's product lies within
float32's own rounding of a half, where the float goes to the even neighbour. Those keep their scale.
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Self

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir.scalar import Requantize
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.scaling import FloatScaling, Scaling
from mtool.compiler.kernels.threshold_multipliers import UNKNOWN, Reach, first_sums, multiplier_bounds

PLACES = (4, 1)  # the places to try: a scale's 24 bits fit in a 31-bit multiplier with one or the other
LIMIT = 2**31
LIMIT_OF_PAIRS = 2**23  # of the second channel's sums (mtool.compiler.kernels.dsp)
MOST_MOVED = 2**14  # the most that a bias is moved by
TRIES = 9  # the moves to try
BESIDE = 2**16  # out of 2^32: the distance from a half that counts as near (mt_requantize_fixed_exact of mt_math.h)
FEW = 8  # the most channels without a multiplier for which moves are tried, or a fourth of the layer
MOST = 0.8  # the share of channels with a multiplier at which no other number of places is tried
LEAST = 0.5  # the share of channels that must have a multiplier


@frozen
class ExactScaling(Scaling):
    """A multiplier and an offset a channel, or 0 and the bits of its scale; see mt_requantize_exact of mt_math.h.

    scale: float32 [N], the scales of all channels.
    zero_point: the results' zero point; for two channels without multipliers it takes the place of the second offset.
    """

    places: int
    scale: Array
    zero_point: int
    meaning = "multiplier and offset (or 0 and the bits of a float)"

    @classmethod
    def of_floats(cls, scale: Array, zero_point: int, places: int) -> Self:
        """Return a scaling in which no channel has a multiplier, for float32 scales [N]."""
        return cls(_bits(scale), places, scale, zero_point)

    @property
    def kind(self) -> str:
        """By the places, which the instructions hold."""
        return f"_exact{self.places}"

    @property
    def has_multiplier(self) -> Array:
        """Which channels have one, bool [N]."""
        return np.asarray(self.words[:, 0] != 0)

    def without_dead_channels(self, weights: Array, bias: Array) -> tuple[Array, Self]:
        """Make the bias small; what it gives is in the offset already, or in the scale where there is no multiplier."""
        bias, floats = FloatScaling.of(self.scale).without_dead_channels(weights, bias)
        words = np.where(self.has_multiplier[:, None], self.words, _bits(floats.scale))
        return bias, replace(self, words=words, scale=floats.scale)

    def stepped(self, sign: Array) -> Self:
        """Turn the sign, or divide; the runtime's function has 8 places more."""
        multiplier, offset = self.words[:, 0].view(np.int32), self.words[:, 1].view(np.int32)
        whole = np.stack([multiplier * sign.astype(np.int32), offset << 8], axis=1).astype(np.int32).view(np.uint32)
        scale = (self.scale * sign / np.float32(256)).astype(np.float32)
        return replace(self, words=np.where(self.has_multiplier[:, None], whole, _bits(scale)), scale=scale)

    def beside(self, words: Array) -> Array:
        """With the zero point."""
        of_second = np.where(words[:, 0] == 0, np.uint32(self.zero_point & 0xFFFFFFFF), words[:, 2])
        return np.stack([words[:, 0], words[:, 1], of_second, words[:, 3]], axis=1)

    def fourfold(self) -> Self:
        """Divide; the runtime's function has 2 places more."""
        whole = np.stack([self.words[:, 0], self.words[:, 1] << 2], axis=1)
        scale = (self.scale / np.float32(4)).astype(np.float32)
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


@frozen
class Steps:
    """The accumulators at which the results of a layer's channels step up.

    Attributes:
        scale: float32 [N].
        first: the smallest accumulator that gives `step` or more, int64 [N, steps]; one beyond the range if none does,
            UNKNOWN if it was not found.
        step: the results, relative to the zero point, int64 [steps].
        reach: the range of the accumulators.
    """

    scale: Array
    first: Array
    step: Array
    reach: Reach

    @classmethod
    def of(cls, scale: Array, how: Requantize, reach: Reach) -> Self:
        """Find the steps near the quotients of the halves before them, with the float arithmetic itself."""
        step = np.arange(how.low + 1, how.high + 1, dtype=np.int64) - how.zero_point
        factor = scale.astype(np.float32)[:, None]
        quotients, of_float = (step - 0.5)[None] / factor.astype(np.float64), step.astype(np.float32)

        def takes(sums: Array) -> Array:
            return np.asarray(np.rint(sums.astype(np.float32) * factor) >= of_float)

        return cls(scale, first_sums(takes, quotients, reach.least[:, None], reach.most[:, None]), step, reach)

    def multipliers(self, places: int, moved: Array | int = 0, more: Array | int = 0) -> Array:
        """Return a multiplier for each channel that has one, int64 [N]; 0: none.

        Every accumulator from `first` on has to give the step, and the one before it less.

        Args:
            places: the shift after the product's high word.
            moved: the number added to the accumulators, int64 [N].
            more: the number added to the offset, int64 [N].
        """
        # the threshold for acc * multiplier
        wide = (self.step << (32 + places)) - (1 << (31 + places)) - (np.reshape(more, (-1, 1)) << 32)
        moves = np.reshape(moved, (-1, 1))
        first = np.where(self.first > UNKNOWN, self.first + moves, UNKNOWN)
        lower, upper = multiplier_bounds(
            first, wide, self.reach.least[:, None] + moves, self.reach.most[:, None] + moves
        )
        return np.where(lower <= upper, np.clip(self.nearest(places), lower, upper), 0)

    def nearest(self, places: int) -> Array:
        """Return the multipliers nearest to the scales, int64 [N]."""
        wide = self.scale.astype(np.float64) * 2.0 ** (32 + places)
        return np.rint(np.minimum(wide, 2.0 * LIMIT)).astype(np.int64)

    def moved_multipliers(self, places: int) -> tuple[Array, Array, Array]:
        """Return multipliers for channels with a moved bias, and the changes of bias and offset, int64 [N] each.

        Moving a bias by d adds d * M. If that is close to a multiple of 2^32, which the offset subtracts again, all
        steps move by less than an accumulator. This can help if two steps need different multipliers.
        """
        moves = np.arange(-MOST_MOVED, MOST_MOVED + 1)
        rest = (moves * self.nearest(places)[:, None] + 2**31) % 2**32 - 2**31
        order = np.argpartition(np.abs(rest), TRIES, axis=1)[:, : TRIES + 1]  # one of them is the zero move
        multiplier, moved, more = (np.zeros(len(self.scale), np.int64) for _ in range(3))
        for choice in order.T:
            by = moves[choice]
            removed = -((by * self.nearest(places) + 2**31) >> 32)
            new = self.multipliers(places, by, removed)
            better = (multiplier == 0) & (new > 0)
            multiplier, moved, more = (
                np.where(better, some, old) for some, old in ((new, multiplier), (by, moved), (removed, more))
            )
        return multiplier, moved, more

    def of_channels(self, channels: Array) -> Self:
        """Return the steps of some channels, bool [N]."""
        reach = Reach(self.reach.least[channels], self.reach.most[channels], self.reach.live[channels])
        return replace(self, scale=self.scale[channels], first=self.first[channels], reach=reach)

    def agree_with(self, result: Callable[[Array], Array]) -> bool:
        """Whether a monotonic function of the accumulators, int64 [N, steps], has the float arithmetic's steps."""
        if not (self.first > UNKNOWN).all():
            return False
        least, most = self.reach.least[:, None], self.reach.most[:, None]
        here, before = self.first <= most, self.first - 1 >= least
        reached = result(np.minimum(self.first, most)) >= self.step
        early = result(np.maximum(self.first - 1, least)) >= self.step
        return bool((reached | ~here).all() and not (early & before).any())

    def are_missed_beside_halves(self, multiplier: Array, places: int, channels: Array, apart: int) -> bool:
        """Whether the given `channels` miss steps only by few accumulators, whose products are all near a half.

        Args:
            multiplier: int64 [N].
            places: the shift after the product's high word.
            channels: bool [N].
            apart: the most accumulators by which a step may be missed.
        """
        if not (self.first[channels] > UNKNOWN).all() or not (multiplier[channels] > 0).all():
            return False
        factor, first = multiplier[channels, None], self.first[channels]
        least, most = self.reach.least[channels, None], self.reach.most[channels, None]
        wide = (self.step << (32 + places)) - (1 << (31 + places))
        crossing = np.clip(-(-wide // factor), least, most + 1)  # where the multiplier takes the step
        lower, upper = np.minimum(crossing, first), np.maximum(crossing, first)
        if int((upper - lower).max(initial=0)) > apart:
            return False
        for more in range(apart):
            acc = lower + more
            rest = (acc * factor + (1 << (31 + places)) & ((1 << (32 + places)) - 1)) >> places
            beside = (rest + BESIDE) % 2**32 < 2 * BESIDE
            if not (beside | (acc >= upper)).all():
                return False
        return True


@frozen
class Together:
    """The channels that a kernel scales in one way: `count` neighbours, in each of `groups` groups."""

    count: int = 1
    groups: int = 1

    def have_all(self, mask: Array) -> Array:
        """Return whether `some` holds for all neighbours of a channel, bool [N]."""
        rows = mask.reshape(self.groups, -1)
        padded = np.pad(rows, ((0, 0), (0, -rows.shape[1] % self.count)), constant_values=True)
        together = padded.reshape(self.groups, -1, self.count).all(axis=2)
        return np.repeat(together, self.count, axis=1)[:, : rows.shape[1]].reshape(-1)


ALONE = Together()


def exact_scaling(
    scaling: FloatScaling, how: Requantize, weights: Array, bias: Array, together: Together = ALONE
) -> tuple[Scaling, Array]:
    """Return multipliers for the channels of an int8 layer that have one, and the matching biases, int32 [N].

    If too few have one, the scaling and the bias are returned unchanged.

    Args:
        scaling: of N channels.
        how: the limits and zero point of the results.
        weights: integers [N, ...], with their offset if they are stored without one.
        bias: int32 [N], the input's zero point folded in.
        together: channels of which all or none have a multiplier.
    """
    if not np.isfinite(scaling.scale).all():
        return scaling, bias
    reach = Reach.of(weights, bias)
    columns = scaling.scale.astype(np.float32), reach.least, reach.most, reach.live
    places, multiplier, moved, offset = _best_places(how, *(column.tobytes() for column in columns))
    value = np.clip(np.rint(bias.astype(np.float32) * scaling.scale) + how.zero_point, how.low, how.high)
    of_dead = (value.astype(np.int64) << places) + (1 << (places - 1))
    multiplier, offset = np.where(reach.live, multiplier, 1), np.where(reach.live, offset, of_dead)
    exact = together.have_all(multiplier > 0)
    if exact.mean() < LEAST:
        return scaling, bias
    words = np.stack([multiplier, offset], axis=1).astype(np.int32).view(np.uint32)
    words = np.where(exact[:, None], words, _bits(scaling.scale))
    bias = (bias + np.where(exact, moved, 0)).astype(np.int32)
    return ExactScaling(words, places, scaling.scale, how.zero_point), bias


@functools.lru_cache(maxsize=256)  # a layer is the same in the graphs of several targets
def _best_places(
    how: Requantize, scales: bytes, least: bytes, most: bytes, live: bytes
) -> tuple[int, Array, Array, Array]:
    """Return the places with the most multipliers, and for them what `_of_places` returns."""
    reach = Reach(*(np.frombuffer(data, kind) for data, kind in ((least, np.int64), (most, np.int64), (live, bool))))
    scale = np.frombuffer(scales, np.float32)
    steps = Steps.of(np.where(scale > 0, scale, np.float32(1)), how, reach)
    tried = []
    for places in PLACES:
        tried.append((places, *_of_places(steps, scale > 0, how, places)))
        if (tried[-1][1] > 0).mean() >= MOST:
            break
    return max(tried, key=lambda attempt: int((attempt[1] > 0).sum()))


def _of_places(steps: Steps, scaled: Array, how: Requantize, places: int) -> tuple[Array, Array, Array]:
    """Return the multipliers of live channels, the numbers to add to their biases, and offsets, int64 [N] each."""
    usable = steps.reach.live & scaled
    offset = np.full(len(usable), (how.zero_point << places) + (1 << (places - 1)))
    multipliers, moved = np.where(usable, steps.multipliers(places), 0), np.zeros(len(usable), np.int64)
    furthest = np.maximum(-steps.reach.least, steps.reach.most)
    missing = usable & (multipliers == 0) & (furthest < LIMIT_OF_PAIRS - MOST_MOVED)
    if 0 < missing.sum() <= max(FEW, len(usable) // 4):
        multipliers[missing], moved[missing], more = steps.of_channels(missing).moved_multipliers(places)
        offset[missing] += more
    reached = (furthest + np.abs(moved)).astype(np.float64) * multipliers / 2.0**32
    stays = (reached + np.abs(offset)) * 256 < LIMIT  # 32 bits, of 256 times the sum too
    return np.where(stays, multipliers, 0), moved, offset
