"""Convolutions of int8 for Helium whose patches are 64 bytes at most: a few channels, or a small kernel.

The inner loops and the layout of the packed weights: crt/include/mt_mve_pixels_int8.h.
"""

import numpy as np

from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv, shrinks_by_rows
from mtool.compiler.kernels.conv2d.mve.tiles_int8 import SCATTER_REACH
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule
from mtool.compiler.kernels.epilogues import Int8Epilogue, Products
from mtool.compiler.kernels.mve import INT8_LANES
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.scaling import FloatScaling
from mtool.compiler.kernels.schedule import Kernel
from mtool.compiler.kernels.target import Target

# 1x1 convolutions of int8 for Helium with 64 inputs at most: vectors of two pixels stay in registers.
#
# The inner loops and the layout of the packed weights: crt/include/mt_mve_pixels_int8.h.


HEADER = "mt_mve_pixels_int8.h"
LAYOUT = "4 output channels a row: vectors of 16 weights by turns, biases, scales (the bits of floats)"
TOGETHER = 4  # output channels
MOST = 64  # bytes of a patch
EACH = (32, 44, 58, 72)  # instructions for two pixels and four channels, by the vectors of a patch


def pack(weights: Array, bias: Array, scale: Array) -> Array:
    """Return int8 [N/4, 64 * vectors + 32]: for each vector of a patch one of each channel, biases, scales.

    Args:
        weights: int8 [N, K], N a multiple of 4.
        bias: int32 [N], the input's zero point folded in.
        scale: float32 [N].
    """
    count, depth = weights.shape
    filled = np.pad(weights, ((0, 0), (0, round_up(depth, INT8_LANES) - depth)))
    tiles = count // TOGETHER
    blocks = filled.reshape(tiles, TOGETHER, -1, INT8_LANES).swapaxes(1, 2).reshape(tiles, -1)
    numbers = [np.ascontiguousarray(one).view(np.int8).reshape(tiles, -1) for one in (bias.astype(np.int32), scale)]
    return np.concatenate([blocks, *numbers], axis=1)


class SmallPatches(ConvSchedule[Int8Epilogue]):
    """The common part of the schedules: two pixels, whose patches are 64 bytes at most, times four channels."""

    core = "has_mve"
    forms = (Int8Epilogue,)

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """Return whether channels come in fours, patches are small, and results near and stored as they are."""
        shape = conv.group == 1 and conv.batch == 1 and conv.meets_the_image and conv.depth <= MOST
        channels = conv.out_channels % TOGETHER == 0 and conv.out_channels < SCATTER_REACH
        int8 = epilogue.weights.dtype == np.int8 and epilogue.rest is None
        return shape and channels and int8 and epilogue.is_near

    def _products(self, conv: Conv, after: int) -> float:
        """Return the instructions of all products: 32 to 72 for two pixels and four channels; `after` them."""
        each = EACH[round_up(conv.depth, INT8_LANES) // INT8_LANES - 1]
        return round_up(conv.pixels, 2) / 2 * (conv.out_channels / TOGETHER * each + after)

    def products(self, conv: Conv, epilogue: Int8Epilogue) -> Products:
        """Return the packed weights."""
        assert isinstance(epilogue.scaling, FloatScaling)
        filters = epilogue.weights.reshape(conv.out_channels, -1)
        return Products(pack(filters, epilogue.bias, epilogue.scaling.scale), LAYOUT, (HEADER,))


class Pixels(SmallPatches):
    """1x1, up to 64 inputs: two pixels times all channels, four at a time. In place; if it grows, backwards.

    With a stride by rows, and not in place.
    """

    name = "mve_pixels"

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """1x1, no padding, no groups, one image, int8 to the whole of int8 by floats."""
        return conv.kernel == (1, 1) and conv.pad == (0, 0) and super().fits(conv, epilogue)

    def scratch(self, conv: Conv, epilogue: Int8Epilogue) -> int:
        """Vectors of one of two pixels, if those of both are more than registers hold."""
        depth = round_up(conv.depth, INT8_LANES)
        return depth if depth > 2 * INT8_LANES else 0

    def over_input(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """If none is left out: pixels are read before they are written."""
        return conv.is_pointwise

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """The products, 30 for two pixels."""
        return self._products(conv, 30) + (0 if conv.is_pointwise else 40 * conv.out_size[0])

    def kernel(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Kernel:
        """Write the function."""
        k, n, has_scratch = conv.channels, conv.out_channels, self.scratch(conv, epilogue) > 0
        return epilogue.kernel(
            "kernels/conv2d/mve/pointwise_pixels_int8.c.j2",
            self.products(conv, epilogue),
            "int8_t" if has_scratch else "",
            conv=conv,
            k=k,
            n=n,
            whole=conv.is_pointwise,
            step=k * conv.stride[1],
            blocks=round_up(k, INT8_LANES) // INT8_LANES,
            sign=-1 if conv.is_pointwise and n > k else 1,
            staging="scratch" if has_scratch else "NULL",
        )


TOGETHER_PIXELS = (8, 6, 4, 2)  # that are gathered before they are multiplied


class Columns(SmallPatches):
    """k x k, patches of at most 64 bytes: gathered by rows of a patch, a vector each, padding by predication.

    Two pixels stay in registers, times all channels, four at a time. A row of results may be held back, so that the
    output can take the input's storage.
    """

    name = "mve_columns"

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """No dilation, no groups, rows of a patch of 16 bytes at most, one image, int8 to all of int8 by floats."""
        shape = conv.dilation == (1, 1) and not conv.is_pointwise and conv.kernel[1] * conv.channels <= INT8_LANES
        return shape and super().fits(conv, epilogue)

    def _together(self, conv: Conv) -> int:
        """How many pixels are gathered: a part of a row, if that lets rows be held back."""
        return next((many for many in TOGETHER_PIXELS if shrinks_by_rows(conv, many)), TOGETHER_PIXELS[0])

    def scratch(self, conv: Conv, epilogue: Int8Epilogue) -> int:
        """The columns, what is written behind the last, and a row that is held back."""
        row = conv.out_size[1] * conv.out_channels if self.over_input(conv, epilogue) else 0
        return self._together(conv) * round_up(conv.depth, INT8_LANES) + INT8_LANES + row

    def over_input(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """Row by row."""
        return shrinks_by_rows(conv, self._together(conv))

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """The products, 20 for two pixels; 5 a row of a patch, 20 a pixel."""
        return conv.pixels * (5 * conv.kernel[0] + 20) + self._products(conv, 20)

    def kernel(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Kernel:
        """Write the function."""
        padded = round_up(conv.depth, INT8_LANES)
        return epilogue.kernel(
            "kernels/conv2d/mve/im2col_columns_int8.c.j2",
            self.products(conv, epilogue),
            "int8_t",
            conv=conv,
            padded=padded,
            blocks=padded // INT8_LANES,
            together=self._together(conv),
            by_rows=self.over_input(conv, epilogue),
        )
