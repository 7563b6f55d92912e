"""Tiles of RISC-V vectors: a few input vectors share a row of weights. See crt/include/mt_rvv_tile_int8.h."""

import math
from dataclasses import replace
from typing import ClassVar, Self

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Array, DType, Graph, Node
from mtool.compiler.ir.scalar import FixedRequantize
from mtool.compiler.kernels.epilogues import Pair, Products, TileEpilogue, per_channel, scaling_of, split

# How vectors of sums become int8 on RISC-V, with a multiplier per channel, and the rest. See crt/include/mt_rvv.h.


_KINDS = ("requantize_fixed", "rescale")


@frozen
class VectorEpilogue(TileEpilogue):
    """An epilogue as `rest(narrow(acc))`: how sums become int8, and an expression over those; None: nothing.

    Attributes:
        suffix: the suffix of the runtime's functions.
        range: the runtime's `struct mt_rvv_range`: offset or zero point, shift, lowest and highest value.
        bias: int32 [N].
        numbers: int32 [N, 1 or 2], multipliers and, for TFLite's rounding, places.
    """

    suffix: str
    range: tuple[int, int, int, int]
    bias: Array
    numbers: Array
    kind: ClassVar[DType] = DType.INT8

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self | None:
        """Split a node's epilogue; None: it has another form, or the kernel is not of int8 with sums of 32 bits."""
        weights, bias = (graph.constants[value] for value in node.inputs[1:3])
        parts = split(node, graph, _KINDS, cls.kind)
        if parts is None or weights.dtype != np.int8 or bias.dtype != np.int32:
            return None
        part, rest = parts
        how = part.value
        if isinstance(how, FixedRequantize):
            multiplier = per_channel(part.args[1], node, graph)
            kind, offset = ("_even", how.zero_point) if how.even else ("_near" if how.near else "", how.offset)
            limits = (offset, how.shift, how.low, how.high)
            return None if multiplier is None else cls(node, graph, rest, kind, limits, bias, multiplier[:, None])
        scaled = scaling_of(part, node, graph)
        if scaled is None:
            return None
        scaling, bias = scaled
        limits = (how.zero_point, 0, how.low, how.high)
        return cls(node, graph, rest, scaling.kind, limits, bias, scaling.words.view(np.int32))

    def packed(self, rows: Array) -> Array:
        """Return biases, multipliers, places and rows of weights, uint32 [words].

        Args:
            rows: int8 [K, N], the weights of each step of the depth.
        """
        numbers = np.concatenate([self.bias.reshape(1, -1), self.numbers.T]).astype(np.int32)
        flat = np.ascontiguousarray(rows).reshape(-1)
        weights = np.pad(flat, (0, -flat.size % 4)).view("<u4")
        return np.concatenate([numbers.reshape(-1).view(np.uint32), weights.astype(np.uint32)])

    def of_channels(self, channels: slice) -> Self:
        """Return the epilogue of some channels."""
        return replace(self, bias=self.bias[channels], numbers=self.numbers[channels])

    def repeated(self, times: int) -> Self:
        """Return the epilogue with its channels repeated `times` times."""
        return replace(self, bias=np.tile(self.bias.reshape(-1), times), numbers=np.tile(self.numbers, (times, 1)))

    def layout_of(self, step: str) -> str:
        """Describe the layout of `packed`; `step`: the meaning of each row."""
        places = ", places" if self.numbers.shape[1] > 1 else ""
        return f"biases, multipliers{places} of all outputs, then a row of weights for each {step}, 4 bytes a word"

    def pair(self) -> Pair | None:
        """Return `rest` as a sum with an int8 result, if it has that form."""
        return TileEpilogue.pair(self) if self.rest is not None and self.rest.dtype is DType.INT8 else None

    def products(self, weights: Array, layout: str, header: str, function: str, pair: Pair | None = None) -> Products:
        """Return packed weights with the runtime's function, given without its suffix, and its declarations."""
        declared = f"static const struct mt_rvv_range range = {{{', '.join(map(str, self.range))}}};"
        if pair is None:
            return Products(weights, layout, header, function + self.suffix, declared)
        how = pair.how
        numbers = (how.left, how.right, how.offset, how.shift, how.zero_point, how.low, how.high, int(how.even))
        declared += f"\n    static const struct mt_rvv_pair pair = {{{', '.join(map(str, numbers))}}};"
        return Products(weights, layout, header, function + self.suffix, declared, others=("mt_rvv_pair_int8.h",))


def instructions(kind: str) -> float:
    """Return the instructions that convert a vector of sums to int8."""
    return {"_near": 17.0, "_even": 15.0, "_twice": 13.0, "_once": 11.0}.get(kind, 10.0)


HEADER = "mt_rvv_tile_int8.h"
VLEN = 128  # bits of a register, for estimates: any length gives the same results
TILE_MEANING = "input vectors of a tile by registers of a row of 16-bit weights; auto: by estimated instructions"


@frozen
class Tile:
    """The number of input vectors at a time, and of registers for a row of 16-bit weights."""

    vectors: int
    registers: int

    @property
    def name(self) -> str:
        """Its name in knobs."""
        return f"{self.vectors}x{self.registers}"

    @property
    def function(self) -> str:
        """The runtime's function, without the scaling."""
        return "mt_rvv_wide" if self.registers == 4 else "mt_rvv_tall"

    @property
    def lanes(self) -> int:
        """Outputs of a vector, about."""
        return VLEN // 16 * self.registers

    def cost(self, vectors: int, depth: int, outputs: int, kind: str, pieces: int = 1) -> float:
        """Return instructions: 3 per step of the depth and 2 per input; 2 per turn of four and one per input.

        `pieces`: the number of contiguous pieces of the depth, each of which has an overhead in every vector.
        """
        here = min(vectors, self.vectors) if self.registers == 4 else self.vectors
        strips = math.ceil(outputs / self.lanes)
        step = 3 + 2 * here + (2 + here) / 4 - (0.9 if here == 1 and strips > 1 else 0.0)  # two share an input
        after = 50 + instructions(kind) * here + pieces * (8 + 2 * here)
        return math.ceil(vectors / self.vectors) * (strips * (depth * step + after) + 20 + 10 * self.vectors)


TILES = {tile.name: tile for tile in (Tile(2, 4), Tile(6, 2))}


def best(vectors: int, depth: int, outputs: int, kind: str, pieces: int = 1) -> Tile:
    """Return the tile with the fewest instructions."""
    return min(TILES.values(), key=lambda tile: tile.cost(vectors, depth, outputs, kind, pieces))
