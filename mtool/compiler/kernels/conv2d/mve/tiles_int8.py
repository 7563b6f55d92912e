"""Register tiles of int8 for Helium, which 1x1 and im2col share: four pixels by two channels, or two by four.

The inner loops and the layout of the packed weights: crt/include/mt_mve_tile_*_int8.h.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv, Tile, own_in_place, shrinks_by_rows
from mtool.compiler.kernels.epilogues import Int8Epilogue
from mtool.compiler.kernels.mve import INT8_LANES
from mtool.compiler.kernels.packing import packed_by_rows, round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.scaling import Scaling
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel, knob
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
class Tiles(BaseSchedule):
    """The common part of both schedules."""

    name = ""
    template = ""
    pixelwise = False

    unroll: int = knob(0, *UNROLLS, meaning="vectors of k an iteration; auto: the most that divide the depth")

    tile: str = knob("", *TILES, meaning=TILE_MEANING)

    def _unroll(self, conv: Conv) -> int:
        return self.unroll or best_unroll(conv.depth)

    def _padded(self, conv: Conv) -> int:
        return round_up(conv.depth, INT8_LANES * self._unroll(conv))

    def _tile(self, conv: Conv) -> Tile:
        if self.tile:
            return Tile.named(self.tile)
        return Tile.chosen(*TILES, lambda tile: self._cost(conv, tile), saving=0.02)

    def fits(self, conv: Conv) -> bool:
        """Whether the shape is one of this schedule's."""
        raise NotImplementedError

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image, int8 to int8."""
        conv = Conv.of(node, graph)
        shape = conv.batch == 1 and self.fits(conv)
        int8 = graph.constants[node.inputs[1]].dtype == np.int8 and conv.out_channels < SCATTER_REACH
        return target.has_mve and shape and int8 and Int8Epilogue.of(node, graph) is not None

    def by_rows(self, node: Node, graph: Graph) -> bool:
        """Whether a row of outputs is held back until it is whole, so that it may take the input's storage."""
        conv, epilogue = Conv.of(node, graph), Int8Epilogue.of(node, graph)
        stored_directly = epilogue is not None and epilogue.rest is None
        return (
            stored_directly
            and not self.pixelwise
            and conv.group == 1
            and shrinks_by_rows(conv, self._tile(conv).pixels)
        )

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """A tile's columns, and a patch or results that are not stored directly."""
        conv, epilogue = Conv.of(node, graph), Int8Epilogue.of(node, graph)
        padded = self._padded(conv)
        tile, channels = self._tile(conv), conv.out_channels // conv.group
        whole = conv.pixels % tile.pixels == 0 and channels % tile.channels == 0
        stored_directly = (epilogue is None or epilogue.rest is None) and whole
        gathered = 0 if self.pixelwise or _by_vectors(conv) else padded
        row = conv.out_size[1] * conv.out_channels if self.by_rows(node, graph) else 0
        staged = 0 if stored_directly else tile.pixels * round_up(channels, tile.channels)
        return tile.pixels * padded + row + max(staged, gathered)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """A residual operand that is not its input; the input too, if pixel by pixel or row by row."""
        return own_in_place(node, graph, possible=self.pixelwise or self.by_rows(node, graph))

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The dot products, and what gathers the pixels."""
        conv = Conv.of(node, graph)
        return self._cost(conv, self._tile(conv))

    def _cost(self, conv: Conv, tile: Tile) -> float:
        gathering = conv.depth / 4 if _by_vectors(conv) else conv.depth * 1.5
        dots = tile.channel_steps(conv) * dot_cost(self._padded(conv), self._unroll(conv))
        return conv.group * tile.columns(conv) * (dots + tile.pixels * gathering + 40)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue = Conv.of(node, graph), Int8Epilogue.of(node, graph)
        assert epilogue is not None
        epilogue = epilogue.nearer(graph.constants[node.inputs[1]])
        tile = self._tile(conv)
        filters = graph.constants[node.inputs[1]].reshape(conv.out_channels, -1)
        rows = partial(pack, padded=self._padded(conv), together=tile.channels)
        numbers = (epilogue.bias, epilogue.scaling)
        weights = packed_by_rows(rows, tile.channels, filters, *numbers, groups=conv.group)
        body = template(
            self.template,
            conv=conv,
            tile=tile,
            padded=self._padded(conv),
            unroll=self._unroll(conv),
            by_vectors=_by_vectors(conv),
            stream=weights.size // conv.group,
            epilogue=epilogue,
            pair=epilogue.pair(node, graph),
            by_rows=self.by_rows(node, graph),
            backward=conv.out_channels > conv.channels,
            rest=lambda acc, offset: epilogue.rest_text(node, graph, acc, offset),
        )
        layout = f"{tile.channels} output channels a row: bytes of biases, vectors of 16 weights by turns, "
        layout += f"bytes of {epilogue.scaling.meaning}"
        return epilogue.kernel(node, graph, body, weights, layout, HEADERS[tile.name], "int8_t")


# Convolutions of int8 for Helium: patches stand side by side as columns.


class Im2col(Tiles):
    """k x k: the patches of a tile's pixels are gathered and multiplied with all channels, a tile's at a time.

    Vectors are copied where a pixel is whole vectors; rows of a patch, or bytes on the border, elsewhere.
    """

    name = "mve_patch"
    template = "kernels/conv2d/mve/im2col_int8.c.j2"

    def fits(self, conv: Conv) -> bool:
        """More than one input of a group."""
        return not conv.is_depthwise


# 1x1 convolutions of int8 for Helium.


class Pointwise(Tiles):
    """1x1: a tile's pixels side by side times all channels, a tile's at a time. In place; if it grows, backwards."""

    name = "mve_pointwise"
    template = "kernels/conv2d/mve/pointwise_int8.c.j2"
    pixelwise = True

    def fits(self, conv: Conv) -> bool:
        """1x1, stride 1, no padding, no groups."""
        return conv.is_pointwise and conv.group == 1
