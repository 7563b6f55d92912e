"""Register tiles of int8 for SIMD32, which 1x1 and im2col share: three or two pixels by two channels.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_tile_*_int8.h.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from mtool.ir import Graph, Node
from mtool.kernels.dsp.loops import UNROLLS
from mtool.kernels.dsp.weights_int8 import Columns, Packed, go_in_pairs
from mtool.kernels.epilogues.integer import Int8Epilogue
from mtool.kernels.knobs import knob
from mtool.kernels.padding import round_up
from mtool.kernels.schedule import BaseSchedule
from mtool.kernels.target import Target
from mtool.kernels.weight_offset import is_stored_as_int8, stored_weights
from mtool.ops.conv2d.geometry import Conv
from mtool.ops.conv2d.tile import Tile

TILES = ("3x2", "2x2")  # pixels by channels; the second where three pixels would leave columns empty
TILE_MEANING = "pixels x channels of the register tile; auto: 3x2, or 2x2 where that saves a fifth of the instructions"
HEADERS = {"3x2": "mt_dsp_tile_3x2_int8.h", "2x2": "mt_dsp_tile_2x2_int8.h"}
CYCLES = {"3x2": 1.08, "2x2": 0.88}  # an instruction, on a core that issues two a cycle: docs/schedules.md
SUMMED = 248  # elements of a column, of int8, whose sum is an int16: MT_DSP_SUMMED of mt_dsp_tile_int8.h
SUFFIXES = {"3x2": "", "2x2": "_2x2"}  # of the functions


def sums_of(depth: int) -> int:
    """Return the elements that a column of `depth` has for its own sums: as many as stay int16, filled up to a word."""
    return round_up(-(-round_up(depth, 4) // SUMMED), 4)


def dot_cost(depth: int, unroll: int, tile: Tile, *, apart: bool = False) -> int:
    """Return instructions of a tile's dot products and results.

    Of 3x2: 17 for four steps of k (2 more of weights apart), 3 an iteration, 39 for the results; of 2x2: 13, 2, 27.
    """
    four, iteration, results = (17, 3, 39) if tile.pixels == 3 else (13, 2, 27)
    return round_up(depth, unroll) // unroll * (unroll // 4 * (four + 2 * apart) + iteration) + results


def best_unroll(depth: int, tile: Tile) -> int:
    """Return the unrolling with the fewest instructions."""
    return min(UNROLLS, key=lambda unroll: dot_cost(depth, unroll, tile))


def staged_results(conv: Conv, epilogue: Int8Epilogue | None, tile: Tile) -> int:
    """Return the bytes of results that are not stored directly: a tile's, or those of unwanted pixels."""
    channels = conv.out_channels // conv.group
    stored_directly = (epilogue is None or epilogue.rest is None) and channels % 2 == 0
    return round_up(channels, 2) * (tile.pixels if not stored_directly else 1 if conv.pixels % tile.pixels else 0)


@dataclass(frozen=True)
class Tiles(BaseSchedule):
    """The common part of both schedules."""

    unroll: int = knob(0, *UNROLLS, meaning="steps of k an iteration; auto: with the fewest instructions")

    tile: str = knob("", *TILES, meaning=TILE_MEANING)

    def order(self, conv: Conv) -> Sequence[int]:
        """Return the index into the kernel of each element of a column, -1 for filling."""
        raise NotImplementedError

    def depth(self, conv: Conv) -> int:
        """Elements of a column, before it is filled up for the unrolled loop."""
        depth = len(self.order(conv))
        return round_up(depth, 4) + sums_of(depth) if conv.offset else depth

    def gathering(self, conv: Conv, tile: Tile) -> float:
        """Instructions that make all columns of a group."""
        raise NotImplementedError

    def summing(self, conv: Conv, tile: Tile) -> float:
        """Instructions that sum up the columns, 4 for two elements, where weights have an offset."""
        return tile.columns(conv) * tile.pixels * 2 * self.depth(conv) if conv.offset else 0

    def _tile(self, conv: Conv) -> Tile:
        if self.tile:
            return Tile.named(self.tile)
        return Tile.chosen(*TILES, lambda tile: self._cost(conv, tile))

    def _unroll(self, conv: Conv, tile: Tile) -> int:
        return self.unroll or best_unroll(self.depth(conv), tile)

    def _padded(self, conv: Conv) -> int:
        return round_up(self.depth(conv), self._unroll(conv, self._tile(conv)))

    def _columns_bytes(self, conv: Conv) -> int:
        return 2 * self._tile(conv).pixels * self._padded(conv)

    def _cost(self, conv: Conv, tile: Tile, *, apart: bool = False) -> float:
        dots = dot_cost(self.depth(conv), self._unroll(conv, tile), tile, apart=apart)
        return conv.group * (
            tile.columns(conv) * tile.channel_steps(conv) * dots + self.gathering(conv, tile) + self.summing(conv, tile)
        )

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The dot products, and what gathers the pixels."""
        conv = Conv.of(node, graph)
        return self._cost(conv, self._tile(conv), apart=not go_in_pairs(node, graph, conv.group))

    def for_core(self, node: Node, graph: Graph, target: Target) -> Self:
        """On a Cortex-M7 the tile of the fewest cycles: of 2x2 more instructions go in pairs, see CYCLES."""
        if self.tile or not target.issues_pairs:
            return self
        conv = Conv.of(node, graph)
        best = min(TILES, key=lambda name: CYCLES[name] * self._cost(conv, Tile.named(name)))
        return self if best == self._tile(conv).name else replace(self, tile=best)

    def takes(self, node: Node, graph: Graph) -> bool:
        """Whether the stored weights are int8, and the epilogue one that tiles have by heart."""
        return is_stored_as_int8(node, graph) and Int8Epilogue.of(node, graph) is not None

    def packed(self, node: Node, graph: Graph) -> Packed:
        """Return the weights in the columns' order."""
        conv, epilogue = Conv.of(node, graph), Int8Epilogue.of(node, graph)
        assert epilogue is not None
        order = self.order(conv)
        columns = Columns(np.asarray(order), self._padded(conv), conv.offset, sums_of(len(order)))
        real, apart = graph.constants[node.inputs[1]], not go_in_pairs(node, graph, conv.group)
        return Packed.of(epilogue, stored_weights(node, graph), real, columns, conv.group, apart=apart)
