"""Register tiles of int8 for SIMD32, which 1x1 and im2col share: three or two pixels by two channels.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_tile_*_int8.h.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.code_price import LEAST, nodes_alike, price_of_code
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.tile import Tile
from mtool.compiler.kernels.dsp.loops import LONGEST, TURNS, WORD, Loop
from mtool.compiler.kernels.dsp.shared_scaling import Layer, shared_scaling
from mtool.compiler.kernels.dsp.weights_int8 import Columns, Packed, go_in_pairs
from mtool.compiler.kernels.epilogues.integer import Int8Epilogue
from mtool.compiler.kernels.exact_scaling import Together
from mtool.compiler.kernels.knobs import knob
from mtool.compiler.kernels.padding import round_up
from mtool.compiler.kernels.schedule import BaseSchedule
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weight_offset import is_stored_as_int8, stored_weights

TILES = ("3x2", "2x2")  # pixels by channels; the second where three pixels would leave columns empty
TILE_MEANING = "pixels x channels of the register tile; auto: 3x2, or 2x2 where that saves a fifth of the instructions"
HEADERS = {"3x2": "mt_dsp_tile_3x2_int8.h", "2x2": "mt_dsp_tile_2x2_int8.h"}
CYCLES = {"3x2": 1.08, "2x2": 0.88}  # an instruction, on a core that issues two a cycle: docs/schedules.md
SUMMED = 248  # elements of a column, of int8, whose sum is an int16: MT_DSP_SUMMED of mt_dsp_tile_int8.h
SUFFIXES = {"3x2": "", "2x2": "_2x2"}  # of the functions
END = {"3x2": 3, "2x2": 2}  # instructions of a turn's end
CODE = {"3x2": 68, "2x2": 52}  # bytes of code for four steps of k
FUNCTION = 300  # bytes of a function besides


def sums_of(depth: int) -> int:
    """Return the elements that a column of `depth` has for its own sums: as many as stay int16, filled up to a word."""
    return round_up(-(-round_up(depth, 4) // SUMMED), 4)


def dot_cost(depth: int, tile: Tile, loop: Loop, *, apart: bool = False) -> int:
    """Return instructions of a tile's dot products and results.

    Of 3x2: 17 for four steps of k (2 more of weights apart), 3 a turn, 32 for the results; of 2x2: 13, 2, 24.
    """
    four, results = (17, 32) if tile.pixels == 3 else (13, 24)
    return depth // 4 * (four + 2 * apart) + loop.overhead(depth, END[tile.name]) + results


def staged_results(conv: Conv, epilogue: Int8Epilogue | None, tile: Tile) -> int:
    """Return the bytes of results that are not stored directly: a tile's, or those of unwanted pixels."""
    channels = conv.out_channels // conv.group
    stored_directly = (epilogue is None or epilogue.rest is None) and channels % 2 == 0
    return round_up(channels, 2) * (tile.pixels if not stored_directly else 1 if conv.pixels % tile.pixels else 0)


@dataclass(frozen=True)
class Tiles(BaseSchedule):
    """The common part of both schedules."""

    unroll: int = knob(
        0, *TURNS, meaning="steps of k an iteration; auto: 32, fewer or all of them, by what code is worth"
    )

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

    def _padded(self, conv: Conv) -> int:
        return round_up(self.depth(conv), 4)

    def _turn(self, node: Node, graph: Graph) -> int:
        return self.unroll or (TURNS[0] if price_of_code(node, graph) * node.parts * graph.rounds > LEAST else TURNS[1])

    def loop(self, node: Node, graph: Graph) -> Loop:
        """Return the loop of the dot products: one for all layers, none where that is worth a function's code."""
        conv = Conv.of(node, graph)
        depth, tile = self._padded(conv), self._tile(conv)
        loop, whole = Loop.of(depth, self._turn(node, graph)), Loop.whole(depth)
        if self.unroll or whole.words > LONGEST:
            return loop
        runs = conv.group * tile.columns(conv) * tile.channel_steps(conv)
        saved = runs * loop.overhead(depth, END[tile.name]) * nodes_alike(node, graph)
        code = FUNCTION + CODE[tile.name] * whole.words
        return whole if saved > code * price_of_code(node, graph) / 2 else loop

    def _columns_bytes(self, conv: Conv) -> int:
        return 2 * self._tile(conv).pixels * self._padded(conv)

    def _cost(self, conv: Conv, tile: Tile, *, apart: bool = False) -> float:
        depth = self._padded(conv)
        dots = dot_cost(depth, tile, Loop.of(depth, self.unroll or max(TURNS)), apart=apart)
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
        numbers = shared_scaling(node, graph, partial(self._layer, graph))
        return Packed.of(epilogue, numbers, stored_weights(node, graph), real, columns, conv.group, apart=apart)

    def _layer(self, graph: Graph, node: Node) -> Layer:
        conv = Conv.of(node, graph)
        tile = self._tile(conv)
        code = FUNCTION + CODE[tile.name] * self._turn(node, graph) / WORD
        tiles = conv.group * tile.columns(conv) * tile.channel_steps(conv)
        return Layer(Together(2, conv.group), tiles, code, lambda other: self._shares(other, graph))

    def _shares(self, node: Node, graph: Graph) -> bool:
        return node.op == "conv2d" and self.takes(node, graph) and not Conv.of(node, graph).is_depthwise
