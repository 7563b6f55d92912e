"""Register tiles: how many pixels by how many output channels a schedule's inner loop computes together."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from mtool.compiler.kernels.conv2d.geometry import Conv


@dataclass(frozen=True, slots=True)
class Tile:
    """Pixels by output channels."""

    pixels: int
    channels: int

    @classmethod
    def named(cls, name: str) -> "Tile":
        """Return the tile of a name: 4x2."""
        pixels, channels = map(int, name.split("x"))
        return cls(pixels, channels)

    @property
    def name(self) -> str:
        """As people write it."""
        return f"{self.pixels}x{self.channels}"

    @classmethod
    def chosen(cls, usual: str, other: str, cost: Callable[["Tile"], float], saving: float = 0.2) -> "Tile":
        """Return the usual tile, or another that reads the weights more often, where that saves so much of the cost."""
        first, second = cls.named(usual), cls.named(other)
        return second if cost(second) < (1 - saving) * cost(first) else first

    def columns(self, conv: Conv) -> int:
        """Return how often pixels are put together for one group; the last may be fewer than the tile has."""
        return math.ceil(conv.pixels / self.pixels)

    def channel_steps(self, conv: Conv) -> int:
        """Return how often channels of a group are; likewise."""
        return math.ceil(conv.out_channels / conv.group / self.channels)
