"""Scaling of int32 sums in SIMD schedules: a float per channel, or a 31-bit multiplier and a shift.

A schedule packs these words after a channel's weights and calls the runtime function with `kind` in its name; the loops
are the same. crt/include/mt_math.h has the arithmetic.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Self

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import DType, Expr
from mtool.compiler.ir.scalar import FUNCTIONS, Rescale
from mtool.compiler.ir.types import Array, row_sums

FAR = 1024  # steps: beyond it a result is clamped in any case
DOUBLED = 2**30  # sums below it can be doubled
NEAR = 1e-3  # how far from a whole number a bias may be, in steps of the accumulator
ROUNDING = 2.0**-22  # and relative to its size, the precision of a float32
BEHIND = 8  # fractional bits of a sum that is known in advance


def are_whole(steps: Array) -> bool:
    """Whether biases, in steps of the accumulator, are whole numbers as far as float32 can tell."""
    return bool(each_is_whole(steps).all())


def each_is_whole(steps: Array) -> Array:
    """Return for each bias whether it is a whole number."""
    whole: Array = np.abs(steps - np.rint(steps)) <= np.maximum(NEAR, ROUNDING * np.abs(steps))
    return whole


@frozen
class Scaling(ABC):
    """The numbers that scale the sums of N channels.

    words: uint32 [N, words of a channel].
    """

    words: Array

    @property
    @abstractmethod
    def kind(self) -> str:
        """The suffix of the runtime's functions, behind the schedule's."""

    @property
    @abstractmethod
    def meaning(self) -> str:
        """A description of a channel's words, for the comment above the table."""

    def without_dead_channels(self, weights: Array, bias: Array) -> tuple[Array, Self]:
        """Return biases and scalings that give channels without weights the same results with small sums.

        Quantizers give a dead channel a tiny scale and a bias near the limits of int32; its sum is its bias, which is
        requantized here, once. Far beyond int8 it is clamped in any case.

        Args:
            weights: int8 [N, ...].
            bias: int32 [N].
        """
        raise NotImplementedError

    def stepped(self, sign: Array) -> Self:
        """Return the scaling of sums that are multiplied by 256 * sign [N]."""
        raise NotImplementedError

    def fourfold(self) -> Self:
        """Return the scaling of sums that are multiplied by 4: itself, if the runtime divides."""
        return self

    def paired(self, sign: Array) -> Array:
        """Return the words of channels a and b side by side, uint32 [N/2, ...]; sums of b have 256 * sign."""
        a, b = self[slice(0, None, 2)], self[slice(1, None, 2)]
        return self.beside(np.concatenate([a.words, b.stepped(sign).words], axis=1))

    def apart(self) -> Array:
        """Return the words of channels a and b side by side, uint32 [N/2, ...]."""
        return self.beside(self.words.reshape(len(self.words) // 2, -1))

    def beside(self, words: Array) -> Array:
        """Return the words of channels a and b, side by side, as the runtime reads them."""
        return words

    def padded(self, count: int) -> Self:
        """Return numbers for `count` channels; the new ones give 0."""
        more = np.zeros((count - len(self.words), self.words.shape[1]), np.uint32)
        more[:, 1:] = 1  # shifts
        return replace(self, words=np.concatenate([self.words, more]))

    def __getitem__(self, channels: slice) -> Self:
        """Return the numbers of some channels."""
        return replace(self, words=self.words[channels])

    def vectors(self, lanes: int, order: Array | None = None) -> Array:
        """Return Helium's vectors, int8 [N / lanes, ...]: the first word of all lanes, in an order, then the second."""
        by_vector = self._as_vectors().reshape(-1, lanes, self.words.shape[1])
        by_vector = by_vector if order is None else by_vector[:, order]
        return np.ascontiguousarray(by_vector.swapaxes(1, 2)).reshape(len(by_vector), -1).view(np.int8)

    def _as_vectors(self) -> Array:
        return self.words


class FloatScaling(Scaling):
    """ONNX's: a float32 scale, rounded to the nearest, ties to even."""

    __slots__ = ()

    @classmethod
    def of(cls, scale: Array) -> Self:
        """Take float32 scales [N]."""
        return cls(np.ascontiguousarray(scale, np.float32).view(np.uint32)[:, None])

    kind = ""
    meaning = "scale (the bits of a float)"

    @property
    def scale(self) -> Array:
        """The scales, float32 [N]."""
        return np.ascontiguousarray(self.words[:, 0]).view(np.float32)

    def without_dead_channels(self, weights: Array, bias: Array) -> tuple[Array, Self]:
        """Give dead channels a scale of 1."""
        dead = _dead(weights)
        values = np.clip(np.rint(bias.astype(np.float32) * self.scale), -FAR, FAR)
        scale = np.where(dead, np.float32(1), self.scale)
        return np.where(dead, values.astype(np.int32), bias), type(self).of(scale)

    def stepped(self, sign: Array) -> Self:
        """Divide."""
        return type(self).of(self.scale * sign / np.float32(256))

    def fourfold(self) -> Self:
        """Divide."""
        return type(self).of(self.scale / np.float32(4))


class NearFloatScaling(FloatScaling):
    """The same for results that are near enough for Helium's cheaper rounding (Int8Epilogue.is_near)."""

    __slots__ = ()

    kind = "_near"


class OddFloatScaling(NearFloatScaling):
    """The same with an odd zero point."""

    __slots__ = ()

    kind = "_odd"


@frozen
class FixedScaling(Scaling):
    """TFLite's scaling, also used without an FPU: sum * multiplier / 2^32 shifted right by `shifts`.

    twice: rounded to sum * multiplier / 2^31, ties up, then the rest, ties away from zero; otherwise once, ties up.
    """

    twice: bool
    meaning = "multiplier and shift"

    @classmethod
    def of(cls, multiplier: Array, shift: Array, *, twice: bool) -> Self:
        """Take int32 multipliers and the shifts of a Rescale [N]; see mtool.compiler.ir.scalar."""
        shifts = np.where(multiplier == 0, 1, shift.astype(np.int32) + twice)  # any shift is right for 0
        return cls(np.stack([multiplier, shifts], axis=1).astype(np.int32).view(np.uint32), twice)

    @property
    def kind(self) -> str:
        """The rounding."""
        return "_twice" if self.twice else "_once"

    @property
    def multiplier(self) -> Array:
        """The multipliers, int32 [N]."""
        return self.words[:, 0].view(np.int32)

    @property
    def shifts(self) -> Array:
        """The shifts, int32 [N]."""
        return self.words[:, 1].view(np.int32)

    def without_dead_channels(self, weights: Array, bias: Array) -> tuple[Array, Self]:
        """Give dead channels a power of two."""
        dead = _dead(weights)
        how = Rescale(0, -FAR, FAR, wide=False, twice=self.twice)
        steps = FUNCTIONS["rescale"].meaning(
            Expr("rescale", DType.INT32, value=how), bias, self.multiplier, self.shifts - self.twice
        )
        dead_words = np.array([1 << 30, BEHIND - 2 + self.twice], np.int32).view(np.uint32)
        words = np.where(dead[:, None], dead_words, self.words)
        return np.where(dead, steps << BEHIND, bias).astype(np.int32), replace(self, words=words)

    def fits(self, weights: Array, bias: Array) -> bool:
        """Whether all shifts are to the right, and all sums can be doubled, as the first rounding does."""
        if self.shifts.min(initial=1) < 1:
            return False
        most = 128 * row_sums(weights).magnitude + np.abs(bias.astype(np.int64))
        return not self.twice or int(most.max(initial=0)) < DOUBLED

    def stepped(self, sign: Array) -> Self:
        """Turn the sign; the runtime divides."""
        turned = (self.multiplier * sign.astype(np.int32)).astype(np.int32)
        return replace(self, words=np.stack([turned.view(np.uint32), self.words[:, 1]], axis=1))

    def _as_vectors(self) -> Array:
        """Negative shifts: Helium's rounding shift goes to the left."""
        return np.stack([self.words[:, 0], (-self.shifts).astype(np.int32).view(np.uint32)], axis=1)


def _dead(weights: Array) -> Array:
    """Return which channels have no weights, bool [N]."""
    return np.array([not channel.any() for channel in weights])


# Scales as integers: a 31-bit multiplier and a shift, as in TFLite and the libraries that follow it.


def fixed_multiplier(scale: float) -> tuple[int, int]:
    """Return a multiplier with 31 fractional bits and an exponent: scale = multiplier / 2^31 * 2^exponent.

    Source: tensorflow/lite/kernels/internal/quantization_util.cc (QuantizeMultiplier).
    """
    fraction, exponent = math.frexp(scale)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier, exponent = 2**30, exponent + 1
    if exponent < -31:
        return 0, 0
    return (2**31 - 1, 30) if exponent > 30 else (multiplier, exponent)
