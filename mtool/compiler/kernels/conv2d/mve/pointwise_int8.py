"""1x1 convolutions of int8 for Helium."""

from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.mve.tiles_int8 import Tiles


class Pointwise(Tiles):
    """1x1: a tile's pixels side by side times all channels, a tile's at a time. In place; if it grows, backwards."""

    name = "mve_pointwise"
    template = "kernels/conv2d/mve/pointwise_int8.c.j2"
    pixelwise = True

    def fits(self, conv: Conv) -> bool:
        """1x1, stride 1, no padding, no groups."""
        return conv.is_pointwise and conv.group == 1


SCHEDULE = Pointwise()
