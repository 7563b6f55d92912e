"""Packed weights of float32 tiles."""

from functools import partial

import numpy as np

from mtool.ir.types import Array
from mtool.kernels.packing import packed_by_rows
from mtool.kernels.padding import filled_up, round_up

LAYOUT = "the channels of a tile a row: biases, then their weights by turns"


def packed(weights: Array, bias: Array, together: int) -> Array:
    """Return the stream of mt_f32_columns, float32 [N/T, T * (1 + K)].

    Args:
        weights: float32 [N, K]; N is filled up to whole tiles, K to a multiple of 4.
        bias: float32 [N].
        together: T, the channels of a tile.
    """
    return packed_by_rows(partial(_rows, together=together), together, weights, bias)


def _rows(weights: Array, bias: Array, together: int) -> Array:
    count = round_up(weights.shape[0], together)
    bias = np.pad(bias, (0, count - bias.size)).reshape(count // together, together)
    filled = filled_up(weights, count, round_up(weights.shape[1], 4)).reshape(count // together, together, -1)
    steps = filled.transpose(0, 2, 1).reshape(count // together, -1)
    return np.concatenate([bias, steps], axis=1).astype(np.float32)
