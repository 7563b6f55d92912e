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
    count, depth = weights.shape
    whole, rest = divmod(count, group)
    stream = np.zeros((round_up(count, group) // group, round_up(depth, 4) + 1, group), weights.dtype)
    for part, source in ((stream[:, :depth], weights), (stream[:, -1:], bias[:, np.newaxis])):
        part[:whole] = source[: whole * group].reshape(whole, group, source.shape[1]).transpose(0, 2, 1)
        part[whole:, :, :rest] = source[whole * group :].T
    return stream.reshape(len(stream), -1)
