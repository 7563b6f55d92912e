"""1x1 convolutions of int16 activations for Helium."""

from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.mve.tiles_int16 import Tiles


class Pointwise(Tiles):
    """1x1: four pixels side by side times all channels, two at a time. In place; growing layers run backwards."""

    name = "mve16_pointwise"
    template = "kernels/conv2d/mve/pointwise_int16.c.j2"
    pixelwise = True

    def fits(self, conv: Conv) -> bool:
        """1x1, stride 1, no padding, no groups."""
        return conv.is_pointwise and conv.group == 1


SCHEDULE = Pointwise()
