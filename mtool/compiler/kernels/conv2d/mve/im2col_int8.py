"""Convolutions of int8 for Helium: patches stand side by side as columns."""

from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.mve.tiles_int8 import Tiles


class Im2col(Tiles):
    """k x k: the patches of a tile's pixels are gathered and multiplied with all channels, a tile's at a time.

    Vectors are copied where a pixel is whole vectors; rows of a patch, or bytes on the border, elsewhere.
    """

    name = "mve_patch"
    template = "kernels/conv2d/mve/im2col_int8.c.j2"

    def fits(self, conv: Conv) -> bool:
        """More than one input of a group."""
        return not conv.is_depthwise


SCHEDULE = Im2col()
