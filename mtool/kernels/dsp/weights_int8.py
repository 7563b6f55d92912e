"""Packed weights of int8 layers for SIMD32, two channels together; see crt/include/mt_dsp.h."""

from dataclasses import dataclass

import numpy as np

from mtool.ir.blocks import row_blocks
from mtool.ir.types import Array
from mtool.kernels.epilogues.integer import Int8Epilogue
from mtool.kernels.padding import filled_up, round_up
from mtool.kernels.scaling import Scaling

PAIRED = "a and b: biases of a and of a+256b, weights as halfwords a+256b"


def radix_pairs(
    weights: Array, bias: Array, into: Array | None = None, real: Array | None = None
) -> tuple[Array, Array, Array] | None:
    """Pair up channels a and b in halfwords a + 256 * b, or a - 256 * b where -128 in b stands beside a negative a.

    Args:
        weights: int8 [N, K], N even, K a multiple of 4.
        bias: int32 [N].
        into: where the words are written; None: a new array.
        real: what the weights are together with their offset, [N, any]; None: they have none.

    Returns:
        uint32 words [N/2, K/2] of the halfwords, biases [N/2, 2] (a, a + 256 * b), and the signs of b [N/2], float32.
        None if the sums of a channel b might leave 24 bits, or a pair of weights 16.
    """
    count, depth = weights.shape
    words = np.empty((count // 2, depth // 2), np.uint32) if into is None else into
    heads, signs = np.empty((count // 2, 2), np.uint32), np.empty(count // 2, np.float32)
    for rows in row_blocks(weights, multiple=2):
        part = _radix_pairs_of_rows(weights[rows], bias[rows], (weights if real is None else real)[rows])
        if part is None:
            return None
        pairs = slice(rows.start // 2, rows.stop // 2)
        words[pairs], heads[pairs], signs[pairs] = part
    return words, heads, signs


def _radix_pairs_of_rows(weights: Array, bias: Array, real: Array) -> tuple[Array, Array, Array] | None:
    """Return the same of some rows."""
    count, depth = weights.shape
    wide = weights.astype(np.int64).reshape(count, depth // 4, 2, 2).swapaxes(2, 3).reshape(count, depth)
    a, b = wide[0::2], wide[1::2]
    sign = np.where((a + 256 * b).min(axis=1, initial=0) < -32768, -1, 1)
    raw = a + 256 * sign[:, None] * b
    offsets = bias.astype(np.int64)
    met = real[1::2].astype(np.int64)
    least = offsets[1::2] + np.minimum(127 * met, -128 * met).sum(axis=1)
    most = offsets[1::2] + np.maximum(127 * met, -128 * met).sum(axis=1)
    if raw.max(initial=0) > 32767 or max(-least.min(initial=0), most.max(initial=0)) >= 1 << 23:
        return None
    halves = raw.astype(np.int16).view(np.uint16).astype(np.uint32).reshape(count // 2, depth // 2, 2)
    heads = np.stack([offsets[0::2], offsets[0::2] + 256 * sign * offsets[1::2]], axis=1) & 0xFFFFFFFF
    return halves[..., 0] | halves[..., 1] << 16, heads.astype(np.uint32), sign.astype(np.float32)


def pack(weights: Array, bias: Array, scaling: Scaling, depth: int, real: Array | None = None) -> Array | None:
    """Return the stream of mt_dsp_columns, uint32 [N/2, depth/2 + 4 or 6]; None: the pairs can't be proved exact.

    Args:
        weights: int8 [N, K] in the columns' order; N is filled up to an even number, K to `depth`, with zeros.
        bias: int32 [N], the input's zero point folded in.
        scaling: of N channels.
        depth: a multiple of 4.
        real: what the weights are together with their offset; None: they have none.
    """
    bias, scaling = scaling.without_dead_channels(weights if real is None else real, bias)
    count = round_up(weights.shape[0], 2)
    if real is not None:
        real = np.pad(real.reshape(len(real), -1), ((0, count - len(real)), (0, 0)))
    stream = np.empty((count // 2, 2 + depth // 2 + 2 * scaling.words.shape[1]), np.uint32)
    rows, sums = filled_up(weights, count, depth), np.pad(bias, (0, count - weights.shape[0]))
    pairs = radix_pairs(rows, sums, into=stream[:, 2 : 2 + depth // 2], real=real)
    if pairs is None:
        return None
    _, stream[:, :2], sign = pairs
    stream[:, 2 + depth // 2 :] = scaling.padded(count).paired(sign)
    return stream


def pack_apart(weights: Array, bias: Array, scaling: Scaling, depth: int) -> Array:
    """Return the stream of mt_dsp_apart, of the same size, which nothing need be proved of; see pack."""
    count = round_up(weights.shape[0], 2)
    filled = np.ascontiguousarray(filled_up(weights, count, depth))
    words = filled.view(np.uint32).reshape(count // 2, 2, depth // 4).swapaxes(1, 2).reshape(count // 2, depth // 2)
    heads = np.pad(bias, (0, count - weights.shape[0])).view(np.uint32).reshape(count // 2, 2)
    return np.concatenate([heads, words, scaling.padded(count).words.reshape(count // 2, -1)], axis=1)


@dataclass(frozen=True, slots=True)
class Packed:
    """A layer's packed weights, [groups, ...], and whether they stand apart."""

    epilogue: Int8Epilogue
    stream: Array
    apart: bool

    @classmethod
    def of(
        cls, epilogue: Int8Epilogue, weights: Array, depth: int, groups: int = 1, real: Array | None = None
    ) -> "Packed":
        """Pack in pairs if all of them can be proved exact, otherwise apart.

        Args:
            epilogue: with a bias and a scaling for each channel.
            weights: int8 [N, K] in the columns' order.
            depth: what K is filled up to, a multiple of 4.
            groups: how many share N.
            real: the weights with their offset, if they are stored without one; None: they have none.
        """
        split = (np.split(weights, groups), np.split(epilogue.bias, groups), epilogue.scaling.split(groups))
        parts = list(zip(*split, strict=True))
        reals = [None] * groups if real is None else np.split(real, groups)
        streams = (pack(*part, depth, of) for part, of in zip(parts, reals, strict=True))
        paired = [stream for stream in streams if stream is not None]
        if len(paired) == groups:
            return cls(epilogue, paired[0] if groups == 1 else np.concatenate(paired), False)
        return cls(epilogue, np.concatenate([pack_apart(w, b, scaling, depth) for w, b, scaling in parts]), True)

    @property
    def layout(self) -> str:
        """What stands where in a row of the stream."""
        scaling = f"{self.epilogue.scaling.meaning} of each"
        if self.apart:
            return f"two output channels a row: their biases, words of four weights by turns, {scaling}"
        return f"two output channels a row, {PAIRED}, {scaling}"

    def function(self, unroll: int, suffix: str = "") -> str:
        """Return the name of the runtime's function, but for `_range`; `suffix` is that of another tile."""
        return f"mt_dsp_{'apart' if self.apart else 'columns'}{suffix}{self.epilogue.scaling.kind}_{unroll}"
