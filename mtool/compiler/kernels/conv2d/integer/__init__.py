"""Convolutions of 8 bits for cores without SIMD. See mtool/compiler/kernels/integer/__init__.py."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, DType, Graph, Node
from mtool.compiler.kernels import integer
from mtool.compiler.kernels.code_price import price_of_code
from mtool.compiler.kernels.conv2d.geometry import DIRECTION_MEANING, DIRECTIONS, BlockTraversal, Conv
from mtool.compiler.kernels.conv2d.schedule import PatchSchedule, PortableSchedule
from mtool.compiler.kernels.epilogues import EpilogueText, Products
from mtool.compiler.kernels.expressions import is_identity
from mtool.compiler.kernels.few_bits import are_within
from mtool.compiler.kernels.integer.signs import Signs
from mtool.compiler.kernels.packing import filled_up, round_up
from mtool.compiler.kernels.schedule import Target, knob
from mtool.compiler.kernels.weighted_sum import weight_offset

# Convolutions of 8 bits for cores without SIMD. See mtool/compiler/kernels/integer/__init__.py.


@dataclass(frozen=True)
class Im2col(integer.TileKnobs, PatchSchedule):
    """Gather the input patches of some pixels, which are then multiplied by all output channels, some at a time."""

    name = "int_columns"
    template = "kernels/conv2d/integer/im2col_int8.c.j2"
    core = "registers"

    columns: int = knob(0, 1, 2, 3, 4, meaning=integer.COLUMNS_MEANING)

    def fits(self, conv: Conv, epilogue: EpilogueText) -> bool:
        """8 bits by 8 bits, fewer groups than channels."""
        return integer.is_narrow(epilogue.node, epilogue.graph) and not conv.is_depthwise

    def work(self, conv: Conv, epilogue: EpilogueText) -> integer.Work:
        """Its pixels by the channels of a group."""
        return integer.Work.of(epilogue.node, epilogue.graph, conv.pixels, conv.out_channels // conv.group, conv.depth)

    def scratch(self, conv: Conv, epilogue: EpilogueText) -> int:
        """As many patches as a tile has at most."""
        return min(self.columns or 2, conv.pixels) * conv.depth

    def instructions(self, conv: Conv, epilogue: EpilogueText, target: Target) -> float:
        """The tiles', 1.5 instructions a gathered element, 8 a row of a patch, 12 more an output."""
        work = self.work(conv, epilogue)
        products, rows = self.best(target, work).cost(target, work), 0 if conv.is_pointwise else conv.kernel[0]
        gathered = 1.5 * conv.depth + 8 * rows
        return conv.batch * conv.group * (products + conv.pixels * (gathered + integer.RESULT * work.outputs))

    def values(self, conv: Conv, epilogue: EpilogueText, target: Target) -> dict[str, Any]:
        """The tile; no tables."""
        return super().values(conv, epilogue, target) | {"table": 0, "bits": 0}


TABLE = 16  # sums of a table
LOOKUP = (3, 5)  # instructions of one that is added up, by those of a product
LOOKUP_OF_THUMB1 = 4
FEW_REGISTERS = 8


@dataclass(frozen=True)
class Tables(Im2col):
    """Weights of one or two bits: sums of four or two inputs of two pixels are looked up, not multiplied."""

    name = "int_tables"
    scratch_type = "uint32_t"
    core = "multiplies_words"

    columns: int = knob(2, meaning="input vectors of a tile")
    channels: int = knob(0, 1, 2, 4, meaning="the most outputs of a tile; auto: by the core's registers")
    unroll: int = knob(1, meaning="elements of the depth per loop turn")

    def bits(self, conv: Conv, epilogue: EpilogueText) -> int:
        """Return the bits of a weight; 0: they are more, or two pixels' sums need more than a word."""
        rows = epilogue.weights.reshape(conv.out_channels, -1)
        if rows.min(initial=0) < -2 or rows.max(initial=0) > 1 or not are_within(rows, conv.depth, 16):
            return 0
        bits = 1 if (np.abs(rows) == 1).all() else 2
        return 0 if conv.depth % (4 // bits) else bits

    def fits(self, conv: Conv, epilogue: EpilogueText) -> bool:
        """int8 by weights of one or two bits, in tables of 1 KB or a share of the data."""
        int8 = integer.is_narrow(epilogue.node, epilogue.graph) and epilogue.x is DType.INT8 and not epilogue.offset
        if not int8 or epilogue.acc is not DType.INT32 or conv.is_depthwise or not self.bits(conv, epilogue):
            return False
        return self.scratch(conv, epilogue) <= most_scratch(conv)

    def best(self, target: Target, work: integer.Work) -> integer.Tile:
        """Return the tile: two vectors by two outputs where registers are few, otherwise by four."""
        most = min(self.channels or (4 if target.registers > FEW_REGISTERS else 2), work.outputs)
        fitting = (n for n in (4, 2, 1) if n <= most and not (work.once and work.outputs % n))
        return integer.Tile(2, next(fitting), 1)

    def _groups(self, conv: Conv, epilogue: EpilogueText) -> int:
        return conv.depth * self.bits(conv, epilogue) // 4

    def scratch(self, conv: Conv, epilogue: EpilogueText) -> int:
        """The tables, and two patches."""
        return 4 * TABLE * self._groups(conv, epilogue) + round_up(2 * conv.depth, 4)

    def products(self, conv: Conv, epilogue: EpilogueText, target: Target) -> Products:
        """Words of eight lookups, those of a tile's channels side by side."""
        work, bits = self.work(conv, epilogue), self.bits(conv, epilogue)
        channels = self.best(target, work).channels
        rows = epilogue.weights.reshape(conv.out_channels, -1).astype(np.uint32)
        codes = (rows == 1) * np.uint32(1) if bits == 1 else rows + np.uint32(2)
        filled = np.pad(codes, ((0, 0), (0, -rows.shape[1] % (32 // bits)))).reshape(len(rows), -1, 32 // bits)
        words = (filled << np.arange(0, 32, bits, dtype=np.uint32)).sum(axis=2, dtype=np.uint32)
        layout = f"{channels} output channels at a time, side by side words of {32 // bits} weights"
        packed, ties = integer.pack(words, channels, conv.group), epilogue.beside_halves(channels)
        return Products(packed, layout, "mt_int_tables_int8.h", ties=ties)

    def values(self, conv: Conv, epilogue: EpilogueText, target: Target) -> dict[str, Any]:
        """The words of the tables, the bits of a weight."""
        variables = {"table": TABLE * self._groups(conv, epilogue), "bits": self.bits(conv, epilogue)}
        return super().values(conv, epilogue, target) | variables

    def instructions(self, conv: Conv, epilogue: EpilogueText, target: Target) -> float:
        """3 to 5 a lookup, one for a table's address, 60 to fill a table; the results as other tiles."""
        work, groups = self.work(conv, epilogue), self._groups(conv, epilogue)
        tile = self.best(target, work)
        lookup = LOOKUP_OF_THUMB1 if target.is_thumb1 else LOOKUP[target.product_instructions - 1]
        per_tile = groups * (lookup * tile.channels + 1) + tile.channels * 2 * (integer.EPILOGUE + 3) + 12
        pairs, rows = -(-conv.pixels // 2), 0 if conv.is_pointwise else conv.kernel[0]
        gathered = conv.pixels * (1.5 * conv.depth + 8 * rows + integer.RESULT * work.outputs)
        tiles = -(-work.outputs // tile.channels)
        return conv.batch * conv.group * (pairs * (tiles * per_tile + 60 * groups) + gathered)


PIXELS = 4
PAIR = (11, 18)  # instructions of two elements and four pixels, by those of a product that is added up
PAIR_OF_THUMB1 = 20
FOR_TWO = 24  # registers with which two channels are computed at a time
END = 4  # of a turn of the loop
CHANNEL = 56  # of a channel and four pixels, besides
MOST_BYTES = 1024  # of columns and patches, four times those of other schedules: as many are always allowed
SHARE = 4  # or this part of the layer's input and output
TURNS = (1, 2, 3, 4, 5, 6, 7, 8, 10)


def most_scratch(conv: Conv) -> int:
    """Return the bytes of columns and tables that are allowed."""
    data = conv.batch * (math.prod(conv.size) * conv.channels + conv.pixels * conv.out_channels)
    return max(MOST_BYTES, data // SHARE)


@dataclass(frozen=True)
class Pairs(PatchSchedule):
    """Patches of four pixels become words of two, which are multiplied by all output channels, one at a time."""

    name = "int_pairs"
    template = "kernels/conv2d/integer/pairs_int8.c.j2"
    scratch_type = "int32_t"
    core = "multiplies_words"

    turn: int = knob(0, *TURNS, meaning="pairs of elements per loop turn; auto: by instructions and code size")

    def fits(self, conv: Conv, epilogue: EpilogueText) -> bool:
        """int8 by int8 in sums of 32 bits, columns of 1 KB or a share of the data; no two adjacent weights of -128."""
        int8 = integer.is_narrow(epilogue.node, epilogue.graph) and epilogue.x is DType.INT8
        if not (int8 and not epilogue.offset and epilogue.acc is DType.INT32):
            return False
        if conv.is_depthwise or self.scratch(conv, epilogue) > most_scratch(conv):
            return False
        return _is_exact(epilogue.stored_weights.reshape(conv.out_channels, -1))

    def _turn(self, conv: Conv, epilogue: EpilogueText) -> int:
        if self.turn:
            return self.turn
        byte = price_of_code(epilogue.node, epilogue.graph)
        return min(TURNS, key=lambda turn: _products(conv, turn, PAIR[0]) + byte * 4 * PAIR[0] * turn)

    def _filled(self, conv: Conv, epilogue: EpilogueText) -> int:
        return round_up(conv.depth, 2 * self._turn(conv, epilogue))

    def scratch(self, conv: Conv, epilogue: EpilogueText) -> int:
        """The words of four pixels, and patches that are gathered."""
        direct = conv.is_pointwise and conv.group == 1
        return 8 * self._filled(conv, epilogue) + (0 if direct else PIXELS * conv.depth)

    def instructions(self, conv: Conv, epilogue: EpilogueText, target: Target) -> float:
        """The products', 2 an element that becomes part of a word, and what gathers patches."""
        patches = 0.0 if conv.is_pointwise and conv.group == 1 else 1.5 * conv.depth + 8 * conv.kernel[0]
        outputs = conv.out_channels // conv.group
        overhead = conv.pixels * (2 * conv.depth + patches + (integer.RESULT - 6) * outputs)
        pair = PAIR_OF_THUMB1 if target.is_thumb1 else PAIR[target.product_instructions - 1]
        return conv.batch * conv.group * (_products(conv, self._turn(conv, epilogue), pair) + overhead)

    def products(self, conv: Conv, epilogue: EpilogueText, target: Target) -> Products:
        """The weights, padded to whole turns."""
        rows = epilogue.stored_weights.reshape(conv.out_channels, -1)
        weights = filled_up(rows, len(rows), self._filled(conv, epilogue))
        layout = "output channels, the elements of a patch, padded"
        return Products(weights, layout, "mt_int_pairs_int8.h")

    def values(self, conv: Conv, epilogue: EpilogueText, target: Target) -> dict[str, Any]:
        """The filled depth, the pairs of a turn."""
        outputs = conv.out_channels // conv.group
        alone = outputs == 1 or (outputs % 2 and integer.reads_activations(epilogue.node, epilogue.graph))
        two = target.registers >= FOR_TWO and not alone
        return {"filled": self._filled(conv, epilogue), "turn": self._turn(conv, epilogue), "two": two}


def _is_exact(rows: Array) -> bool:
    """Whether two products of each pixel fit 16 bits, [N, K]."""
    return not bool(((rows[:, :-1:2] == -128) & (rows[:, 1::2] == -128)).any())


def _products(conv: Conv, turn: int, pair: int) -> float:
    """Return the instructions of a group's products: two elements at a time, `turn` of these per loop turn."""
    turns = -(-conv.depth // (2 * turn))
    channel = turns * (pair * turn + END) + CHANNEL
    return math.ceil(conv.pixels / PIXELS) * (conv.out_channels // conv.group) * channel


TAPS = {"held": 5, "loaded": 6, "written": 8}  # the most outputs of a block: more need longer code and save few loads
UNSIGNED = 128  # added to int8 where only unsigned bytes are loaded at an offset: Armv6-M


@dataclass(frozen=True)
class Depthwise(PortableSchedule):
    """A channel is copied with its padding into a plane; several outputs at a time slide over it.

    A channel is read completely before any of it is written, and writes only its own elements: the output may take the
    input's storage.
    """

    name = "int_plane"
    template = "kernels/conv2d/integer/depthwise_int8.c.j2"
    core = "multiplies"

    direction: str = knob("", *DIRECTIONS, meaning=DIRECTION_MEANING)
    taps: str = knob(
        "",
        *TAPS,
        meaning="weights stay in registers, or are loaded for each block in a loop over rows or written out; auto: by"
        " the core's registers",
    )
    block: int = knob(0, 1, 2, 3, 4, 6, 8, meaning="the most outputs at a time; auto: by the core's registers")

    def fits(self, conv: Conv, epilogue: EpilogueText) -> bool:
        """Depthwise, one image, one output per channel, 8 bits by 8 bits; the epilogue reads the element only."""
        return conv.is_channelwise and integer.is_narrow(epilogue.node, epilogue.graph) and _is_local(epilogue)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """What fits; on a core of 8 bits without a weights' offset."""
        return super().supports(node, graph, target) and not (target.is_8_bit and weight_offset(node, graph))

    def _loop(self, conv: Conv, epilogue: EpilogueText, target: Target) -> "_Loop":
        node, graph = epilogue.node, epilogue.graph
        once, byte = integer.reads_activations(node, graph), price_of_code(node, graph)
        loops = [
            _Loop(traversal, taps, target)
            for taps, most in TAPS.items()
            if self.taps in ("", taps)
            for traversal in BlockTraversal.all(conv, self.direction, self.block or most)
            if not (once and traversal.out_size[1] % traversal.block)
        ]
        fitting = [loop for loop in loops if loop.fits] or [loop for loop in loops if loop.traversal.block == 1]
        return min(fitting, key=lambda loop: conv.channels * loop.cost + byte * loop.code_bytes)

    def scratch(self, conv: Conv, epilogue: EpilogueText) -> int:
        """One padded plane."""
        return math.prod(conv.plane)

    def over_input(self, conv: Conv, epilogue: EpilogueText) -> bool:
        """If the output has the same shape."""
        return conv.keeps_shape

    def instructions(self, conv: Conv, epilogue: EpilogueText, target: Target) -> float:
        """Those of the channels."""
        return conv.channels * self._loop(conv, epilogue, target).cost

    def products(self, conv: Conv, epilogue: EpilogueText, target: Target) -> Products:
        """A channel's taps in the order of the traversal."""
        traversal = self._loop(conv, epilogue, target).traversal
        taps = traversal.turned_taps(epilogue.stored_weights.reshape(conv.channels, *conv.kernel))
        layout = f"channels, kernel {'columns, rows' if traversal.transposed else 'rows, columns'}"
        return Products(np.ascontiguousarray(taps), layout)

    def values(self, conv: Conv, epilogue: EpilogueText, target: Target) -> dict[str, Any]:
        """The traversal, where taps are, the plane's elements."""
        loop = self._loop(conv, epilogue, target)
        shift = UNSIGNED if target.is_thumb1 and epilogue.x is DType.INT8 else 0
        element = "uint8_t" if shift else epilogue.x.c
        return {"traversal": loop.traversal, "taps": loop.taps, "shift": shift, "element": element}


@frozen
class _Loop:
    """How a depthwise layer is computed on a target: see the knob `taps`."""

    traversal: BlockTraversal
    taps: str
    target: Target

    @property
    def fits(self) -> bool:
        """Whether registers hold the sums, taps, an input and pointers; a single sum may share them with loaded taps.

        Armv6-M loads each tap, if held from the stack.
        """
        block, (rows, columns) = self.traversal.block, self.traversal.kernel
        if self.target.is_thumb1:
            return block <= 4
        taps = rows * columns if self.taps == "held" else columns
        pointers = 2 if self.taps == "written" else integer.POINTERS
        return block + taps + 1 + pointers <= self.target.registers or (block == 1 and self.taps != "held")

    @property
    def _row(self) -> int:
        """Instructions of a row of taps: products, loads, a loop's end."""
        columns, end = self.traversal.kernel[1], 4 if self.taps == "loaded" else 0
        products = self.traversal.block * columns
        if self.target.is_thumb1:
            return 3 * products + (1 if self.taps == "held" else 3) * columns + end
        loaded = len(self.traversal.block_inputs) + (0 if self.taps == "held" else columns)
        return products * self.target.product_instructions + loaded + end

    @property
    def code_bytes(self) -> float:
        """Code of a block, about."""
        rows = 1 if self.taps == "loaded" else self.traversal.kernel[0]
        return (2 if self.target.is_thumb1 else 4) * self._row * rows + 3 * integer.EPILOGUE * self.traversal.block

    @property
    def cost(self) -> float:
        """Instructions a channel: blocks, 2.5 a copied element; on Armv6-M 6 a tap, for inputs without a sign."""
        traversal = self.traversal
        taps = 6 * math.prod(traversal.kernel) if self.target.is_thumb1 else 0
        block = traversal.kernel[0] * self._row + integer.EPILOGUE * traversal.block + 12
        rows = traversal.out_size[0] * (traversal.blocks * block + 8)
        return taps + rows + 2.5 * math.prod(traversal.copied) + 3 * traversal.copied[0]


def _is_local(epilogue: EpilogueText) -> bool:
    """Whether the epilogue reads nothing but its own elements, tables, and what belongs to the channel."""
    node, types = epilogue.node, epilogue.graph.types
    shape = types[node.outputs[0]].shape
    axes = {
        axis
        for load in epilogue.expr.walk()
        if load.op == "load" and not is_identity(load, shape, types[node.inputs[load.value]].shape)
        for index in load.args
        for axis in index.walk()
        if axis.op == "axis"
    }
    return all(axis.value == 3 for axis in axes)


@dataclass(frozen=True)
class PointwiseSigns(Signs):
    """The same, pixel by pixel."""

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Without padding, pixel by pixel."""
        return Conv.of(node, graph).is_pointwise and super().supports(node, graph, target)

    def axes(self, work: integer.Work, epilogue: EpilogueText) -> dict[int, str]:
        """Image, row, column, channel."""
        conv = Conv.of(epilogue.node, epilogue.graph)
        row = f"m / {conv.size[1]} % {conv.size[0]}" if conv.batch > 1 else f"m / {conv.size[1]}"
        return {0: f"m / {conv.pixels}", 1: row, 2: f"m % {conv.size[1]}", 3: "(c + i)"}


SCHEDULES = (Im2col(), Depthwise(), Pairs(), Tables(), PointwiseSigns())
