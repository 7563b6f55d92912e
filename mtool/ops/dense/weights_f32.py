"""Packed weights of dense layers of float32."""

import numpy as np

from mtool.ir.types import Array
from mtool.kernels.padding import round_up

LAYOUT = "some outputs a row: their weights by turns, their biases"


def pack(weights: Array, bias: Array, group: int) -> Array:
    """Return the stream of mt_f32_rows and mt_mve_f32_rows, float32 [N/group, group * (K + 1)].

    Args:
        weights: float32 [N, K]; N is filled up to a multiple of `group`, K of 4.
        bias: float32 [N].
        group: outputs at a time.
    """
    count, depth = weights.shape[0], round_up(weights.shape[1], 4)
    groups = round_up(count, group) // group
    more = groups * group - count
    steps = np.pad(weights, ((0, more), (0, depth - weights.shape[1]))).reshape(groups, group, depth).transpose(0, 2, 1)
    return np.concatenate([steps.reshape(groups, -1), np.pad(bias, (0, more)).reshape(groups, group)], axis=1)
