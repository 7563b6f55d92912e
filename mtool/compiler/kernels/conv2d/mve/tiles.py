"""Convolutions by register tiles of Helium.

The inner loops and the layouts of the packed weights: crt/include/mt_mve_tile_*.h, mt_mve_pixels_int8.h.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, get_args

import numpy as np

from mtool.compiler.ir import Array, DType
from mtool.compiler.kernels.conv2d.geometry import Conv, Tile, shrinks_by_rows
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule, FloatTiles, T, TileSchedule
from mtool.compiler.kernels.epilogues import Epilogue16, FloatEpilogue, Int8Epilogue, Pair, Products
from mtool.compiler.kernels.f32 import LAYOUT, MOST, packed, words_of
from mtool.compiler.kernels.mve import INT8_LANES, INT16_LANES, best_unroll, has_narrow_sums, pack_int16
from mtool.compiler.kernels.packing import by_turns, numbers_of, packed_by_rows, round_up
from mtool.compiler.kernels.scaling import FloatScaling, Scaling
from mtool.compiler.kernels.schedule import Kernel, Target, knob

TILES = ("4x2", "2x4")  # pixels by channels; the second where four pixels would leave columns empty
TILE_MEANING = "pixels x channels of the register tile; auto: 4x2, or 2x4 where that saves a fiftieth"
HEADERS = {"4x2": "mt_mve_tile_4x2_int8.h", "2x4": "mt_mve_tile_2x4_int8.h"}
UNROLLS = (9, 4, 3, 2, 1)  # blocks an iteration: the loops that mt_mve_tile_int8.h has
SCATTER_REACH = 1 << 14  # channels whose four pixels the 16-bit offsets of a scatter reach


def dot_cost(padded: int, unroll: int) -> float:
    """Return instructions of a tile's dot products with their results: 14 a block, 2 an iteration, 24 more."""
    return padded / INT8_LANES * (14 + 2 / unroll) + 24


def pack(weights: Array, bias: Array, scaling: Scaling, padded: int, together: int) -> Array:
    """Return the stream of mt_mve_columns, int8 [N/T, T * padded + 32 or 48].

    Args:
        weights: int8 [N, K]; N is padded to whole tiles, K to `padded`.
        bias: int32 [N], the input's zero point folded in.
        scaling: of N channels.
        padded: whole vectors.
        together: T, the channels of a tile.
    """
    lanes = np.arange(4) % together  # two channels are stored twice
    biases = numbers_of(bias, together, np.int32, order=lanes)
    scales = scaling.padded(round_up(len(weights), together)).vectors(together, lanes)
    return np.concatenate([by_turns(weights, together, INT8_LANES, padded), biases, scales], axis=1)


@dataclass(frozen=True)
class VectorTiles(TileSchedule[T]):
    """The common part of the schedules for integers.

    lanes: elements of a vector.
    unrolls: vectors of k an iteration, for which the runtime has loops.
    """

    core = "has_mve"
    lanes: ClassVar[int]
    unrolls: ClassVar[tuple[int, ...]]
    unroll: int = 0

    def fits(self, conv: Conv, epilogue: T) -> bool:
        """Return whether the shape is one of this schedule's, and a scatter reaches all channels."""
        return super().fits(conv, epilogue) and conv.out_channels < SCATTER_REACH

    def _unroll(self, conv: Conv) -> int:
        return self.unroll or best_unroll(conv.depth, self.lanes, self.unrolls)

    def depth(self, conv: Conv) -> int:
        """Whole iterations."""
        return round_up(conv.depth, self.lanes * self._unroll(conv))

    def by_vectors(self, conv: Conv) -> bool:
        """Return whether a tap is whole vectors."""
        return conv.channels // conv.group % self.lanes == 0

    def gathered(self, conv: Conv) -> int:
        """A column, unless taps are whole vectors."""
        return 0 if self.pointwise or self.by_vectors(conv) else self.depth(conv)


@dataclass(frozen=True)
class Int8Tiles(VectorTiles[Int8Epilogue]):
    """The common part of both schedules."""

    lanes = INT8_LANES
    unrolls = UNROLLS
    forms = (Int8Epilogue,)
    tiles = TILES
    saving = 0.02
    template = "kernels/conv2d/mve/tiles_int8.c.j2"
    element = DType.INT8
    holds_rows = True

    unroll: int = knob(0, *UNROLLS, meaning="vectors of k per iteration; auto: the largest divisor of the depth")

    tile: str = knob("", *TILES, meaning=TILE_MEANING)

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """One image, int8 to int8."""
        return bool(epilogue.weights.dtype == np.int8) and super().fits(conv, epilogue)

    def cost_of(self, conv: Conv, tile: Tile) -> float:
        """The dot products, and what gathers the pixels."""
        gathering = conv.depth / 4 if self.by_vectors(conv) else conv.depth * 1.5
        dots = tile.channel_steps(conv) * dot_cost(self.depth(conv), self._unroll(conv))
        return conv.group * tile.columns(conv) * (dots + tile.pixels * gathering + 40)

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """With its tile."""
        return self.cost_of(conv, self.shape(conv))

    def products(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Products:
        """The channels of a tile together."""
        tile, depth, unroll, pair = self.shape(conv), self.depth(conv), self._unroll(conv), _pair(epilogue)
        rows = partial(pack, padded=depth, together=tile.channels)
        filters = epilogue.weights.reshape(conv.out_channels, -1)
        weights = packed_by_rows(rows, tile.channels, filters, epilogue.bias, epilogue.scaling, groups=conv.group)
        kind, whole = epilogue.scaling.kind, "_whole" if depth == INT8_LANES * unroll else ""
        function = f"mt_mve_columns{'' if tile.name == TILES[0] else '_' + tile.name}{kind}_{unroll}{whole}"
        declared = epilogue.declared("mt_mve_range", "MT_MVE_RANGE")
        if pair is not None:
            how, (other, _) = pair.how, sorted(pair.names, reverse=True)
            factors = (how.left, how.right) if pair.names[0] else (how.right, how.left)
            numbers = ", ".join(map(str, (*factors, how.offset, how.shift, how.low, how.high)))
            declared += f"\n    static const struct mt_mve_pair pair = {{{numbers}}}; /* with {other} */"
        layout = f"{tile.channels} output channels a row: bytes of biases, vectors of 16 weights by turns, "
        layout += f"bytes of {epilogue.scaling.meaning}"
        return Products(weights, layout, HEADERS[tile.name], function, declared, "&range")

    def values(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> dict[str, Any]:
        """Whether taps are whole vectors, and the sum that follows, if there is a loop for it."""
        return super().values(conv, epilogue, target) | {"by_vectors": self.by_vectors(conv), "pair": _pair(epilogue)}

    def kernel(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Kernel:
        """Write the function, for results that are near if they are."""
        return super().kernel(conv, epilogue.nearer(), target)


def _pair(epilogue: Int8Epilogue) -> Pair | None:
    """Return the sum that follows, if the runtime has a loop for it: with one variable, not rounded to even."""
    pair = epilogue.pair()
    loads = [part.value for part in epilogue.rest.args if part.op == "load"] if epilogue.rest else []
    are_variables = all(epilogue.node.inputs[number] not in epilogue.graph.constants for number in loads)
    return pair if pair is not None and not pair.how.even and are_variables else None


class Im2colInt8(Int8Tiles):
    """k x k: the patches of a tile's pixels are gathered and multiplied by all channels, a tile's at a time.

    Vectors are copied where a pixel is whole vectors; rows of a patch, or bytes on the border, elsewhere.
    """

    name = "mve_patch"


class PointwiseInt8(Int8Tiles):
    """1x1: a tile's pixels side by side times all channels, a tile's at a time. In place, backwards if it grows."""

    name = "mve_pointwise"
    pointwise = True


UNROLLS_INT16 = (4, 2, 1)  # blocks an iteration: the loops that mt_mve_tile_4x2_int16.h has


@dataclass(frozen=True)
class Int16Tiles(VectorTiles[Epilogue16]):
    """The common part of both schedules."""

    lanes = INT16_LANES
    unrolls = UNROLLS_INT16
    forms = get_args(Epilogue16)
    tiles = ("4x2",)
    template = "kernels/conv2d/mve/tiles_int16.c.j2"
    element = DType.INT16
    scratch_type = "int16_t"

    unroll: int = knob(0, *UNROLLS_INT16, meaning="blocks of k per iteration; auto: the largest divisor of the depth")

    def fits(self, conv: Conv, epilogue: Epilogue16) -> bool:
        """One image, int16 to int16 or sums of 32 bits."""
        return has_narrow_sums(epilogue.node, epilogue.graph) and super().fits(conv, epilogue)

    def instructions(self, conv: Conv, epilogue: Epilogue16, target: Target) -> float:
        """14 instructions a block of 4 x 2 dot products, 2 an iteration, 36 for the results; what gathers."""
        gathering, tile = conv.depth * (1.5 if self.gathered(conv) else 0.4), self.shape(conv)
        per_tile = tile.channel_steps(conv) * (self.depth(conv) / INT16_LANES * (14 + 2 / self._unroll(conv)) + 36)
        after = 6 * conv.pixels * conv.out_channels if self.staged(conv, epilogue) else 0
        return conv.group * tile.columns(conv) * (per_tile + 4 * gathering + 20) + after

    def products(self, conv: Conv, epilogue: Epilogue16, target: Target) -> Products:
        """Two channels together."""
        depth, filters, scaled = self.depth(conv), epilogue.weights.reshape(conv.out_channels, -1), epilogue.is_scaled
        sums = f"int32_t *const sums = (int32_t *)(void *)(scratch + {4 * depth}); /* of two channels by four pixels */"
        declared, last = epilogue.declared("mt_mve16_range", "MT_MVE16_RANGE") or sums, "&range" if scaled else ""
        layout = "two output channels a row: bytes of biases, vectors of 8 weights by turns"
        rows = partial(pack_int16, together=2, depth=depth)
        weights = packed_by_rows(rows, 2, filters, *epilogue.numbers, groups=conv.group)
        function = f"mt_mve16_{'columns' if scaled else 'sums'}_{self._unroll(conv)}"
        layout += ", bytes of scales" if scaled else ""
        return Products(weights, layout, "mt_mve_tile_4x2_int16.h", function, declared, last)

    def values(self, conv: Conv, epilogue: Epilogue16, target: Target) -> dict[str, Any]:
        """Whether patches are gathered before they become columns."""
        return super().values(conv, epilogue, target) | {"gathers": self.gathered(conv) > 0}


class Im2colInt16(Int16Tiles):
    """k x k: the patches of four pixels are gathered side by side and multiplied by all channels, two at a time.

    Vectors are copied where a pixel is whole vectors, rows of a patch or elements elsewhere.
    """

    name = "mve16_patch"


class PointwiseInt16(Int16Tiles):
    """1x1: four pixels side by side times all channels, two at a time. In place; growing layers run backwards."""

    name = "mve16_pointwise"
    pointwise = True


# 1x1 convolutions of int8 for Helium with 64 inputs at most: vectors of two pixels stay in registers.
#
# The inner loops and the layout of the packed weights: crt/include/mt_mve_pixels_int8.h.


PIXELS_LAYOUT = "4 output channels a row: vectors of 16 weights by turns, biases, scales (the bits of floats)"
TOGETHER = 4  # output channels
MOST_BYTES = 64  # bytes of a patch
EACH = (32, 44, 58, 72)  # instructions for two pixels and four channels, by the vectors of a patch


def pack_pixels(weights: Array, bias: Array, scale: Array) -> Array:
    """Return int8 [N/4, 64 * vectors + 32]: for each vector of a patch one of each channel, biases, scales.

    Args:
        weights: int8 [N, K], N a multiple of 4.
        bias: int32 [N], the input's zero point folded in.
        scale: float32 [N].
    """
    numbers = [numbers_of(bias, TOGETHER, np.int32), numbers_of(scale, TOGETHER, np.float32)]
    return np.concatenate([by_turns(weights, TOGETHER, INT8_LANES), *numbers], axis=1)


class SmallPatches(ConvSchedule[Int8Epilogue]):
    """The common part of the schedules: two pixels, whose patches are 64 bytes at most, times four channels."""

    core = "has_mve"
    forms = (Int8Epilogue,)

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """Return whether channels come in fours, patches are small, and results near and stored as they are."""
        shape = conv.group == 1 and conv.batch == 1 and conv.meets_the_image and conv.depth <= MOST_BYTES
        channels = conv.out_channels % TOGETHER == 0 and conv.out_channels < SCATTER_REACH
        int8 = epilogue.weights.dtype == np.int8 and epilogue.rest is None
        return shape and channels and int8 and epilogue.is_near

    def _products(self, conv: Conv, after: int) -> float:
        """Return the instructions of all products: 32 to 72 for two pixels and four channels; `after` them."""
        block = EACH[round_up(conv.depth, INT8_LANES) // INT8_LANES - 1]
        return round_up(conv.pixels, 2) / 2 * (conv.out_channels / TOGETHER * block + after)

    def products(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Products:
        """Four channels together."""
        assert isinstance(epilogue.scaling, FloatScaling)
        filters = epilogue.weights.reshape(conv.out_channels, -1)
        return Products(
            pack_pixels(filters, epilogue.bias, epilogue.scaling.scale), PIXELS_LAYOUT, "mt_mve_pixels_int8.h"
        )


class Pixels(SmallPatches):
    """1x1, up to 64 inputs: two pixels times all channels, four at a time. In place, backwards if it grows.

    With a stride, row by row and not in place.
    """

    name = "mve_pixels"
    template = "kernels/conv2d/mve/pointwise_pixels_int8.c.j2"

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """1x1, no padding, no groups, one image, int8 to all of int8 by floats."""
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


TOGETHER_PIXELS = (8, 6, 4, 2)  # that are gathered before they are multiplied


class Columns(SmallPatches):
    """k x k, patches of at most 64 bytes: gathered by rows of a patch, a vector each, padding by predication.

    Two pixels stay in registers, times all channels, four at a time. A row of results may be held back, so that the
    output can take the input's storage.
    """

    name = "mve_columns"
    template = "kernels/conv2d/mve/im2col_columns_int8.c.j2"

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """No dilation, no groups, rows of a patch of 16 bytes at most, one image, int8 to all of int8 by floats."""
        shape = conv.dilation == (1, 1) and not conv.is_pointwise and conv.kernel[1] * conv.channels <= INT8_LANES
        return shape and super().fits(conv, epilogue)

    def _together(self, conv: Conv) -> int:
        """How many pixels are gathered: a part of a row, if that lets rows be held back."""
        return next((many for many in TOGETHER_PIXELS if shrinks_by_rows(conv, many)), TOGETHER_PIXELS[0])

    def scratch(self, conv: Conv, epilogue: Int8Epilogue) -> int:
        """The columns, the bytes written after the last one, and a delayed row."""
        row = conv.out_size[1] * conv.out_channels if self.over_input(conv, epilogue) else 0
        return self._together(conv) * round_up(conv.depth, INT8_LANES) + INT8_LANES + row

    def over_input(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """Row by row."""
        return shrinks_by_rows(conv, self._together(conv))

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """The products, 20 for two pixels; 5 a row of a patch, 20 a pixel."""
        return conv.pixels * (5 * conv.kernel[0] + 20) + self._products(conv, 20)

    def values(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> dict[str, Any]:
        """How many pixels are gathered, and whether rows are held back."""
        return {"together": self._together(conv), "by_rows": self.over_input(conv, epilogue)}


# Convolutions of float32 for Helium: pixels by vectors of channels.
#
# The inner loops and the layout of the packed weights: crt/include/mt_mve_tile_f32.h.


CHANNELS = {3: 8, 6: 4}  # the channels of a tile by its pixels: six vectors of sums
TILE_COSTS = {3: (35, 29), 6: (33, 33)}  # instructions for four steps of k, and for the results


@dataclass(frozen=True)
class Im2colF32(FloatTiles):
    """The patches of a few pixels are gathered and multiplied by all channels, a vector or two at a time.

    A 1x1 layer runs in place: forwards, or backwards if it grows.

    Of tiles that waste the same, the one with three pixels is used: it has more instructions, but half as many loads of
    single floats, which can't overlap with anything.
    """

    name = "mve_f32_columns"
    core = "has_mve"
    forms = (FloatEpilogue,)
    template = "kernels/conv2d/mve/tiles_f32.c.j2"

    pixels: int = knob(
        0, *CHANNELS, meaning="pixels of a tile: 3 by eight channels or 6 by four; auto: the tile that wastes less"
    )

    def fits(self, conv: Conv, epilogue: FloatEpilogue) -> bool:
        """One image, no groups, no dilation of columns, float32; all windows overlap the input."""
        return super().fits(conv, epilogue) and conv.meets_the_image

    def shape(self, conv: Conv) -> Tile:
        """The tile that wastes less."""

        def products(pixels: int) -> int:
            return round_up(conv.pixels, pixels) * round_up(conv.out_channels, CHANNELS[pixels])

        pixels = self.pixels or min(CHANNELS, key=products)
        return Tile(pixels, CHANNELS[pixels])

    def instructions(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> float:
        """The tiles; three for a vector of a patch that is gathered, 8 for a row of it, 40 for all (5 if pointwise)."""
        tile = self.shape(conv)
        four, results = TILE_COSTS[tile.pixels]
        run = math.ceil(conv.kernel[1] * conv.channels / 4)
        gathering = conv.kernel[0] * (3 * run + 8) + (5 if conv.is_pointwise else 40)
        per_tile = tile.channel_steps(conv) * (four * self.depth(conv) // 4 + results) + tile.pixels * gathering + 25
        return float(tile.columns(conv) * per_tile)

    def products(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> Products:
        """The channels of a tile together; its last argument is the least that a result may be."""
        tile, stored, long = self.shape(conv), epilogue.stored, "long_" if conv.depth > MOST else ""
        function = f"mt_mve_f32_columns_{long}{stored + '_' if stored else ''}{tile.pixels}"
        filters = epilogue.weights.reshape(conv.out_channels, -1)
        weights = packed(filters, epilogue.bias_of_model, tile.channels, stored)
        return Products(weights, LAYOUT + words_of(stored), "mt_mve_tile_f32.h", function, last=epilogue.least)


SCHEDULES = (PointwiseInt8(), Pixels(), Columns(), Im2colInt8(), PointwiseInt16(), Im2colInt16(), Im2colF32())
