"""Packed weights of float32 tiles."""

from functools import partial

import numpy as np

from mtool.ir.types import Array
from mtool.kernels.f32.stored import Stored, as_words
from mtool.kernels.packing import packed_by_rows
from mtool.kernels.padding import filled_up, round_up

LAYOUT = "the channels of a tile a row: biases, then their weights by turns"


def packed(weights: Array, bias: Array, together: int, stored: Stored = "") -> Array:
    """Return the stream of mt_f32_columns, float32 [N/T, T * (1 + K)], or words (mtool.kernels.f32.stored).

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
    if stored:
        return np.concatenate([as_words(bias, ""), as_words(steps, stored)], axis=1)
    return np.concatenate([bias, steps], axis=1).astype(np.float32)
