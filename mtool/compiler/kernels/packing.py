"""Packed weights, built a few channels at a time: a large layer is in memory twice, unpacked and packed."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mtool.compiler.ir.types import Array, row_blocks

# Sizes and matrices that are padded to whole vectors, words and tiles.


def round_up(number: int, multiple: int) -> int:
    """Round up to a multiple."""
    return -(-number // multiple) * multiple


def filled_up(matrix: Array, rows: int, columns: int) -> Array:
    """Pad a matrix with zeros at the right and the bottom to this size; return it unchanged if it has that size."""
    if matrix.shape == (rows, columns):
        return matrix
    return np.pad(matrix, ((0, rows - matrix.shape[0]), (0, columns - matrix.shape[1])))


def by_turns(matrix: Array, together: int, lanes: int, depth: int = 0) -> Array:
    """Interleave each `together` rows of a matrix, `lanes` elements of each in turn, [N / together, ...].

    Rows are padded to whole `together`, columns to `depth` or whole `lanes`.
    """
    count, columns = round_up(len(matrix), together), depth or round_up(matrix.shape[1], lanes)
    blocks = filled_up(matrix, count, columns).reshape(count // together, together, -1, lanes)
    return blocks.swapaxes(1, 2).reshape(count // together, -1)


def numbers_of(
    numbers: Array, together: int, kind: type, word: type = np.int8, order: Array | slice = slice(None)
) -> Array:
    """Return per-channel numbers as words, padded and grouped by `together`, in an order, [N / together, ...]."""
    filled: Array = np.pad(numbers.astype(kind), (0, -len(numbers) % together)).reshape(-1, together)
    words: Array = np.ascontiguousarray(filled[:, order]).view(word)
    return words


def sums_of_fields(biases: Array, bits: int) -> Array:
    """Return the biases of sums whose fields of `bits` bits lie above those before them, uint32 [..., fields]."""
    shifted: Array = biases.astype(np.int64) << bits * np.arange(biases.shape[-1])
    return (shifted.cumsum(axis=-1) & 0xFFFFFFFF).astype(np.uint32)


def packed_by_rows(pack: Callable[..., Array], together: int, weights: Array, *numbers: Any, groups: int = 1) -> Array:
    """Return `pack(weights, *numbers)`, computed a few rows of the stream at a time, [groups * rows, ...].

    Args:
        pack: returns a row of the stream for every `together` channels, and fills up the last.
        together: the channels of a row.
        weights: [N, ...].
        numbers: other per-channel data that can be sliced: biases, scales, a Scaling.
        groups: parts of equal size that N consists of; each begins a row.
    """
    count = len(weights) // groups
    rows = round_up(count, together) // together
    stream: Array | None = None
    for group in range(groups):
        for block in row_blocks(weights[:count], together):
            channels = slice(group * count + block.start, group * count + min(block.stop, count))
            part = pack(weights[channels], *(number[channels] for number in numbers))
            if stream is None:
                stream = np.empty((groups * rows, *part.shape[1:]), part.dtype)
            first = group * rows + block.start // together
            stream[first : first + len(part)] = part
    assert stream is not None
    return stream
