"""Register tiles of int8 for Helium, which 1x1 and im2col share: four pixels by two channels, or two by four.

The inner loops and the layout of the packed weights: crt/include/mt_mve_tile_*_int8.h.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mtool.compiler.ir import DType
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv, Tile
from mtool.compiler.kernels.conv2d.tiles import TileSchedule
from mtool.compiler.kernels.epilogues import Int8Epilogue, Products
from mtool.compiler.kernels.mve import INT8_LANES
from mtool.compiler.kernels.packing import packed_by_rows, round_up
from mtool.compiler.kernels.scaling import Scaling
from mtool.compiler.kernels.schedule import Kernel, knob
from mtool.compiler.kernels.target import Target

TILES = ("4x2", "2x4")  # pixels by channels; the second where four pixels would leave columns empty
TILE_MEANING = "pixels x channels of the register tile; auto: 4x2, or 2x4 where that saves a fiftieth"
HEADERS = {"4x2": "mt_mve_tile_4x2_int8.h", "2x4": "mt_mve_tile_2x4_int8.h"}
UNROLLS = (9, 4, 3, 2, 1)  # blocks an iteration: the loops that mt_mve_tile_int8.h has
SCATTER_REACH = 1 << 14  # channels whose four pixels the 16-bit offsets of a scatter reach


def best_unroll(depth: int) -> int:
    """Return the largest unrolling of mt_mve_tile_int8.h, in blocks, that divides the depth."""
    blocks = round_up(depth, INT8_LANES) // INT8_LANES
    return next(unroll for unroll in UNROLLS if blocks % unroll == 0)


def dot_cost(padded: int, unroll: int) -> float:
    """Return instructions of a tile's dot products with their results: 14 a block, 2 an iteration, 24 more."""
    return padded / INT8_LANES * (14 + 2 / unroll) + 24


def pack(weights: Array, bias: Array, scaling: Scaling, padded: int, together: int) -> Array:
    """Return the stream of mt_mve_columns, int8 [N/T, T * padded + 32 or 48].

    Args:
        weights: int8 [N, K]; N is filled up to whole tiles, K to `padded`.
        bias: int32 [N], the input's zero point folded in.
        scaling: of N channels.
        padded: whole vectors.
        together: T, the channels of a tile.
    """
    wanted, depth = weights.shape
    count = round_up(wanted, together)
    filled = np.zeros((count, padded), np.int8)
    filled[:wanted, :depth] = weights
    tiles = count // together
    blocks = filled.reshape(tiles, together, -1, INT8_LANES).transpose(0, 2, 1, 3).reshape(tiles, -1)
    lanes = np.arange(4) % together  # two channels stand twice
    biases = np.pad(bias.astype(np.int32), (0, count - wanted)).reshape(tiles, -1)[:, lanes]
    return np.concatenate(
        [blocks, np.ascontiguousarray(biases).view(np.int8), scaling.padded(count).vectors(together, lanes)], axis=1
    )


def _by_vectors(conv: Conv) -> bool:
    """Whether a tap is whole vectors."""
    return conv.channels // conv.group % INT8_LANES == 0


@dataclass(frozen=True)
class Tiles(TileSchedule[Int8Epilogue]):
    """The common part of both schedules."""

    core = "has_mve"
    forms = (Int8Epilogue,)
    template = "kernels/conv2d/mve/tiles_int8.c.j2"
    element = DType.INT8
    scratch_type = "int8_t"
    holds_rows = True

    unroll: int = knob(0, *UNROLLS, meaning="vectors of k an iteration; auto: the most that divide the depth")

    tile: str = knob("", *TILES, meaning=TILE_MEANING)

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """One image, int8 to int8."""
        int8 = bool(epilogue.weights.dtype == np.int8)
        return super().fits(conv, epilogue) and int8 and conv.out_channels < SCATTER_REACH

    def _unroll(self, conv: Conv) -> int:
        return self.unroll or best_unroll(conv.depth)

    def depth(self, conv: Conv) -> int:
        """Whole iterations."""
        return round_up(conv.depth, INT8_LANES * self._unroll(conv))

    def gathered(self, conv: Conv) -> int:
        """A column, unless taps are whole vectors."""
        return 0 if self.pointwise or _by_vectors(conv) else self.depth(conv)

    def shape(self, conv: Conv) -> Tile:
        """The one asked for, or the usual one unless another saves much."""
        if self.tile:
            return Tile.named(self.tile)
        return Tile.chosen(*TILES, lambda tile: self._cost(conv, tile), saving=0.02)

    def _cost(self, conv: Conv, tile: Tile) -> float:
        gathering = conv.depth / 4 if _by_vectors(conv) else conv.depth * 1.5
        dots = tile.channel_steps(conv) * dot_cost(self.depth(conv), self._unroll(conv))
        return conv.group * tile.columns(conv) * (dots + tile.pixels * gathering + 40)

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """The dot products, and what gathers the pixels."""
        return self._cost(conv, self.shape(conv))

    def products(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Products:
        """The channels of a tile together."""
        tile, depth, unroll, pair = self.shape(conv), self.depth(conv), self._unroll(conv), epilogue.pair()
        rows = partial(pack, padded=depth, together=tile.channels)
        filters = epilogue.weights.reshape(conv.out_channels, -1)
        weights = packed_by_rows(rows, tile.channels, filters, epilogue.bias, epilogue.scaling, groups=conv.group)
        kind, whole = epilogue.scaling.kind, "_whole" if depth == INT8_LANES * unroll else ""
        function = f"mt_mve_columns{'' if tile.name == TILES[0] else '_' + tile.name}{kind}_{unroll}{whole}"
        declared = epilogue.declared("mt_mve_range", "MT_MVE_RANGE")
        if pair is not None:
            declared += f"\n    {pair.declared}"
        layout = f"{tile.channels} output channels a row: bytes of biases, vectors of 16 weights by turns, "
        layout += f"bytes of {epilogue.scaling.meaning}"
        return Products(weights, layout, (HEADERS[tile.name],), function, declared, "&range")

    def values(self, conv: Conv, epilogue: Int8Epilogue) -> dict[str, Any]:
        """Whether taps are whole vectors, and the sum that follows, if there is a loop for it."""
        return {"by_vectors": _by_vectors(conv), "pair": epilogue.pair()}

    def kernel(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Kernel:
        """Write the function, for results that are near if they are."""
        return super().kernel(conv, epilogue.nearer(), target)


class Im2col(Tiles):
    """k x k: the patches of a tile's pixels are gathered and multiplied with all channels, a tile's at a time.

    Vectors are copied where a pixel is whole vectors; rows of a patch, or bytes on the border, elsewhere.
    """

    name = "mve_patch"


class Pointwise(Tiles):
    """1x1: a tile's pixels side by side times all channels, a tile's at a time. In place; if it grows, backwards."""

    name = "mve_pointwise"
    pointwise = True
