"""Sizes and matrices that are filled up to whole vectors, words and tiles."""

import numpy as np

from mtool.compiler.ir.types import Array


def round_up(number: int, multiple: int) -> int:
    """Round up to a multiple."""
    return -(-number // multiple) * multiple


def filled_up(matrix: Array, rows: int, columns: int) -> Array:
    """Return a matrix with zeros behind and below it, so that it is of this size: itself if it is already."""
    if matrix.shape == (rows, columns):
        return matrix
    return np.pad(matrix, ((0, rows - matrix.shape[0]), (0, columns - matrix.shape[1])))
