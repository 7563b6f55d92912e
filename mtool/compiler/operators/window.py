"""Windows that slide over space, in one or more dimensions: what convolutions and pools of all kinds are told."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Attributes
from mtool.compiler.ir.types import Array

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window(Attributes):
    """A window over the spatial dimensions; each tuple has a number for each of them, in elements.

    kernel, strides, dilations: at least 1.
    pads: before each dimension, then behind each; of ConvTranspose before each only.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    @property
    def rank(self) -> int:
        """The number of spatial dimensions."""
        return len(self.kernel)

    def ends(self, made: Sequence[int]) -> tuple[int, ...]:
        """Return the place behind the last element that `made` windows reach along each dimension."""
        sizes = zip(made, self.kernel, self.strides, self.dilations, self.pads, strict=False)
        return tuple((count - 1) * stride + (taps - 1) * step + 1 - pad for count, taps, stride, step, pad in sizes)

    def inside(self, size: Sequence[int], made: Sequence[int]) -> list[Array]:
        """Return for each dimension how many taps of each of `made` windows lie inside of an input of `size`."""
        counts = []
        for n in range(self.rank):
            taps = np.arange(self.kernel[n]) * self.dilations[n] - self.pads[n]
            places = (np.arange(made[n]) * self.strides[n])[:, None] + taps
            counts.append(((places >= 0) & (places < size[n])).sum(axis=1))
        return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution(Window):
    """Conv, ConvInteger, ConvTranspose: a window whose channels are in `group` parts."""

    group: int = 1


def pair(values: tuple[int, ...], single: int) -> Pair:
    """Return a number for each of one or two dimensions as (vertical, horizontal), `single` where one is missing."""
    return (values[0], values[1]) if len(values) == 2 else (single, values[0])


def four_pads(pads: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Return the padding of one or two dimensions as top, left, bottom, right."""
    spatial = len(pads) // 2
    return (*pair(pads[:spatial], 0), *pair(pads[spatial:], 0))
