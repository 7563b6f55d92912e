"""Depthwise convolutions for Helium: vectors of channels from a ring of rows, or squares of a channel's inputs.

The inner loops and the layouts of the packed weights: crt/include/mt_mve_depthwise*.h, mt_mve_squares_int8.h.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, get_args

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule
from mtool.compiler.kernels.epilogues import Epilogue16, FloatEpilogue, Int8Epilogue, Products
from mtool.compiler.kernels.mve import EVEN_FIRST, F32_LANES, INT8_LANES, INT16_LANES, WIDENED_ORDER, has_narrow_sums
from mtool.compiler.kernels.packing import by_turns, numbers_of, round_up
from mtool.compiler.kernels.scaling import FloatScaling, Scaling
from mtool.compiler.kernels.schedule import Target, knob

# Depthwise convolutions of int8 with any kernel for Helium: 16 lanes of channels, a ring of rows.
#
# The inner loops and the layout of the packed weights: crt/include/mt_mve_depthwise_int8.h.


HEADER = "mt_mve_depthwise_int8.h"


def pack(taps: Array, bias: Array, scaling: Scaling) -> Array:
    """Return int8 [C/16, 128 or 192 + 16 * T]: biases, taps, scaling; the lanes of all but taps as they are widened.

    Args:
        taps: int8 [C, T]; C is padded to a multiple of 16, T to an even number.
        bias: int32 [C], the input's zero point folded in.
        scaling: of C channels.
    """
    channels, count = taps.shape
    heads = numbers_of(bias, INT8_LANES, np.int32, order=WIDENED_ORDER)
    tails = scaling.padded(round_up(channels, INT8_LANES)).vectors(INT8_LANES, WIDENED_ORDER)
    return np.concatenate([heads, by_turns(taps, INT8_LANES, 1, round_up(count, 2)), tails], axis=1)


class Depthwise(ConvSchedule[Int8Epilogue]):
    """Depthwise: 16 channels at a time, each row of input is copied once into a ring of the rows that the kernel spans.

    Products of two taps are summed in 16 bits. The last vector may have fewer than 16 lanes.
    """

    name = "mve_taps"
    template = "kernels/conv2d/mve/depthwise_int8.c.j2"
    core = "has_mve"
    has_ring = True
    forms = (Int8Epilogue,)
    over_operands = False

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """Any kernel, stride, dilation and multiplier, weights of at least -127, one image, int8 to 8 bits."""
        return conv.is_depthwise and conv.batch == 1 and has_negatives(epilogue) and epilogue.stores_kind

    def scratch(self, conv: Conv, epilogue: Int8Epilogue) -> int:
        """The ring, and where taps lie in it."""
        return conv.ring.rows * INT8_LANES * conv.ring.columns + 4 * round_up(conv.depth, 2)

    def over_input(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """If rows are read before they are written and channels are their own."""
        return conv.channels == conv.out_channels and super().over_input(conv, epilogue)

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """26 instructions for two taps of a vector, 45 for its result, 5 for a copied vector."""
        vectors = math.ceil(conv.out_channels / INT8_LANES)
        after = 6 * conv.pixels * conv.out_channels if epilogue.rest is not None else 0
        each = 26 * math.ceil(conv.depth / 2) + 45
        return vectors * (each * conv.pixels + 5.0 * math.prod(conv.size) + 30 * conv.out_size[0]) + after

    def products(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Products:
        """16 channels together."""
        taps = epilogue.weights.reshape(conv.out_channels, -1)
        layout = f"16 channels a row: bytes of biases, a vector a tap, bytes of {epilogue.scaling.meaning}"
        declared = epilogue.declared("mt_mve_range", "MT_MVE_RANGE")
        return Products(pack(taps, epilogue.bias, epilogue.scaling), layout, HEADER, declared=declared)


def has_negatives(epilogue: Int8Epilogue) -> bool:
    """Return whether the weights and their negatives are int8."""
    return bool(epilogue.weights.dtype == np.int8 and epilogue.weights.min(initial=0) >= -127)


def pack_int16(taps: Array, bias: Array, scale: Array | None = None) -> Array:
    """Return int8 [C/8, 32 or 64 + 8 * T]: biases and scales of even and odd channels around eight of each tap.

    Args:
        taps: int8 [C, T]; C is padded to a multiple of 8.
        bias: int32 [C], the input's zero point folded in.
        scale: float32 [C]; None: there are none.
    """
    parts = [numbers_of(bias, INT16_LANES, np.int32, order=EVEN_FIRST), by_turns(taps, INT16_LANES, 1)]
    if scale is not None:
        parts.append(numbers_of(scale, INT16_LANES, np.float32, order=EVEN_FIRST))
    return np.concatenate(parts, axis=1)


class DepthwiseInt16(ConvSchedule[Epilogue16]):
    """Depthwise: pixel by pixel; the position of each tap is computed once for all channels, eight at a time.

    Rows of the input are copied into a ring of the rows that the kernel spans.
    """

    name = "mve16_taps"
    template = "kernels/conv2d/mve/depthwise_int16.c.j2"
    scratch_type = "int32_t"
    core = "has_mve"
    has_ring = True
    forms = get_args(Epilogue16)
    over_operands = False

    def fits(self, conv: Conv, epilogue: Epilogue16) -> bool:
        """Any kernel, stride and dilation, one image, int16 to int16 or sums of 32 bits."""
        return conv.is_channelwise and has_narrow_sums(epilogue.node, epilogue.graph)

    def _results(self, conv: Conv, epilogue: Epilogue16) -> int:
        """Results of a pixel that an epilogue follows, in int16."""
        if epilogue.is_scaled:
            return conv.channels if epilogue.rest is not None else 0
        return 2 * round_up(conv.channels, INT16_LANES)

    def scratch(self, conv: Conv, epilogue: Epilogue16) -> int:
        """An offset a tap, a pixel of padding, results that an epilogue follows, the ring."""
        ring = conv.ring.rows * conv.size[1] * conv.channels
        return 4 * conv.depth + 2 * (conv.channels + self._results(conv, epilogue) + ring)

    def instructions(self, conv: Conv, epilogue: Epilogue16, target: Target) -> float:
        """10 instructions a tap of a vector, 32 for its result, 12 to find where a tap is."""
        vectors, after = math.ceil(conv.channels / INT16_LANES), 8 * self._results(conv, epilogue)
        copying = math.prod(conv.size) * conv.channels / 2
        return float(conv.pixels * (vectors * (8 * conv.depth + 34) + 12 * conv.depth + after)) + copying

    def products(self, conv: Conv, epilogue: Epilogue16, target: Target) -> Products:
        """Eight channels together."""
        stream = pack_int16(epilogue.weights.reshape(conv.channels, -1), *epilogue.numbers)
        layout = "8 channels a row: bytes of biases (even channels first), a vector a tap"
        layout += ", bytes of scales" if epilogue.is_scaled else ""
        declared = epilogue.declared("mt_mve16_range", "MT_MVE16_RANGE")
        return Products(stream, layout, "mt_mve_depthwise_int16.h", declared=declared)


def pack_3x3(taps: Array, bias: Array, scaling: Scaling) -> Array:
    """Return int8 [C/16, 272 or 336]: nine vectors of weights, biases and scaling in the order of the widened lanes.

    Eight channels are doubled: a vector has two pixels then.

    Args:
        taps: int8 [C, 9], C a multiple of 16, or 8.
        bias: int32 [C], the input's zero point folded in.
        scaling: of C channels.
    """
    if len(taps) == INT8_LANES // 2:
        taps, bias, scaling = np.tile(taps, (2, 1)), np.tile(bias, 2), scaling.repeated()
    biases = numbers_of(bias, INT8_LANES, np.int32, order=WIDENED_ORDER)
    return np.concatenate([by_turns(taps, INT8_LANES, 1), biases, scaling.vectors(INT8_LANES, WIDENED_ORDER)], axis=1)


class Depthwise3x3(ConvSchedule[Int8Epilogue]):
    """Depthwise 3x3: 16 channels at a time (or 8 of two pixels), each row of input is copied once into a ring of three.

    Rows are read before they are written: the output may take the input's storage.
    """

    name = "mve_ring"
    template = "kernels/conv2d/mve/depthwise3x3_int8.c.j2"
    core = "has_mve"
    has_ring = True
    forms = (Int8Epilogue,)

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """3x3, stride 1 or 2, whole vectors of channels (or 8 and pairs of pixels), weights >= -127, int8 to int8."""
        pairs = conv.channels == INT8_LANES // 2 and conv.stride == (1, 1) and conv.out_size[1] % 2 == 0
        lanes = conv.channels % INT8_LANES == 0 or pairs
        return conv.is_depthwise_3x3 and lanes and has_negatives(epilogue) and epilogue.rest is None

    def _pitch(self, conv: Conv) -> int:
        """Bytes of a row of the ring."""
        lanes = min(conv.channels, INT8_LANES)
        columns = max((conv.out_size[1] - 1) * conv.stride[1] + 3, conv.size[1] + conv.pad[1])
        return round_up(columns * lanes + (INT8_LANES - lanes) * 2, INT8_LANES)

    def scratch(self, conv: Conv, epilogue: Int8Epilogue) -> int:
        """Three rows."""
        return 3 * self._pitch(conv)

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """130 instructions a vector of outputs, 12 a copied vector."""
        return conv.channels / INT8_LANES * (130.0 * conv.pixels + 11.5 * conv.size[0] * conv.size[1])

    def products(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Products:
        """16 channels together."""
        taps = epilogue.weights.reshape(conv.channels, 9)
        layout = f"16 channels a row: a vector a tap, bytes of biases, bytes of {epilogue.scaling.meaning}"
        return Products(pack_3x3(taps, epilogue.bias, epilogue.scaling), layout, "mt_mve_depthwise3x3_int8.h")

    def values(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> dict[str, Any]:
        """The bytes of a row of the ring."""
        return {"pitch": self._pitch(conv)}


SQUARES_LAYOUT = "8 channels a row: 8 zeros, bytes of 4x4 weights, bias and scale of each"
GROUP = 8  # channels whose squares are stored together
SQUARES_REACH = 1 << 16  # of the offsets of a scatter, in bytes
# Along and across, as eight are stored: of two squares, and of eight.
LANES = ((0, 0), (2, 0), (0, 1), (2, 1), (1, 0), (3, 0), (1, 1), (3, 1))
LANES_OF_ONE = ((0, 0), (4, 0), (1, 0), (5, 0), (2, 0), (6, 0), (3, 0), (7, 0))


def pack_squares(taps: Array, bias: Array, scale: Array) -> Array:
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


@frozen
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
    template = "kernels/conv2d/mve/depthwise3x3_squares_int8.c.j2"
    core = "has_mve"
    forms = (Int8Epilogue,)

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """3x3, stride 1 or 2, multiples of 8 channels, int8 to all of int8 by floats."""
        if not (conv.is_depthwise_3x3 and conv.channels % GROUP == 0 and epilogue.weights.dtype == np.int8):
            return False
        along, across = _bytes_of(conv.out_size, conv.channels, 1)
        reach = 8 * along + across < SQUARES_REACH and 8 * across + along < SQUARES_REACH
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

    def products(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Products:
        """Eight channels together."""
        assert isinstance(epilogue.scaling, FloatScaling)
        taps = epilogue.weights.reshape(conv.channels, 3, 3)
        taps = taps.swapaxes(1, 2) if Lines.of(conv).axis == 1 else taps
        return Products(
            pack_squares(taps, epilogue.bias, epilogue.scaling.scale), SQUARES_LAYOUT, "mt_mve_squares_int8.h"
        )

    def values(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> dict[str, Any]:
        """The lines, and where in the output the lanes of a step are stored, as far as they are."""
        lines = Lines.of(conv)
        along, across = out_bytes = _bytes_of(conv.out_size, conv.channels, lines.axis)
        lanes, each = (LANES, (2, 1)) if conv.stride == (1, 1) else (LANES_OF_ONE, (1,))
        return {
            "lines": lines,
            "in_bytes": _bytes_of(conv.size, conv.channels, lines.axis),
            "out_bytes": out_bytes,
            "places": [a * along + b * across for a, b in lanes],
            "masks": [_masks(conv, lines, count) for count in each],
        }


def _bytes_of(size: tuple[int, int], channels: int, axis: int) -> tuple[int, int]:
    """Return the bytes from a pixel to the next along an axis, and across it."""
    return (channels, size[1] * channels) if axis == 1 else (size[1] * channels, channels)


def _masks(conv: Conv, lines: Lines, across: int) -> tuple[str, str]:
    """Return the lanes that are stored in each step, and in the last, for `across` lines."""
    places, each = (LANES, 4) if conv.stride[0] == 1 else (LANES_OF_ONE, 8)
    rest = conv.out_size[lines.axis] - each * (lines.steps - 1)
    wanted = ([a < count and b < across for a, b in places] for count in (each, rest))
    every, last = (hex(sum(3 << 2 * lane for lane, yes in enumerate(some) if yes)) for some in wanted)
    return every, last


OUTPUTS = (4, 3, 2, 1, 5, 6)  # at a time
REGISTERS = 8
REACH = 508 // 16  # the largest offset of a load, in vectors
MOST_CODE = 320  # the most instructions, as all taps are written out
MOST_ROWS = 16  # the most rows of a ring


@frozen
class Segment:
    """Taps of a row of the kernel whose weights are held in registers while the inputs pass by.

    `passing`: for each vector of input, how many columns from the first output's first tap it stands, what it is
    multiplied with: pairs of an output and a tap, the taps counted from the segment's first.
    """

    first: int
    taps: int
    passing: Mapping[int, tuple[tuple[int, int], ...]]

    @property
    def instructions(self) -> int:
        """Loads of weights and inputs, products."""
        return self.taps + len(self.passing) + sum(len(products) for products in self.passing.values())


def segments(conv: Conv, outputs: int) -> tuple[Segment, ...]:
    """Cut a row of the kernel into as few segments as the registers allow, besides the sums and an input."""
    most = REGISTERS - 1 - outputs
    made = []
    for first in range(0, conv.kernel[1], most):
        taps = min(most, conv.kernel[1] - first)
        passing: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for output in range(outputs):
            for tap in range(taps):
                column = output * conv.stride[1] + (first + tap) * conv.dilation[1]
                passing[column].append((output, tap))
        made.append(Segment(first, taps, {column: tuple(passing[column]) for column in sorted(passing)}))
    return tuple(made)


def block_cost(conv: Conv, outputs: int) -> int:
    """Return the instructions for `outputs` adjacent outputs; 0 for none."""
    row = sum(segment.instructions for segment in segments(conv, outputs))
    return conv.kernel[0] * row + 3 * outputs + 3 if outputs else 0


def pack_taps(taps: Array, bias: Array) -> Array:
    """Return the stream of vectors, float32 [C/4, 1 + taps, 4]: biases, then a vector a tap; C is padded.

    Args:
        taps: float32 [C, taps].
        bias: float32 [C].
    """
    columns = np.concatenate([bias[:, None], taps], axis=1).astype(np.float32)
    return by_turns(columns, F32_LANES, 1).reshape(-1, columns.shape[1], F32_LANES)


@dataclass(frozen=True)
class DepthwiseF32(ConvSchedule[FloatEpilogue]):
    """Depthwise: four channels at a time, each row of input is copied once into a ring of the kernel's rows.

    Products are added in the order of the portable loops. The last vector may have fewer than four lanes.
    """

    name = "mve_f32_taps"
    template = "kernels/conv2d/mve/depthwise_f32.c.j2"
    core = "has_mve"
    has_ring = True
    forms = (FloatEpilogue,)

    outputs: int = knob(
        0,
        *OUTPUTS,
        meaning="adjacent outputs that share inputs and weights; auto: the number with the fewest instructions",
    )

    def _outputs(self, conv: Conv) -> int:
        """Outputs at a time; 0: a load does not reach all of their inputs."""
        wide = conv.out_size[1]

        def cost(outputs: int) -> int:
            return wide // outputs * block_cost(conv, outputs) + block_cost(conv, wide % outputs)

        def reaches(outputs: int) -> bool:
            return (outputs - 1) * conv.stride[1] + (conv.kernel[1] - 1) * conv.dilation[1] <= REACH

        tried = (self.outputs,) if self.outputs else OUTPUTS
        return min((n for one in tried if reaches(n := min(one, wide))), key=cost, default=0)

    def fits(self, conv: Conv, epilogue: FloatEpilogue) -> bool:
        """Depthwise, one image, one output per channel, float32, not too many taps, no operands in the epilogue."""
        if not (conv.is_channelwise and epilogue.is_alone and epilogue.keeps_type and conv.ring.rows <= MOST_ROWS):
            return False
        outputs = self._outputs(conv)
        return outputs > 0 and block_cost(conv, outputs) + block_cost(conv, conv.out_size[1] % outputs) <= MOST_CODE

    def scratch(self, conv: Conv, epilogue: FloatEpilogue) -> int:
        """The ring."""
        return 4 * conv.ring.rows * F32_LANES * conv.ring.columns

    def instructions(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> float:
        """The blocks; 4 for a copied vector, 20 for its row, 24 for one of outputs; 6 for an element of an epilogue."""
        outputs = self._outputs(conv)
        whole, rest = divmod(conv.out_size[1], outputs)
        row = whole * block_cost(conv, outputs) + block_cost(conv, rest) + 24
        after = 6 * conv.pixels * conv.channels if epilogue.rest is not None else 0
        copying = conv.plane[0] * (4 * conv.ring.copied + 20)
        return math.ceil(conv.channels / F32_LANES) * float(conv.out_size[0] * row + copying) + after

    def products(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> Products:
        """Four channels together."""
        packed = pack_taps(epilogue.weights.reshape(conv.channels, -1), epilogue.bias_of_model)
        return Products(packed, "of four channels together their biases, then each tap", "mt_mve_depthwise_f32.h")

    def values(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> dict[str, Any]:
        """The segments of some outputs side by side."""
        outputs = self._outputs(conv)
        held = [one.taps for n in (outputs, conv.out_size[1] % outputs) if n for one in segments(conv, n)]
        own = {"outputs": outputs, "most_taps": max(held), "reach": REACH}
        return own | {"segments": lambda outputs: segments(conv, outputs)}


SCHEDULES = (Depthwise3x3(), Squares(), Depthwise(), DepthwiseInt16(), DepthwiseF32())
