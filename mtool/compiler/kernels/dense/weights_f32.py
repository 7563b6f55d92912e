"""Packed weights of dense layers of float32."""

import numpy as np

from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.f32.stored import Stored, as_words
from mtool.compiler.kernels.padding import filled_up, round_up

LAYOUT = "some outputs a row: their weights by turns, their biases"


def pack(weights: Array, bias: Array, group: int, stored: Stored = "") -> Array:
    """Return the stream of mt_f32_rows and mt_mve_f32_rows, float32 [N/group, group * (K + 1)].

    Args:
        weights: float32 [N, K]; N is filled up to a multiple of `group`, K of 4.
        bias: float32 [N].
        group: outputs at a time.
        stored: how the weights are stored, if not as floats: then they may be int8, and the stream is of words
            (mtool.compiler.kernels.f32.stored), biases being floats.
    """
    if stored:
        count, depth = (round_up(size, to) for size, to in zip(weights.shape, (group, 4), strict=True))
        filled = filled_up(weights, count, depth).reshape(count // group, group, depth)
        words = as_words(filled.transpose(0, 2, 1).reshape(count // group, -1), stored)
        biases = np.pad(bias, (0, count - bias.size)).reshape(count // group, group)
        return np.concatenate([words, as_words(biases, "")], axis=1)
    count, depth = weights.shape
    whole, rest = divmod(count, group)
    stream = np.zeros((round_up(count, group) // group, round_up(depth, 4) + 1, group), weights.dtype)
    for part, source in ((stream[:, :depth], weights), (stream[:, -1:], bias[:, np.newaxis])):
        part[:whole] = source[: whole * group].reshape(whole, group, source.shape[1]).transpose(0, 2, 1)
        part[whole:, :, :rest] = source[whole * group :].T
    return stream.reshape(len(stream), -1)
