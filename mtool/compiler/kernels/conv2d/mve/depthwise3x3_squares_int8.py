"""Depthwise 3x3 of int8 for Helium by dot products: squares of 4x4 inputs, of which each vector gives four windows.

The inner loops, and how lines of the input are turned into squares: crt/include/mt_mve_squares_int8.h.
"""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule
from mtool.compiler.kernels.epilogues import Int8Epilogue, Products
from mtool.compiler.kernels.scaling import FloatScaling
from mtool.compiler.kernels.schedule import Kernel
from mtool.compiler.kernels.target import Target

HEADER = "mt_mve_squares_int8.h"
GROUP = 8  # channels whose squares stand together
REACH = 1 << 16  # of the offsets of a scatter, in bytes
# Along and across, as eight are stored: of two squares, and of eight.
LANES = ((0, 0), (2, 0), (0, 1), (2, 1), (1, 0), (3, 0), (1, 1), (3, 1))
LANES_OF_ONE = ((0, 0), (4, 0), (1, 0), (5, 0), (2, 0), (6, 0), (3, 0), (7, 0))


def pack(taps: Array, bias: Array, scale: Array) -> Array:
    """Return int8 [C/8, 200]: eight zeros, 16 bytes of weights a channel, bias and scale of each.

    Of a channel's 16 bytes every fourth is zero, and the last four: a load that begins up to five bytes before them has
    the weights moved on by as much, and zeros.

    Args:
        taps: int8 [C, 3, 3], the places along a line first; C a multiple of 8.
        bias: int32 [C], the input's zero point folded in.
        scale: float32 [C].
    """
    groups = len(taps) // GROUP
    squares = np.pad(taps, ((0, 0), (0, 1), (0, 1))).reshape(groups, 16 * GROUP)
    numbers = np.stack([bias.astype(np.int32), np.ascontiguousarray(scale, np.float32).view(np.int32)], axis=1)
    return np.concatenate(
        [np.zeros((groups, 8), np.int8), squares, numbers.view(np.int8).reshape(groups, 8 * GROUP)], axis=1
    )


@dataclass(frozen=True, slots=True)
class Lines:
    """How a convolution is cut into lines: along rows or columns, two lines of outputs at a time, or one with stride 2.

    Attributes:
        axis: of the image along which a line goes, 1: rows.
        steps: of eight outputs a line, or of four of two lines.
        positions: of the squares, with padding and what the last step reads beyond.
        strips: how often lines are computed.
    """

    axis: int
    steps: int
    positions: int
    strips: int

    @classmethod
    def along(cls, conv: Conv, axis: int) -> Self:
        """Cut it along an axis."""
        stride, outputs = conv.stride[0], conv.out_size[axis]
        steps = math.ceil(outputs / (4 if stride == 1 else 8))
        read = (4 if stride == 1 else 16) * steps + 2
        strips = conv.out_size[1 - axis] if stride > 1 else math.ceil(conv.out_size[1 - axis] / 2)
        return cls(axis, steps, max(read, conv.pad[axis] + conv.size[axis]), strips)

    def cost(self, conv: Conv) -> float:
        """29 instructions a step (35 with stride 2), 25 more a channel; 11 a position of two new lines."""
        step = 29 if conv.stride[0] == 1 else 35
        each = GROUP * (step * self.steps + 25) + 11 * conv.size[self.axis] + 90
        return conv.channels / GROUP * self.strips * each + 4.0 * self.positions

    @classmethod
    def of(cls, conv: Conv) -> Self:
        """Take the axis that costs less; rows if they are alike."""
        return min((cls.along(conv, axis) for axis in (1, 0)), key=lambda lines: lines.cost(conv))


class Squares(ConvSchedule[Int8Epilogue]):
    """Depthwise 3x3: dot products with squares of 4x4 inputs of a channel, four windows (stride 2: one) of each vector.

    Eight channels at a time. Rows (or columns) are read before they are written: the output may take the input's
    storage.
    """

    name = "mve_squares"
    core = "has_mve"
    forms = (Int8Epilogue,)

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """3x3, stride 1 or 2, channels in eights, int8 to the whole of int8 by floats."""
        if not (conv.is_depthwise_3x3 and conv.channels % GROUP == 0 and epilogue.weights.dtype == np.int8):
            return False
        along, across = _bytes_of(conv.out_size, conv.channels, 1)
        reach = 8 * along + across < REACH and 8 * across + along < REACH
        return reach and max(conv.pad) <= 2 and not epilogue.rest and epilogue.is_near

    def scratch(self, conv: Conv, epilogue: Int8Epilogue) -> int:
        """The squares, and padding for a position."""
        return 4 * GROUP * Lines.of(conv).positions + GROUP

    def over_input(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """If lines are read before they are written; eight channels are their own in both."""
        if Lines.of(conv).axis == 0 or conv.stride == (1, 1):
            return conv.size == conv.out_size and conv.stride == (1, 1)
        out_row, in_row = (size[1] * conv.channels for size in (conv.out_size, conv.size))
        return all((y + 1) * out_row <= (2 * y - conv.pad[0] + 4) * in_row for y in range(conv.out_size[0]))

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """That of the lines."""
        return Lines.of(conv).cost(conv)

    def kernel(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Kernel:
        """Write the function."""
        assert isinstance(epilogue.scaling, FloatScaling)
        lines, taps = Lines.of(conv), epilogue.weights.reshape(conv.channels, 3, 3)
        packed = pack(taps.swapaxes(1, 2) if lines.axis == 1 else taps, epilogue.bias, epilogue.scaling.scale)
        across = 1 - lines.axis
        (out_along, out_across), (in_along, in_across) = (
            _bytes_of(size, conv.channels, lines.axis) for size in (conv.out_size, conv.size)
        )
        stride, strips = conv.stride[0], conv.out_size[across]
        lanes = LANES if stride == 1 else LANES_OF_ONE
        return epilogue.kernel(
            "kernels/conv2d/mve/depthwise3x3_squares_int8.c.j2",
            Products(packed, "8 channels a row: 8 zeros, bytes of 4x4 weights, bias and scale of each", (HEADER,)),
            "int8_t",
            conv=conv,
            by_rows=lines.axis == 1,
            stride=stride,
            stream=packed.shape[1],
            steps=lines.steps,
            positions=lines.positions,
            before=conv.pad[lines.axis],
            count=conv.size[lines.axis],
            size=conv.size[across],
            along=in_along,
            across=in_across,
            places=[a * out_along + b * out_across for a, b in lanes],
            step=(4 if stride == 1 else 8) * out_along,
            out_across=out_across,
            strips=strips,
            half=stride == 1 and strips % 2 == 1,
            first=conv.pad[across],
            lowest=-conv.pad[across],
            highest=(math.ceil(strips / 2) * 2 if stride == 1 else 2 * strips) - conv.pad[across],
            masks=[_masks(conv, lines, each) for each in ((2, 1) if stride == 1 else (1,))],
        )


def _bytes_of(size: tuple[int, int], channels: int, axis: int) -> tuple[int, int]:
    """Return the bytes from a pixel to the next along an axis, and across it."""
    return (channels, size[1] * channels) if axis == 1 else (size[1] * channels, channels)


def _masks(conv: Conv, lines: Lines, across: int) -> tuple[str, str]:
    """Return the lanes that are stored in each step, and in the last, of so many lines."""
    places, each = (LANES, 4) if conv.stride[0] == 1 else (LANES_OF_ONE, 8)
    rest = conv.out_size[lines.axis] - each * (lines.steps - 1)
    wanted = ([a < count and b < across for a, b in places] for count in (each, rest))
    every, last = (hex(sum(3 << 2 * lane for lane, yes in enumerate(some) if yes)) for some in wanted)
    return every, last
