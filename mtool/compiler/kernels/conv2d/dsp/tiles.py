"""Convolutions by register tiles of SIMD32 (Armv7E-M, Armv8-M with DSP).

The inner loops and the layouts of the packed weights: crt/include/mt_dsp_tile_*.h.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self, get_args

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, DType, Graph, Node
from mtool.compiler.kernels import dsp
from mtool.compiler.kernels.code_price import LEAST, nodes_alike, price_of_code
from mtool.compiler.kernels.conv2d.geometry import Conv, Tile
from mtool.compiler.kernels.conv2d.schedule import TileSchedule
from mtool.compiler.kernels.epilogues import Epilogue16, Int8Epilogue, Products
from mtool.compiler.kernels.exact_scaling import Together
from mtool.compiler.kernels.packing import packed_by_rows, round_up
from mtool.compiler.kernels.scaling import Scaling
from mtool.compiler.kernels.schedule import Target, knob
from mtool.compiler.kernels.weighted_sum import is_stored_as_int8

FIELDS = "3x4"  # of weights of one or two bits
TILES = ("3x2", "2x2")  # pixels by channels; the second where three pixels would leave columns empty
TILE_MEANING = "pixels x channels of the register tile; auto: 3x2, or 2x2 where that saves a fifth of the instructions"
HEADERS = {"3x2": "mt_dsp_tile_3x2_int8.h", "2x2": "mt_dsp_tile_2x2_int8.h", FIELDS: "mt_dsp_tile_3x4_int8.h"}
CYCLES = {"3x2": 1.08, "2x2": 0.88}  # an instruction, on a core that issues two a cycle (ic_int8_qdq, bench --cycles)
SUMMED = 248  # elements of a column, of int8, whose sum is an int16: MT_DSP_SUMMED of mt_dsp_tile_int8.h
SUFFIXES = {"3x2": "", "2x2": "_2x2", FIELDS: ""}  # of the functions
END = {"3x2": 3, "2x2": 2, FIELDS: 3}  # instructions of a turn's end
CODE = {"3x2": 68, "2x2": 52, FIELDS: 76}  # bytes of code for four steps of k
WHOLE = 0  # inputs after which sums are split: at the end
FUNCTION = 300  # bytes of a function besides


def sums_of(depth: int) -> int:
    """Return the number of elements for a column's own sums, each within int16, padded to a word."""
    return round_up(-(-round_up(depth, 4) // SUMMED), 4)


def dot_cost(depth: int, tile: Tile, loop: dsp.Loop, *, apart: bool = False) -> int:
    """Return instructions of a tile's dot products and results.

    Of 3x2: 17 for four steps of k (2 more of weights apart), 3 a turn, 32 for the results; of 2x2: 13, 2, 24.
    """
    four, results = (17, 32) if tile.pixels == 3 else (13, 24)
    return depth // 4 * (four + 2 * apart) + loop.overhead(depth, END[tile.name]) + results


@frozen
class ColumnLayout:
    """The layout of a convolution's patches in the columns.

    `rows` bytes of a patch row are copied by words; with `lasts` the remaining byte of each row goes into a common
    word. `by_taps`: the channels of one tap at a time, since they are not contiguous. `order`: the index into the
    kernel of each byte of the column, -1 for filling.
    """

    row_words: int
    lasts: bool
    order: tuple[int, ...]
    by_taps: bool = False

    @classmethod
    def of(cls, conv: Conv) -> "ColumnLayout":
        """Choose: whole rows, rows and last bytes, rows padded to words, or taps."""
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
        taps = (y * row + i if i < row else -1 for y in range(height) for i in range(filled))
        return cls(filled // 4, False, tuple(taps))

    def last_left(self, conv: Conv) -> int:
        """Return the image's last column from which a patch's row, padded, is copied by words; negative: none."""
        copied = conv.kernel[1] * conv.channels if self.lasts else self.row_words * 4
        return (conv.size[1] * conv.channels - copied) // conv.channels

    def borders(self, conv: Conv) -> list[str]:
        """Return the C conditions under which a patch's rows are gathered byte by byte; "1": those of all patches."""
        last = self.last_left(conv)
        if last < 0 or conv.size[0] < conv.kernel[0]:
            return ["1"]
        farthest = (conv.out_size[1] - 1) * conv.stride[1] - conv.pad[1]
        before = ["left < 0"] if conv.pad[1] > 0 else []
        behind = [f"left > {last}"] if farthest > last else []
        return before + behind + conv.outside(0, "top", conv.kernel[0])

    def gathered(self, conv: Conv) -> int:
        """Return the bytes of a patch that is gathered before it becomes a column; 0: all are copied by words."""
        bytewise = conv.channels % 4 != 0 and (self.lasts or self.borders(conv) != [])
        return len(self.order) if self.by_taps or bytewise else 0


@dataclass(frozen=True)
class Int8Tiles(TileSchedule[Int8Epilogue]):
    """The common part of both schedules."""

    core = "has_dsp"
    forms = (Int8Epilogue,)
    tiles: ClassVar[tuple[str, ...]] = TILES
    template = "kernels/conv2d/dsp/tiles_int8.c.j2"
    element = DType.INT16
    scratch_type = "int32_t"
    apart = True
    holds_rows = True

    unroll: int = knob(0, *dsp.TURNS, meaning="steps of k per iteration; auto: 32, fewer or all, by code size")

    tile: str = knob("", *TILES, meaning=TILE_MEANING)

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """One image, int8 to int8, more than one input channel per group."""
        return super().fits(conv, epilogue) and is_stored_as_int8(epilogue.node, epilogue.graph)

    def order(self, conv: Conv) -> Sequence[int]:
        """Return the index into the kernel of each element of a column, -1 for filling."""
        return range(conv.channels) if self.pointwise else ColumnLayout.of(conv).order

    def gathering(self, conv: Conv, tile: Tile) -> float:
        """Return the instructions that make all columns of a group: 8 for four elements, 20 a row; 12 a tap alone.

        Of pointwise layers 14 to widen four elements of three pixels, 9 of two.
        """
        if self.pointwise:
            return tile.columns(conv) * (14 if tile.pixels == 3 else 9) * conv.channels / 4
        columns = ColumnLayout.of(conv)
        gather = 12 * math.prod(conv.kernel) if columns.by_taps else 20 * conv.kernel[0]
        return conv.pixels * (8 * len(columns.order) / 4 + gather)

    def gathered(self, conv: Conv) -> int:
        """As the layout has it."""
        return 0 if self.pointwise else ColumnLayout.of(conv).gathered(conv)

    def depth(self, conv: Conv) -> int:
        """Whole words; where weights have an offset, the column's own sums too."""
        depth = len(self.order(conv))
        return round_up(depth, 4) + (sums_of(depth) if conv.offset else 0)

    def _turn(self, epilogue: Int8Epilogue) -> int:
        node, graph = epilogue.node, epilogue.graph
        return self.unroll or (
            dsp.TURNS[0]
            if price_of_code(node, graph) * node.parts * graph.rounds > LEAST and not graph.for_size
            else dsp.TURNS[1]
        )

    def loop(self, conv: Conv, epilogue: Int8Epilogue) -> dsp.Loop:
        """Return the loop of the dot products: common to all layers, or unrolled if that is worth a function's code."""
        node, graph, depth, tile = epilogue.node, epilogue.graph, self.depth(conv), self.shape(conv)
        loop, whole = dsp.Loop.of(depth, self._turn(epilogue)), dsp.Loop.whole(depth)
        if self.unroll or whole.words > dsp.LONGEST:
            return loop
        runs = conv.group * tile.columns(conv) * tile.channel_steps(conv)
        saved = runs * loop.overhead(depth, END[tile.name]) * nodes_alike(node, graph)
        code = FUNCTION + CODE[tile.name] * whole.words
        return whole if saved > code * price_of_code(node, graph) / 2 else loop

    def cost_of(self, conv: Conv, tile: Tile, *, apart: bool = False) -> float:
        """The dot products, and what gathers the pixels; 4 for two elements of columns that are summed up."""
        depth = self.depth(conv)
        dots = dot_cost(depth, tile, dsp.Loop.of(depth, self.unroll or max(dsp.TURNS)), apart=apart)
        summing = tile.columns(conv) * tile.pixels * 2 * depth if conv.offset else 0
        tiles = tile.columns(conv) * tile.channel_steps(conv) * dots
        return conv.group * (tiles + self.gathering(conv, tile) + summing)

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """By whether the weights go in pairs."""
        apart = not dsp.go_in_pairs(epilogue.node, epilogue.graph, conv.group)
        return self.cost_of(conv, self.shape(conv), apart=apart)

    def for_core(self, node: Node, graph: Graph, target: Target) -> Self:
        """On a Cortex-M7 the tile of the fewest cycles: of 2x2 more instructions go in pairs, see CYCLES."""
        if self.tile or not target.issues_pairs:
            return self
        conv = Conv.of(node, graph)
        best = min(TILES, key=lambda name: CYCLES[name] * self.cost_of(conv, Tile.named(name)))
        return self if best == self.shape(conv).name else replace(self, tile=best)

    def products(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Products:
        """Two channels together, by a loop that some layers share."""
        node, graph, order, tile = epilogue.node, epilogue.graph, self.order(conv), self.shape(conv)
        columns = dsp.Columns(np.asarray(order), self.depth(conv), conv.offset, sums_of(len(order)))
        numbers = dsp.shared_scaling(node, graph, partial(self._layer, graph))
        apart = not dsp.go_in_pairs(node, graph, conv.group)
        loop, header, suffix = self.loop(conv, epilogue), HEADERS[tile.name], SUFFIXES[tile.name]
        return dsp.products_of_columns(epilogue, numbers, columns, loop, header, conv.group, apart=apart, suffix=suffix)

    def _layer(self, graph: Graph, node: Node) -> dsp.Layer | None:
        epilogue, conv = self.epilogue(node, graph), Conv.of(node, graph)
        if epilogue is None or conv.is_depthwise or not is_stored_as_int8(node, graph):
            return None
        tile = self.shape(conv)
        code = FUNCTION + CODE[tile.name] * self._turn(epilogue) / dsp.WORD
        tiles = conv.group * tile.columns(conv) * tile.channel_steps(conv)
        return dsp.Layer(Together(2, conv.group), tiles, code)

    def values(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> dict[str, Any]:
        """The elements of a column whose sums are multiplied by the weights' offset; the bytes gathered one by one.

        Of pointwise layers the last pixels are copied, if they are not whole words.
        """
        summed, layout = round_up(len(self.order(conv)), 4) if conv.offset else 0, ColumnLayout.of(conv)
        gathers = conv.channels % 4 != 0 if self.pointwise else self.gathered(conv) > 0
        variables = {"summed": summed, "suffix": SUFFIXES[self.shape(conv).name], "gathers": gathers}
        return super().values(conv, epilogue, target) | variables | {"layout": layout, "borders": layout.borders(conv)}


class Im2colInt8(Int8Tiles):
    """k x k: the patches of a tile's pixels become columns of int16, multiplied by all channels, two at a time.

    Rows of a patch are copied by words inside the image; byte by byte on its border, unless a pixel is whole words.
    """

    name = "dsp_patch"


class PointwiseInt8(Int8Tiles):
    """1x1: a tile's pixels are widened to int16 and multiplied by all channels, two at a time. Always in place.

    A layer that grows runs backwards, so that its output may start where its input starts.
    """

    name = "dsp_pointwise"
    pointwise = True

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """1x1 of one image, int8 to int8, more than one input channel.

        A pixel's last word may reach into the pixels behind it: of one channel they would have to be three.
        """
        return super().fits(conv, epilogue) and conv.channels > 1

    def scratch(self, conv: Conv, epilogue: Int8Epilogue) -> int:
        """A tile's columns, results that are not stored directly, the last pixels if they are not whole words."""
        reach = (self.shape(conv).pixels - 1) * conv.channels + round_up(conv.channels, 4)  # as far as words do
        return super().scratch(conv, epilogue) + (reach if conv.channels % 4 else 0)


@dataclass(frozen=True)
class FieldTiles(Int8Tiles):
    """The same of weights of one or two bits, four channels at a time; each product is of two channels."""

    tiles = (FIELDS,)

    unroll: int = knob(32, 16, 8, meaning="steps of k per iteration")
    tile: str = knob("", FIELDS, meaning="pixels x channels of the register tile; auto: 3x4")

    def stored(self, conv: Conv, epilogue: Int8Epilogue) -> tuple[int, int]:
        """Return the bits of a weight, and the elements of a column after which sums are split; (0, 0): neither."""
        padded = round_up(len(self.order(conv)), dsp.WORD) > conv.depth  # filling is 0, and reads what lies behind
        for bits in (2,) if padded or conv.depth % (2 * dsp.WORD) else (1, 2):
            block = dsp.field_block(epilogue.node, epilogue.graph, bits)
            if 0 < conv.depth <= block * dsp.MOST_BLOCKS:
                return bits, block if block < self.depth(conv) else WHOLE
        return 0, 0

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """One image, int8 to int8, more than one input channel per group, weights of one or two bits."""
        return super().fits(conv, epilogue) and not conv.offset and self.stored(conv, epilogue)[0] > 0

    def loop(self, conv: Conv, epilogue: Int8Epilogue) -> dsp.Loop:
        """A loop, of half as many words of one bit."""
        return dsp.Loop(0, self.unroll // dsp.WORD // (2 if self.stored(conv, epilogue)[0] == 1 else 1))

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """19 for four steps of k, 3 a turn, 60 a block, 140 for the results; and what gathers the pixels."""
        tile, depth, (_, block) = self.shape(conv), self.depth(conv), self.stored(conv, epilogue)
        dots = 19 * depth / 4 + 3 * depth / self.unroll + (70 * math.ceil(depth / block) if block else 0) + 130
        summing = 2 * 3 * depth / 2 * tile.columns(conv)
        tiles = tile.columns(conv) * tile.channel_steps(conv) * dots
        return conv.group * (tiles + self.gathering(conv, tile) + summing)

    def for_core(self, node: Node, graph: Graph, target: Target) -> Self:
        """There is one tile."""
        return self

    def products(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Products:
        """Four channels together."""
        (bits, block), loop = self.stored(conv, epilogue), self.loop(conv, epilogue)
        scaling, bias = dsp.shared_scaling(epilogue.node, epilogue.graph, partial(self._layer, epilogue.graph))
        columns = dsp.Columns(np.asarray(self.order(conv)), self.depth(conv))

        def rows(weights: Array, bias: Array, scaling: Scaling) -> Array:
            words = dsp.fields(columns.of(weights), 4, columns.depth, bits)
            heads = np.pad(bias, (0, 4 * len(words) - len(bias))).astype(np.int32).view(np.uint32)
            scales = scaling.padded(4 * len(words)).apart()
            return np.concatenate([heads.reshape(-1, 4), words, scales.reshape(len(words), -1)], axis=1)

        stream = packed_by_rows(rows, 4, epilogue.weights, bias, scaling, groups=conv.group)
        layout = f"four output channels a row: biases, words of fields of {bits} bits, {scaling.meaning} of each"
        name = f"{loop.turn}_{bits}bit_{block}"
        products = Products(stream, layout, HEADERS[FIELDS])
        return dsp.with_function(
            products, "MT_DSP_COLUMNS_3X4", "mt_dsp_columns_3x4", scaling, epilogue, name, loop.turn, bits, block
        )


class Im2colFields(FieldTiles, Im2colInt8):
    """k x k with weights of one or two bits: as dsp_patch, four channels at a time."""

    name = "dsp_fieldpatch"


class PointwiseFields(FieldTiles, PointwiseInt8):
    """1x1 with weights of one or two bits: as dsp_pointwise, four channels at a time. Always in place."""

    name = "dsp_fields"


def dot_cost_int16(depth: int, unroll: int, kind: dsp.Kind) -> float:
    """Return instructions of 3 x 2 dot products: 19 (16 of halves) for four steps of k, 40 with sums of 64 bits."""
    if kind.long:
        return 10.0 * depth
    return round_up(depth, unroll) // unroll * (unroll // 4 * (16 if kind.halves else 19) + 3)


@dataclass(frozen=True)
class Int16Tiles(TileSchedule[Epilogue16]):
    """The common part of both schedules."""

    core = "has_dsp_and_fpu"
    forms = get_args(Epilogue16)
    tiles = ("3x2",)
    template = "kernels/conv2d/dsp/tiles_int16.c.j2"
    element = DType.INT16
    scratch_type = "int32_t"
    apart = True

    unroll: int = knob(
        0, *dsp.UNROLLS, meaning="steps of k per iteration; auto: the number with the fewest instructions"
    )
    packing: str = knob("", "halves", meaning=dsp.PACKING_MEANING)

    def fits(self, conv: Conv, epilogue: Epilogue16) -> bool:
        """One image, int16 to int16, or sums of 32 bits."""
        return super().fits(conv, epilogue) and epilogue.weights.dtype in (np.int8, np.int16)

    def order(self, conv: Conv) -> Array:
        """Return the index into the filter of each element of a column: rows padded to pairs by -1, or all taps."""
        if self.pointwise:
            return np.arange(conv.channels)
        height, row = (1, conv.depth) if goes_by_taps(conv) else (conv.kernel[0], conv.kernel[1] * conv.channels)
        order = np.pad(np.arange(height * row).reshape(height, row), ((0, 0), (0, row % 2)), constant_values=-1)
        return order.reshape(-1)

    def gathered(self, conv: Conv) -> int:
        """A patch, or a row of it."""
        patch = conv.depth if goes_by_taps(conv) else conv.kernel[1] * conv.channels
        return 0 if self.pointwise else patch

    def gathering(self, conv: Conv) -> float:
        """Return the instructions that make all columns of all groups: 3 for two elements, 20 a row or 12 a tap.

        Of pointwise layers 6 to copy two elements of three pixels.
        """
        if self.pointwise:
            return math.ceil(conv.pixels / 3) * 3 * conv.channels
        gathering = 1.5 * conv.depth + (20 * conv.kernel[0])
        if goes_by_taps(conv):
            gathering += conv.depth + 12 * math.prod(conv.kernel)
        return conv.pixels * conv.group * gathering

    def _unroll(self, conv: Conv) -> int:
        depth = self.order(conv).size
        return self.unroll or min(dsp.UNROLLS, key=lambda unroll: dot_cost_int16(depth, unroll, dsp.Kind(False, False)))

    def depth(self, conv: Conv) -> int:
        """Whole iterations."""
        return round_up(self.order(conv).size, self._unroll(conv))

    def products(self, conv: Conv, epilogue: Epilogue16, target: Target) -> Products:
        """Two channels together, or one with sums of 64 bits."""
        kind, depth, order = dsp.Kind.of(epilogue, self.packing), self.depth(conv), self.order(conv)
        together = 1 if kind.long else 2

        def rows(weights: Array, bias: Array, scale: Array | None = None) -> Array:
            columns = np.pad(weights.reshape(len(weights), -1), ((0, 0), (0, 1)))[:, order]
            return dsp.pack_int16(columns, bias, scale, depth=depth, together=together, packing=self.packing)

        stream = packed_by_rows(rows, together, epilogue.weights, *epilogue.numbers, groups=conv.group)
        function = kind.function("mt_dsp16" if epilogue.is_scaled else "mt_dsp16_sums", self._unroll(conv))
        sums = f"int32_t *const sums = scratch + {depth // 2 * 3};"
        declared = epilogue.declared("mt_dsp_range", "MT_DSP16_RANGE") or sums
        layout, last = kind.layout(together, scaled=epilogue.is_scaled), "&range" if epilogue.is_scaled else ""
        return Products(stream, layout, "mt_dsp_tile_3x2_int16.h", function, declared, last)

    def values(self, conv: Conv, epilogue: Epilogue16, target: Target) -> dict[str, Any]:
        """Whether sums have 64 bits, and whether taps are gathered one by one."""
        long = epilogue.bias_of_model.dtype == np.int64
        return super().values(conv, epilogue, target) | {"long": long, "by_taps": goes_by_taps(conv)}

    def instructions(self, conv: Conv, epilogue: Epilogue16, target: Target) -> float:
        """The dot products, 60 for two channels of three pixels, what gathers the pixels."""
        kind, scaled = dsp.Kind.of(epilogue, self.packing), epilogue.is_scaled
        pairs = conv.group * math.ceil(conv.out_channels / conv.group / 2)
        results = 300 if kind.long else 60 if scaled else 20
        after = (8 if scaled else 14) * conv.pixels * conv.out_channels if epilogue.rest is not None else 0
        dots = dot_cost_int16(self.order(conv).size, self._unroll(conv), kind)
        return math.ceil(conv.pixels / 3) * pairs * (dots + results) + after + self.gathering(conv)


def goes_by_taps(conv: Conv) -> bool:
    """Return whether the channels of a patch's taps are not contiguous."""
    return conv.group > 1 or conv.dilation[1] > 1


class Im2colInt16(Int16Tiles):
    """k x k: the patches of three pixels are gathered into columns, multiplied by all channels, two at a time.

    Rows of a patch are copied by words inside the image, element by element on its border. Taps whose channels are not
    contiguous (groups, dilations) are gathered first.
    """

    name = "dsp16_patch"


class PointwiseInt16(Int16Tiles):
    """1x1: three adjacent pixels are multiplied by all channels, two at a time. Always in place.

    A layer that grows runs backwards, so that its output may start where its input starts.
    """

    name = "dsp16_pointwise"
    pointwise = True


SCHEDULES = (
    PointwiseInt8(),
    Im2colInt8(),
    PointwiseFields(),
    Im2colFields(),
    PointwiseInt16(),
    Im2colInt16(),
)
