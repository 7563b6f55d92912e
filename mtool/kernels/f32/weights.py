"""Packed weights of float32 tiles."""

import numpy as np

from mtool.ir.types import Array
from mtool.kernels.padding import round_up

LAYOUT = "the channels of a tile a row: biases, then their weights by turns"


def pack(weights: Array, bias: Array, together: int) -> Array:
    """Return the stream of mt_f32_columns, float32 [N/T, T * (1 + K)].

    Args:
        weights: float32 [N, K]; N is filled up to whole tiles, K to a multiple of 4.
        bias: float32 [N].
        together: T, the channels of a tile.
    """
    count = round_up(weights.shape[0], together)
    filled = np.zeros((count, round_up(weights.shape[1], 4)), np.float32)
    filled[: weights.shape[0], : weights.shape[1]] = weights
    bias = np.pad(bias, (0, count - bias.size))
    steps = filled.reshape(count // together, together, -1).transpose(0, 2, 1).reshape(count // together, -1)
    return np.concatenate([bias.reshape(count // together, together), steps], axis=1).astype(np.float32)
