"""Packed weights of float32 tiles."""

from functools import partial

import numpy as np

from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.f32.stored import Stored, as_words
from mtool.compiler.kernels.packing import packed_by_rows
from mtool.compiler.kernels.padding import filled_up, round_up

LAYOUT = "the channels of a tile a row: biases, then their weights by turns"


MOST = 256
"""Products that are added up from zero one after the other; of more, …"""
BLOCK = 128
"""… sums of so many are added up with what that rounds away."""


def packed(weights: Array, bias: Array, together: int, stored: Stored = "") -> Array:
    """Return the stream of mt_f32_columns, float32 [N/T, T * (1 + K)], or words (mtool.compiler.kernels.f32.stored).

    Of more than `MOST` products a tile's blocks begin with zeros in place of biases, but for the first.

    Args:
        weights: float32 or int8 [N, K]; N is filled up to whole tiles, K to a multiple of 4.
        bias: float32 [N].
        together: T, the channels of a tile.
        stored: how the weights are stored; the biases are floats.
    """
    return packed_by_rows(partial(_rows, together=together, stored=stored), together, weights, bias)


def _rows(weights: Array, bias: Array, together: int, stored: Stored) -> Array:
    count = round_up(weights.shape[0], together)
    bias = np.pad(bias, (0, count - bias.size)).reshape(count // together, together)
    filled = filled_up(weights, count, round_up(weights.shape[1], 4)).reshape(count // together, together, -1)
    steps = filled.transpose(0, 2, 1).reshape(count // together, -1)
    deep = weights.shape[1] > MOST
    parts = np.split(steps, range(BLOCK * together, steps.shape[1], BLOCK * together), axis=1) if deep else [steps]
    streams = [part for one in parts for part in (bias if one is parts[0] else np.zeros_like(bias), one)]
    if stored:
        return np.concatenate([as_words(one, stored if n % 2 else "") for n, one in enumerate(streams)], axis=1)
    return np.concatenate(streams, axis=1).astype(np.float32)
