"""Packed weights of int8 layers for SIMD32, two channels together; see crt/include/mt_dsp.h."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.blocks import row_blocks, row_sums
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.dsp.functions import SharedFunction
from mtool.compiler.kernels.dsp.loops import Loop
from mtool.compiler.kernels.epilogues.integer import Int8Epilogue
from mtool.compiler.kernels.packing import packed_by_rows
from mtool.compiler.kernels.padding import filled_up, round_up
from mtool.compiler.kernels.scaling import Scaling
from mtool.compiler.kernels.weight_offset import stored_weights

PAIRED = "a and b: biases of a and of a+256b, weights as halfwords a+256b"


def go_in_pairs(node: Node, graph: Graph, groups: int = 1) -> bool:
    """Whether a node's int8 weights can be paired up in each of so many groups of channels; see are_pairs_exact."""
    known: dict[tuple[Any, ...], bool] = graph.memo.setdefault("weights in pairs", {})
    key = (*node.inputs[1:3], groups)
    if key not in known:
        real, bias = (graph.constants[value] for value in node.inputs[1:3])
        parts = (np.split(data, groups) for data in (stored_weights(node, graph), bias, real))
        known[key] = all(are_pairs_exact(*part) for part in zip(*parts, strict=True))
    return known[key]


def are_pairs_exact(weights: Array, bias: Array, real: Array) -> bool:
    """Whether no sum of a channel b leaves 24 bits, and no pair of weights 16, in whatever order columns have them.

    Of channels without weights the bias does not matter: Scaling.without_dead_channels makes it small.

    Args:
        weights: int8 [N, ...].
        bias: int32 [N].
        real: the weights with the offset without which they are stored, if they have one.
    """
    sums = row_sums(real[1::2])
    offsets = np.where(sums.magnitude == 0, 0, bias[1::2].astype(np.int64))
    least = offsets + 127 * sums.negative - 128 * sums.positive
    most = offsets + 127 * sums.positive - 128 * sums.negative
    if max(-least.min(initial=0), most.max(initial=0)) >= 1 << 23:
        return False
    return not any(_has_lowest_beside_both_signs(weights[rows]) for rows in row_blocks(weights, multiple=2))


def _has_lowest_beside_both_signs(weights: Array) -> bool:
    """Whether a channel b has -128 both beside a negative weight of a and beside another."""
    flat = weights.reshape(len(weights), -1)
    b = flat[1::2]
    a, lowest = flat[0::2][: len(b)], b == -128
    return bool(((lowest & (a < 0)).any(axis=1) & (lowest & (a >= 0)).any(axis=1)).any())


def radix_pairs(weights: Array, bias: Array) -> tuple[Array, Array, Array]:
    """Pair up channels a and b in halfwords a + 256 * b, or a - 256 * b where -128 in b stands beside a negative a.

    Args:
        weights: int8 [N, K], N even, K a multiple of 4; `are_pairs_exact` of them.
        bias: int32 [N].

    Returns:
        uint32 words [N/2, K/2] of the halfwords, biases [N/2, 2] (a, a + 256 * b), and the signs of b [N/2], float32.
    """
    count, depth = weights.shape
    wide = weights.astype(np.int32).reshape(count, depth // 4, 2, 2).swapaxes(2, 3).reshape(count, depth)
    a, b = wide[0::2], wide[1::2]
    sign = np.where((a + 256 * b).min(axis=1, initial=0) < -32768, -1, 1)
    offsets = bias.astype(np.int64)
    halves = (a + 256 * sign[:, None] * b).astype(np.int16).view(np.uint16).astype(np.uint32)
    halves = halves.reshape(count // 2, depth // 2, 2)
    heads = np.stack([offsets[0::2], offsets[0::2] + 256 * sign * offsets[1::2]], axis=1) & 0xFFFFFFFF
    return halves[..., 0] | halves[..., 1] << 16, heads.astype(np.uint32), sign.astype(np.float32)


def pack(weights: Array, bias: Array, scaling: Scaling, depth: int) -> Array:
    """Return the stream of mt_dsp_columns, uint32 [N/2, depth/2 + 4 or 6].

    Args:
        weights: int8 [N, K] in the columns' order; N is filled up to an even number, K to `depth`, with zeros;
            `are_pairs_exact` of them.
        bias: int32 [N], the input's zero point folded in.
        scaling: of N channels.
        depth: a multiple of 4.
    """
    count = round_up(weights.shape[0], 2)
    words, heads, sign = radix_pairs(filled_up(weights, count, depth), np.pad(bias, (0, count - weights.shape[0])))
    return np.concatenate([heads, words, scaling.padded(count).paired(sign)], axis=1)


def pack_apart(weights: Array, bias: Array, scaling: Scaling, depth: int) -> Array:
    """Return the stream of mt_dsp_apart, of the same size, for any weights; see pack."""
    count = round_up(weights.shape[0], 2)
    filled = np.ascontiguousarray(filled_up(weights, count, depth))
    words = filled.view(np.uint32).reshape(count // 2, 2, depth // 4).swapaxes(1, 2).reshape(count // 2, depth // 2)
    heads = np.pad(bias, (0, count - weights.shape[0])).view(np.uint32).reshape(count // 2, 2)
    return np.concatenate([heads, words, scaling.padded(count).apart()], axis=1)


@dataclass(frozen=True, slots=True)
class Columns:
    """What a column of a tile consists of.

    order: the index of each element among a channel's weights, -1 for filling.
    depth: what it is filled up to, a multiple of 4.
    offset: of the weights; behind its elements it has `sums` elements for its own sum
    (mtool.compiler.kernels.weight_offset).
    """

    order: Array
    depth: int
    offset: int = 0
    sums: int = 0

    def of(self, weights: Array) -> Array:
        """Return the weights of some channels in this order, [N, depth or less]."""
        flat = np.pad(weights.reshape(len(weights), -1), ((0, 0), (0, 1)), constant_values=-self.offset)
        flat = flat[:, self.order]
        if not self.offset:
            return flat
        # what fills a column up is among its sums too
        flat = np.pad(flat, ((0, 0), (0, -flat.shape[1] % 4)), constant_values=-self.offset)
        return np.pad(flat, ((0, 0), (0, self.sums)), constant_values=self.offset)


@dataclass(frozen=True, slots=True)
class Packed:
    """A layer's packed weights, [groups, ...], what scales its sums, and whether the weights stand apart."""

    epilogue: Int8Epilogue
    scaling: Scaling
    stream: Array
    apart: bool

    @classmethod
    def of(
        cls,
        epilogue: Int8Epilogue,
        numbers: tuple[Scaling, Array],
        weights: Array,
        real: Array,
        columns: Columns,
        groups: int = 1,
        *,
        apart: bool,
    ) -> "Packed":
        """Pack the weights of a layer.

        Args:
            epilogue: that follows.
            numbers: a scaling and a bias for each channel, two of which are scaled in one way.
            weights: int8 [N, K].
            real: the weights with the offset without which they are stored, if they have one.
            columns: the order of the weights in the columns.
            groups: how many share N.
            apart: not in pairs, for weights that do not `go_in_pairs`.
        """
        scaling, bias = numbers
        if not apart:
            bias, scaling = scaling.without_dead_channels(real, bias)

        def rows(weights: Array, bias: Array, scaling: Scaling) -> Array:
            return (pack_apart if apart else pack)(columns.of(weights), bias, scaling, columns.depth)

        return cls(epilogue, scaling, packed_by_rows(rows, 2, weights, bias, scaling, groups=groups), apart)

    @property
    def layout(self) -> str:
        """What stands where in a row of the stream."""
        scaling = f"{self.scaling.meaning} of each"
        if self.apart:
            return f"two output channels a row: their biases, words of four weights by turns, {scaling}"
        return f"two output channels a row, {PAIRED}, {scaling}"

    def function(self, loop: Loop, suffix: str = "") -> SharedFunction:
        """Return the runtime's function with this loop; `suffix` is that of another tile."""
        stem = f"mt_dsp_{'apart' if self.apart else 'columns'}{suffix}"
        macro = f"MT_DSP_COLUMNS{suffix.upper()}"
        numbers = (loop.words, loop.turn, int(self.apart))
        return SharedFunction.of(macro, stem, self.scaling, self.epilogue, loop.name, *numbers)
