"""Windows that slide over space, in one or more dimensions: what convolutions and pools of all kinds are told."""

from dataclasses import dataclass

from mtool.ir import Attributes

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
