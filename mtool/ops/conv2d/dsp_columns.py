"""Schedules of conv2d for SIMD32 (Armv7E-M and Armv8-M with DSP): three or two pixels by two channels, int8.

The inner loops and the layout of the packed weights are in crt/include/mt_dsp_columns*.h.
"""

import math
from dataclasses import dataclass

import numpy as np

from mtool.ir import Graph, Node
from mtool.ops.conv2d.dsp_weights import Packed, round_up
from mtool.ops.conv2d.schedules import Conv
from mtool.ops.conv2d.tile import Tile
from mtool.ops.requantise import Int8Epilogue
from mtool.ops.schedule import BaseSchedule, Kernel, Target, knob, residual_operands, template

UNROLLS = (28, 16, 8)  # steps of k an iteration: the loops that mt_dsp_columns.h has
TILES = ("3x2", "2x2")  # pixels by channels; the second where three pixels would leave columns empty
TILE_MEANING = "pixels x channels of the register tile; auto: 3x2, or 2x2 where that saves a fifth"
HEADERS = {"3x2": "mt_dsp_columns.h", "2x2": "mt_dsp_columns_2x2.h"}
SUFFIXES = {"3x2": "", "2x2": "_2x2"}  # of the functions


def dot_cost(depth: int, unroll: int, tile: Tile, *, apart: bool = False) -> int:
    """Return instructions of a tile's dot products and results.

    Of 3x2: 17 for four steps of k (2 more of weights apart), 3 an iteration, 57 for the results; of 2x2: 13, 2, 40.
    """
    four, iteration, results = (17, 3, 57) if tile.pixels == 3 else (13, 2, 40)
    return round_up(depth, unroll) // unroll * (unroll // 4 * (four + 2 * apart) + iteration) + results


def best_unroll(depth: int, tile: Tile) -> int:
    """Return the unrolling with the fewest instructions."""
    return min(UNROLLS, key=lambda unroll: dot_cost(depth, unroll, tile))


@dataclass(frozen=True, slots=True)
class Columns:
    """How the patches of a convolution stand in the columns.

    `rows` bytes of a patch row are copied by words; with `lasts` the one byte that a row has more goes into a word
    for all rows. `by_taps`: a tap's channels at a time, since they do not stand side by side. `order` has the place in
    the kernel of each byte of the column, -1 for filling.
    """

    row_words: int
    lasts: bool
    order: tuple[int, ...]
    by_taps: bool = False

    @classmethod
    def of(cls, conv: Conv) -> "Columns":
        """Choose: whole rows, rows and last bytes, rows filled up to words, or taps."""
        height, row = conv.kernel[0], conv.kernel[1] * conv.channels
        if conv.group > 1 or (conv.channels % 4 and conv.dilation != (1, 1)):
            order = (*range(conv.depth), *[-1] * (-conv.depth % 4))
            return cls(len(order) // 4, False, order, True)
        if row % 4 == 0:
            return cls(row // 4, False, tuple(range(height * row)))
        if row % 4 == 1 and row > 4 and height <= 4:
            body = [y * row + i for y in range(height) for i in range(row - 1)]
            lasts = [y * row + row - 1 for y in range(height)]
            return cls(row // 4, True, (*body, *lasts, *[-1] * (4 - height)))
        filled = round_up(row, 4)
        places = (y * row + i if i < row else -1 for y in range(height) for i in range(filled))
        return cls(filled // 4, False, tuple(places))


def shrinks_by_rows(conv: Conv, pixels: int) -> bool:
    """Whether each row of outputs ends before the input that the next one reads, and is whole groups of `pixels`."""
    out_row, in_row = conv.out_size[1] * conv.out_channels, conv.size[1] * conv.channels
    return conv.out_size[1] % pixels == 0 and all(
        (y + 1) * out_row <= max(0, (y + 1) * conv.stride[0] - conv.pad[0]) * in_row
        for y in range(conv.out_size[0] - 1)
    )


def results_aside(conv: Conv, epilogue: Int8Epilogue | None, tile: Tile) -> int:
    """Return the bytes of results that are not stored directly: a tile's, or those of unwanted pixels."""
    channels = conv.out_channels // conv.group
    direct = (epilogue is None or epilogue.rest is None) and channels % 2 == 0
    return round_up(channels, 2) * (tile.pixels if not direct else 1 if conv.pixels % tile.pixels else 0)


@dataclass(frozen=True)
class _Columns(BaseSchedule):
    """What both schedules share."""

    unroll: int = knob(0, *UNROLLS, meaning="steps of k an iteration; auto: with the fewest instructions")

    tile: str = knob("", *TILES, meaning=TILE_MEANING)

    def depth(self, conv: Conv) -> int:
        """Elements of a column, before it is filled up for the unrolled loop."""
        raise NotImplementedError

    def gathering(self, conv: Conv, tile: Tile) -> float:
        """Instructions that make all columns of a group."""
        raise NotImplementedError

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
        return conv.group * (tile.columns(conv) * tile.channel_steps(conv) * dots + self.gathering(conv, tile))

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The dot products, and what gathers the pixels."""
        conv, packed = Conv.of(node, graph), self._packed(node, graph)
        return self._cost(conv, self._tile(conv), apart=packed is not None and packed.apart)

    def _packed(self, node: Node, graph: Graph) -> Packed | None:
        raise NotImplementedError


class Pointwise(_Columns):
    """1x1: a tile's pixels are widened to int16 and meet all channels, two at a time. In place either way.

    A layer that grows runs backwards, so that its output may start where its input starts.
    """

    name = "dsp_pointwise"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """1x1 of one image, int8 to int8, more than one input.

        A pixel's last word may reach into the pixels behind it: of one channel they would have to be three.
        """
        conv = Conv.of(node, graph)
        shape = conv.is_pointwise and conv.group == 1 and conv.batch == 1 and conv.channels > 1
        return target.has_dsp and shape and self._packed(node, graph) is not None

    def _packed(self, node: Node, graph: Graph) -> Packed | None:
        epilogue, weights = Int8Epilogue.of(node, graph), graph.constants[node.inputs[1]]
        if epilogue is None or weights.dtype != np.int8:
            return None
        conv = Conv.of(node, graph)
        filters = weights.reshape(weights.shape[0], conv.channels)
        return Packed.of(epilogue, filters, self._padded(conv))

    def depth(self, conv: Conv) -> int:
        """A pixel."""
        return conv.channels

    def gathering(self, conv: Conv, tile: Tile) -> float:
        """14 to widen four elements of three pixels, 9 of two."""
        return tile.columns(conv) * (14 if tile.pixels == 3 else 9) * conv.channels / 4

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """A tile's columns, results that are not stored directly, the last pixels if they are not whole words."""
        conv = Conv.of(node, graph)
        tile = self._tile(conv)
        reach = (tile.pixels - 1) * conv.channels + round_up(conv.channels, 4)  # as far as words do
        aside = results_aside(conv, Int8Epilogue.of(node, graph), tile)
        return self._columns_bytes(conv) + aside + (reach if conv.channels % 4 else 0)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, and a residual operand that is not its input."""
        residuals = residual_operands(node, graph)
        if node.attrs["epilogue"].operands() & {0} or graph.types[node.outputs[0]].dtype.size != 1:
            return residuals
        return (0, *residuals)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, packed = Conv.of(node, graph), self._packed(node, graph)
        assert packed is not None
        epilogue = packed.epilogue
        tile = self._tile(conv)
        body = template(
            "conv2d/dsp_pointwise.c.j2",
            conv=conv,
            tile=tile,
            function=packed.function(self._unroll(conv, tile), SUFFIXES[tile.name]),
            depth=self._padded(conv),
            results=results_aside(conv, epilogue, tile),
            epilogue=epilogue,
            backward=conv.out_channels > conv.channels,
            rest=lambda acc, offset: epilogue.rest_text(node, graph, acc, offset),
        )
        return epilogue.kernel(node, graph, body, packed.stream, HEADERS[tile.name])


class Patch(_Columns):
    """k x k: the patches of a tile's pixels are gathered into columns of int16, which meet all channels, two at a time.

    Rows of a patch are copied by words inside the image; byte by byte on its border, unless a pixel is whole words.
    """

    name = "dsp_patch"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image, int8 to int8, more than one input of a group."""
        conv = Conv.of(node, graph)
        shape = conv.batch == 1 and not conv.is_depthwise
        return target.has_dsp and shape and self._packed(node, graph) is not None

    def _packed(self, node: Node, graph: Graph) -> Packed | None:
        epilogue, weights = Int8Epilogue.of(node, graph), graph.constants[node.inputs[1]]
        if epilogue is None or weights.dtype != np.int8:
            return None
        conv = Conv.of(node, graph)
        order = np.asarray(Columns.of(conv).order)
        flat = weights.reshape(weights.shape[0], -1)
        filters = np.concatenate([flat, np.zeros((flat.shape[0], 1), np.int8)], axis=1)[:, order]
        return Packed.of(epilogue, filters, self._padded(conv), conv.group)

    def depth(self, conv: Conv) -> int:
        """A patch, with what fills up its rows."""
        return len(Columns.of(conv).order)

    def gathering(self, conv: Conv, tile: Tile) -> float:
        """8 for four elements, 20 a row; 12 a tap that stands alone."""
        columns = Columns.of(conv)
        places = 12 * math.prod(conv.kernel) if columns.by_taps else 20 * conv.kernel[0]
        return conv.pixels * (8 * len(columns.order) / 4 + places)

    def _aside(self, conv: Conv, epilogue: Int8Epilogue | None, columns: Columns) -> int:
        """Bytes for one patch of a border pixel, or for results that are not stored directly."""
        gathered = len(columns.order) if conv.channels % 4 or columns.by_taps else 0
        return max(results_aside(conv, epilogue, self._tile(conv)), gathered)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """A tile's columns, a row of results if they are stored a row at a time, a border patch."""
        conv, epilogue = Conv.of(node, graph), Int8Epilogue.of(node, graph)
        row = conv.out_size[1] * conv.out_channels if self._by_rows(node, graph) else 0
        return self._columns_bytes(conv) + row + self._aside(conv, epilogue, Columns.of(conv))

    def _by_rows(self, node: Node, graph: Graph) -> bool:
        """Whether the output may take the input's storage, if a row of it is held back until it is whole."""
        epilogue, conv = Int8Epilogue.of(node, graph), Conv.of(node, graph)
        direct = epilogue is not None and epilogue.rest is None
        return direct and conv.group == 1 and shrinks_by_rows(conv, self._tile(conv).pixels)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if it shrinks fast enough; a residual operand that is not its input."""
        residuals = residual_operands(node, graph)
        return (0, *residuals) if self._by_rows(node, graph) else residuals

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, packed = Conv.of(node, graph), self._packed(node, graph)
        assert packed is not None
        epilogue = packed.epilogue
        columns, tile = Columns.of(conv), self._tile(conv)
        body = template(
            "conv2d/dsp_patch.c.j2",
            conv=conv,
            columns=columns,
            tile=tile,
            function=packed.function(self._unroll(conv, tile), SUFFIXES[tile.name]),
            suffix=SUFFIXES[tile.name],
            depth=self._padded(conv),
            stream=packed.stream.size // conv.group,
            epilogue=epilogue,
            aside=self._aside(conv, epilogue, columns) > 0,
            by_rows=self._by_rows(node, graph),
            rest=lambda acc, offset: epilogue.rest_text(node, graph, acc, offset),
        )
        return epilogue.kernel(node, graph, body, packed.stream, HEADERS[tile.name])
