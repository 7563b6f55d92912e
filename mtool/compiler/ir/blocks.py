"""Large arrays, some rows at a time: what is computed of them in wider numbers is never as large as they are."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mtool.compiler.ir.types import Array

BLOCK_ELEMENTS = 1 << 18


def row_blocks(data: Array, multiple: int = 1) -> Iterator[slice]:
    """Return slices of the first dimension, one at least: so many rows each, of about BLOCK_ELEMENTS elements."""
    rows = max(BLOCK_ELEMENTS // max(math.prod(data.shape[1:]) * multiple, 1), 1) * multiple
    for first in range(0, max(data.shape[0], 1), rows):
        yield slice(first, first + rows)


class RowSums(NamedTuple):
    """Exact sums of each row's positive and negative elements, int64 [rows]."""

    positive: Array
    negative: Array

    @property
    def total(self) -> Array:
        """The sum of each row."""
        return self.positive + self.negative

    @property
    def magnitude(self) -> Array:
        """The sum of each row's absolute values."""
        return self.positive - self.negative


def row_sums(data: Array) -> RowSums:
    """Return the sums of an array of small integers [rows, ...]."""
    found = RowSums(np.zeros(len(data), np.int64), np.zeros(len(data), np.int64))
    inner = tuple(range(1, data.ndim))
    for rows in row_blocks(data):
        np.sum(np.maximum(data[rows], 0), axis=inner, dtype=np.int64, out=found.positive[rows])
        np.sum(np.minimum(data[rows], 0), axis=inner, dtype=np.int64, out=found.negative[rows])
    return found
