"""Operators that pick, place or sum elements by their numbers: TOPK_V2, ONE_HOT, SCATTER_ND, segments, diagonals."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.tflite.movement import moved
from mtool.compiler.frontend.tflite.rows import ROW
from mtool.compiler.frontend.tflite.translation import Translation
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.indexing import GATHER_ND
from mtool.compiler.operators.ordering import TOP_K

Translate = Callable[[Translation], None]


def _long(t: Translation, value: str) -> str:
    return t.node("Cast", [value], to=onnx.TensorProto.INT64)


def _stored_as_it_is(t: Translation, *operands: int) -> None:
    """Check that integers need not be scaled.

    Raises:
        Unsupported: these inputs and the outputs stand on different grids.
    """
    if not t.same_grid(*operands):
        raise Unsupported("its inputs and its output stand on different grids")


def _filled(t: Translation, shape: Sequence[int], value: float) -> str:
    """Return a tensor of one number, of the output's type."""
    scalar = t.constant("value", value, t.result().dtype)
    return t.node("Expand", [scalar, t.whole("shape", shape)]) if len(shape) else scalar


def _row(t: Translation) -> None:
    """ROW: the tensor, the number of the row, the row with a leading dimension of one."""
    shape, row = t.shape(0), t.shape(2)
    if row != (1, *shape[1:]):
        raise Unsupported(f"it replaces a row of {list(shape)} by {list(row)}")
    number = t.node("Reshape", [_long(t, t.stored(1)), t.whole("shape", [1, 1])])
    if t.same_grid(0, 2):
        t.put(t.node("ScatterND", [t.stored(0), number, t.stored(2)]))
    else:
        t.store(t.node("ScatterND", [t.real(0), number, t.real(2)]))


def _topk(t: Translation) -> None:
    """TOPK_V2: the largest along the last axis, and their indices; of equal ones the first."""
    (k,), size = t.numbers(1, "k"), (t.shape(0) or (0,))[-1]
    if not 0 < k <= size or t.tensor(0).dtype != t.result().dtype:
        raise Unsupported(f"it picks {k} of {size}")
    values, indices = t.several(TOP_K, [t.stored(0), t.whole("k", [k])], 2, axis=-1, largest=1, sorted=1)
    to = helper.np_dtype_to_tensor_dtype(t.result(1).dtype)
    t.put(values)
    t.put(t.node("Cast", [indices], to=to), 1)


def _one_hot(t: Translation) -> None:
    """ONE_HOT: a number that is no index leaves `off` everywhere."""
    (depth,), rank = t.numbers(1, "the depth"), len(t.shape(0)) + 1
    axis = t.op.option("Axis", -1)
    axis = rank - 1 if axis == -1 else axis
    if depth < 0 or not 0 <= axis < rank:
        raise Unsupported(f"its depth is {depth}, its axis {axis} of {rank}")
    t.afford(8 * depth)
    index = t.node("Unsqueeze", [_long(t, t.stored(0)), t.whole("axis", [axis])])
    sizes = [depth if number == axis else 1 for number in range(rank)]
    hit = t.node("Equal", [index, t.constant("places", np.arange(depth).reshape(sizes), np.int64)])
    _stored_as_it_is(t, 2, 3)
    scalars = [t.node("Reshape", [t.stored(number), t.whole("scalar", [])]) for number in (2, 3)]
    t.put(t.node("Where", [hit, *scalars]))


def _scatter_nd(t: Translation) -> None:
    """SCATTER_ND: what is placed twice is summed."""
    shape = t.numbers(2, "the shape")
    _stored_as_it_is(t, 1)
    if t.result().dtype == np.bool_ or min(shape, default=1) < 1:
        raise Unsupported(f"it makes {t.result().dtype}{shape}")
    zeros = _filled(t, shape, 0)
    t.put(t.node("ScatterND", [zeros, _long(t, t.stored(0)), t.stored(1)], reduction="add"))


def _sparse_to_dense(t: Translation) -> None:
    """SPARSE_TO_DENSE: a value at each index, a default elsewhere."""
    shape, shape_of_indices = t.numbers(1, "the shape"), t.shape(0)
    _stored_as_it_is(t, 2, 3)
    count = shape_of_indices[0] if shape_of_indices else 1
    if (shape_of_indices[1:] or (1,)) != (len(shape),) or len(shape_of_indices) > 2:
        raise Unsupported(f"its indices are {list(shape_of_indices)}, its output's shape {shape}")
    default = t.node("Reshape", [t.stored(3), t.whole("scalar", [])])
    dense = t.node("Expand", [default, t.whole("shape", shape)])
    indices = t.node("Reshape", [_long(t, t.stored(0)), t.whole("rows", (count, len(shape)))])
    values = t.stored(2)
    if t.shape(2) != (count,):
        values = t.node("Expand", [t.node("Reshape", [values, t.whole("one", [1])]), t.whole("count", [count])])
    t.put(t.node("ScatterND", [dense, indices, values]))


def _reverse_sequence(t: Translation) -> None:
    """REVERSE_SEQUENCE: of each row of the batch so many elements."""
    rank, time, batch = len(t.shape(0)), t.op.option("SeqDim"), t.op.option("BatchDim")
    if not (0 <= time < rank and 0 <= batch < rank) or time == batch:
        raise Unsupported(f"it reverses axis {time} by axis {batch} of {rank}")
    lengths = _long(t, t.stored(1))
    order = [batch, time, *(number for number in range(rank) if number not in (batch, time))]
    back = [order.index(number) for number in range(rank)]

    def build(x: str) -> str:
        front = t.node("Transpose", [x], perm=order)
        made = t.node("ReverseSequence", [front, lengths], batch_axis=0, time_axis=1)
        return t.node("Transpose", [made], perm=back)

    moved(t, build)


def _matrix_diag(t: Translation) -> None:
    """MATRIX_DIAG: vectors as diagonals, 0 elsewhere."""
    _stored_as_it_is(t, 0)
    size = (t.shape(0) or (0,))[-1]
    t.afford(size * size)
    value = t.node("Unsqueeze", [t.stored(0), t.whole("axis", [-1])])
    zero = t.constant("zero", 0, t.result().dtype)
    t.put(t.node("Where", [t.constant("diagonal", np.eye(size, dtype=bool)), value, zero]))


def _matrix_set_diag(t: Translation) -> None:
    """MATRIX_SET_DIAG: matrices with another diagonal."""
    _stored_as_it_is(t, 0, 1)
    shape = t.shape(0)
    if len(shape) < 2 or t.shape(1) != (*shape[:-2], min(shape[-2:])):
        raise Unsupported(f"its matrices are {list(shape)}, their diagonals {list(t.shape(1))}")
    t.afford(shape[-2] * shape[-1])
    axis = -1 if shape[-2] <= shape[-1] else -2  # the shorter one goes along the diagonal's elements
    value = t.node("Unsqueeze", [t.stored(1), t.whole("axis", [axis])])
    t.put(t.node("Where", [t.constant("diagonal", np.eye(*shape[-2:], dtype=bool)), value, t.stored(0)]))


def _segments(kind: str, first: Callable[["np.dtype[Any]"], float]) -> Translate:
    """SEGMENT_SUM, UNSORTED_SEGMENT_*: elements with the same number, summed or so; those below 0 are left out."""

    def translate(t: Translation) -> None:
        _stored_as_it_is(t, 0)
        shape, segments, dtype = t.shape(0), t.shape(1), t.result().dtype
        if t.op.kind == "SEGMENT_SUM":
            known = t.numbers(1, "the segments")
            count = known[-1] + 1 if known else 0
            if known != sorted(known):
                raise Unsupported("its segments do not ascend")
        else:
            (count,) = t.numbers(2, "the number of segments")
        if shape[: len(segments)] != segments or count < 1 or dtype == np.bool_:
            raise Unsupported(f"its input is {dtype}{list(shape)}, its segments are {list(segments)}, {count} of them")
        rest = shape[len(segments) :]
        numbers, none = _long(t, t.stored(1)), t.constant("none", 0, np.int64)
        out = t.node("Where", [t.node("Less", [numbers, none]), t.constant("beyond", count, np.int64), numbers])
        rows = t.node("Reshape", [out, t.whole("rows", (math.prod(segments), 1))])
        values = t.node("Reshape", [t.stored(0), t.whole("values", (math.prod(segments), *rest))])
        begun = _filled(t, (count + 1, *rest), first(dtype))
        made = t.node("ScatterND", [begun, rows, values], reduction=kind)
        names = t.whole("starts", [0]), t.whole("ends", [count]), t.whole("axis", [0])
        t.put(t.node("Slice", [made, *names]))

    return translate


def _least(dtype: "np.dtype[Any]") -> float:
    return float(np.finfo(dtype).min) if dtype.kind == "f" else int(np.iinfo(dtype).min)


def _largest(dtype: "np.dtype[Any]") -> float:
    return float(np.finfo(dtype).max) if dtype.kind == "f" else int(np.iinfo(dtype).max)


def _embedding_lookup(t: Translation) -> None:
    """EMBEDDING_LOOKUP: rows of a table, which may be integers where the result is real."""
    table = t.tensor(1)
    if table.is_quantised and t.result().dtype == np.float32:
        if table.scale.size != 1:
            raise Unsupported(f"its table has {table.scale.size} scales")
        rows = t.node("Gather", [t.stored(1), t.stored(0)], axis=0)
        t.put(t.dequantise(rows, table.dtype, table.scale, table.zero_point))
        return
    moved(t, lambda x: t.node("Gather", [x, t.stored(0)], axis=0), 1)


def _dynamic_update_slice(t: Translation) -> None:
    """DYNAMIC_UPDATE_SLICE: a part of a tensor is another; where it begins is kept inside."""
    _stored_as_it_is(t, 0, 1)
    shape, part = t.shape(0), t.shape(1)
    if len(shape) != len(part) or any(size > whole for size, whole in zip(part, shape, strict=True)):
        raise Unsupported(f"its update is {list(part)}, its operand {list(shape)}")
    if t.shape(2) != (len(shape),):
        raise Unsupported(f"its begin is {list(t.shape(2))} for {len(shape)} dimensions")
    t.afford(8 * sum(shape))
    begin, value, hits = _long(t, t.stored(2)), t.stored(1), []
    for axis, (size, whole) in enumerate(zip(part, shape, strict=True)):
        if size == whole:
            continue
        first = t.node("Gather", [begin, t.constant("axis", axis, np.int64)])
        bounds = (t.constant(stem, number, np.int64) for stem, number in (("first", 0), ("last", whole - size)))
        first = t.node("Clip", [first, *bounds])
        index = t.node("Sub", [t.constant("places", np.arange(whole), np.int64), first])
        ends = [t.constant(stem, number, np.int64) for stem, number in (("low", 0), ("high", size - 1))]
        inside = t.node("Clip", [index, *ends])
        hit = t.node("Equal", [index, inside])
        sizes = [whole if number == axis else 1 for number in range(len(shape))]
        hits.append(t.node("Reshape", [hit, t.whole("sizes", sizes)]))
        value = t.node("Gather", [value, inside], axis=axis)
    if not hits:
        t.put(value)
        return
    whole_hit = hits[0]
    for hit in hits[1:]:
        whole_hit = t.node("And", [whole_hit, hit])
    t.put(t.node("Where", [whole_hit, value, t.stored(0)]))


def _gather(t: Translation) -> None:
    """GATHER, by batch if it is told to: each of the first dimensions has its own indices."""
    batch, axis, rank, dims = t.op.option("BatchDims"), t.op.option("Axis"), len(t.shape(0)), len(t.shape(1))
    if not batch:
        moved(t, lambda x: t.node("Gather", [x, t.stored(1)], axis=axis))
        return
    batch, axis = (number + (number < 0) * count for number, count in ((batch, dims), (axis, rank)))
    if not 0 <= batch <= axis < rank or batch > dims or t.shape(0)[:batch] != t.shape(1)[:batch]:
        raise Unsupported(f"it gathers {list(t.shape(1))} of {list(t.shape(0))} along axis {axis}, {batch} by batch")
    indices = t.node("Unsqueeze", [_long(t, t.stored(1)), t.whole("last", [-1])])
    order = [*range(batch), axis, *(number for number in range(batch, rank) if number != axis)]
    between, picked = axis - batch, dims - batch
    back = [*range(batch), *range(batch + picked, batch + picked + between), *range(batch, batch + picked)]
    back += range(batch + picked + between, rank - 1 + picked)

    def build(x: str) -> str:
        front = t.node("Transpose", [x], perm=order) if between else x
        made = t.node(GATHER_ND, [front, indices], batch_dims=batch)
        return t.node("Transpose", [made], perm=back) if between and picked else made

    moved(t, build)


def _bucketize(t: Translation) -> None:
    """BUCKETIZE: how many boundaries a number is not below."""
    found: Array = np.asarray(t.op.option("Boundaries", ()), np.float32)
    if (np.diff(found) < 0).any():
        raise Unsupported("its boundaries do not ascend")
    rank = len(t.shape(0))
    value = t.node("Cast", [t.stored(0)], to=onnx.TensorProto.FLOAT)
    each = t.node("Unsqueeze", [value, t.whole("axis", [rank])])
    above = t.node("GreaterOrEqual", [each, t.constant("boundaries", found)])
    wide = t.node("Cast", [above], to=onnx.TensorProto.INT32)
    t.put(t.node("ReduceSum", [wide, t.whole("axes", [rank])], keepdims=0))


def _where(t: Translation) -> None:
    """WHERE: the indices of what is not 0, in rows; how many there are, only the run knows."""
    t.put(t.node("Transpose", [t.node("NonZero", [t.stored(0)])], perm=[1, 0]))


def _unique(t: Translation) -> None:
    """UNIQUE: each number once, in the order of the first, and where each element is in that."""
    if t.tensor(0).dtype != t.result().dtype or len(t.shape(0)) != 1:
        raise Unsupported(f"its input is {t.tensor(0).dtype}{list(t.shape(0))}")
    values, _, inverse = t.several("Unique", [t.stored(0)], 3, sorted=0)
    t.put(values)
    t.put(t.node("Cast", [inverse], to=helper.np_dtype_to_tensor_dtype(t.result(1).dtype)), 1)


TRANSLATIONS: dict[str, Translate] = {
    "UNIQUE": _unique,
    "WHERE": _where,
    "TOPK_V2": _topk,
    "ONE_HOT": _one_hot,
    "SCATTER_ND": _scatter_nd,
    "SPARSE_TO_DENSE": _sparse_to_dense,
    "REVERSE_SEQUENCE": _reverse_sequence,
    "MATRIX_DIAG": _matrix_diag,
    "MATRIX_SET_DIAG": _matrix_set_diag,
    "SEGMENT_SUM": _segments("add", lambda _: 0),
    "UNSORTED_SEGMENT_SUM": _segments("add", lambda _: 0),
    "UNSORTED_SEGMENT_PROD": _segments("mul", lambda _: 1),
    "UNSORTED_SEGMENT_MAX": _segments("max", _least),
    "UNSORTED_SEGMENT_MIN": _segments("min", _largest),
    "EMBEDDING_LOOKUP": _embedding_lookup,
    "DYNAMIC_UPDATE_SLICE": _dynamic_update_slice,
    "GATHER": _gather,
    "BUCKETIZE": _bucketize,
    ROW: _row,
}
