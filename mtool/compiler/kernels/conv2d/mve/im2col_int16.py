"""Convolutions of int16 activations for Helium: patches stand side by side as columns."""

from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.mve.tiles_int16 import Tiles


class Im2col(Tiles):
    """k x k: the patches of four pixels are gathered side by side and multiplied with all channels, two at a time.

    Vectors are copied where a pixel is whole vectors, rows of a patch or elements elsewhere.
    """

    name = "mve16_patch"
    template = "kernels/conv2d/mve/im2col_int16.c.j2"

    def fits(self, conv: Conv) -> bool:
        """More than one input of a group."""
        return not conv.is_depthwise


SCHEDULE = Im2col()
