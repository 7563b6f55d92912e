"""Sparse weights of a TFLite file, decoded.

Source: the schema's SparsityParameters, which is the format of TACO: the dimensions, and the blocks that some of them
are cut into, in an order of traversal, each dense or as the indices that are there.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tflite

from mtool.compiler.frontend.budget import Budget
from mtool.compiler.frontend.inference import MOST_DIMENSIONS
from mtool.compiler.ir.types import Array

DENSE = 0  # DimensionType of the schema; the other is SPARSE_CSR


class Damaged(Exception):
    """The file is damaged; the text says how."""


def dense(sparsity: Any, values: Array, shape: tuple[int, ...], budget: Budget, where: str) -> Array:
    """Return a sparse tensor with all its elements.

    Args:
        sparsity: the flatbuffer's table.
        values: the elements that the file has.
        shape: the tensor's.
        budget: what may be made.
        where: the tensor, in messages.

    Raises:
        Damaged: the encoding does not describe a tensor of that shape.
        ModelError: it exceeds the budget.
    """
    rank, levels, blocked = len(shape), sparsity.DimMetadataLength(), _list(sparsity.BlockMapAsNumpy())
    order = _list(sparsity.TraversalOrderAsNumpy())
    wrong = sorted(order[:rank]) != list(range(rank)) or sorted(order[rank:]) != list(range(rank, rank + len(blocked)))
    if (
        wrong
        or rank > MOST_DIMENSIONS
        or levels != len(order)
        or any(not 0 <= axis < rank for axis in blocked)
        or len({*blocked}) < len(blocked)
    ):
        raise Damaged(f"{where} has a sparse encoding of order {order[:9]} and blocks {blocked[:9]} for {list(shape)}")
    count = math.prod(shape)
    budget.afford("constants", count * values.itemsize, where)
    budget.spend("work", count + values.size * (levels + 1), where)
    described = {axis: sparsity.DimMetadata(level) for level, axis in enumerate(order)}
    sizes = dict(enumerate(shape))
    for number, axis in enumerate(blocked, rank):
        sizes[number] = described[number].DenseSize()
        if described[number].Format() != DENSE or sizes[number] < 1 or shape[axis] % sizes[number]:
            raise Damaged(f"{where} has a sparse encoding with blocks of {sizes[number]:,} for {list(shape)}")
        sizes[axis] = shape[axis] // sizes[number]
    found = _indices(described, sizes, values.size, where)
    if values.size != found[order[-1]].size:
        raise Damaged(f"{where} has {values.size:,} sparse elements, and indices of {found[order[-1]].size:,}")
    for number, axis in enumerate(blocked, rank):
        found[axis] = found[axis] * sizes[number] + found[number]
    made = np.zeros(shape, values.dtype)
    made[tuple(found[axis] for axis in range(rank))] = values
    return made


def _indices(described: Mapping[int, Any], sizes: Mapping[int, int], elements: int, where: str) -> dict[int, Array]:
    """Return along each dimension, in the order of traversal, the index of every element that is there."""
    found: dict[int, Array] = {}
    count = 1  # positions that the levels before lead to: as many as there are elements, or segments of a level behind
    segments = {axis: _vector(level.ArraySegmentsType(), level.ArraySegments()) for axis, level in described.items()}
    most = max(elements, *(listed.size for listed in segments.values()))
    for axis, level in described.items():
        size = sizes[axis]
        if level.Format() == DENSE:
            if level.DenseSize() != size or count * size > most:
                told = f"{level.DenseSize():,} for a dimension of {size:,}, with {elements:,} elements"
                raise Damaged(f"{where} has a sparse encoding of {told}")
            lengths, indices = np.full(count, size), np.tile(np.arange(size), count)
        else:
            listed, indices = segments[axis], _vector(level.ArrayIndicesType(), level.ArrayIndices())
            lengths = np.diff(listed)
            fit = listed.size == count + 1 and not listed[0] and listed[-1] == indices.size
            if not fit or (lengths < 0).any() or (lengths > size).any() or ((indices < 0) | (indices >= size)).any():
                raise Damaged(f"{where} has a sparse encoding whose dimension {axis} has indices that do not fit")
        found = {known: np.repeat(data, lengths) for known, data in found.items()}
        found[axis], count = indices, indices.size
    return found


def _vector(kind: int, table: Any) -> Array:
    """Return a vector of indices, which is of one of three types."""
    tables = {
        tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
        tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
        tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
    }
    if kind not in tables or table is None:
        return np.zeros(0, np.int64)
    view = tables[kind]()
    view.Init(table.Bytes, table.Pos)
    return np.asarray(_list(view.ValuesAsNumpy()), np.int64)


def _list(vector: Any) -> list[int]:
    """Return a vector of a flatbuffer; one that is not there reads as the number 0."""
    return [] if isinstance(vector, int) else [int(number) for number in vector]
