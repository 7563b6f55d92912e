"""Values whose size depends on data, up to a stated maximum.

Such a value has its maximum as its shape in C, and along one dimension only the first so many elements are there: its
count, which the operator that makes it gives as another output. What works element by element, or along other
dimensions, carries that on to what it makes. What mixes elements of that dimension would mix in what is not there,
and is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.ir import Attributes, DType, TensorType
from mtool.compiler.operators.elementwise import LOWERINGS as ELEMENTWISE
from mtool.compiler.operators.gemm import Gemm
from mtool.compiler.operators.lowering import AlongAxis
from mtool.compiler.operators.movement import Permutation, Slice
from mtool.compiler.operators.quantize import Quantisation
from mtool.compiler.operators.reduce import Axes

Types = Mapping[str, TensorType]


@dataclass(frozen=True, slots=True)
class Bound:
    """Along `axis` only the first `count` elements are there; `count` is a value, int32[]."""

    axis: int
    count: str


COUNTING = ("NonZero", "NonMaxSuppression", "Compress", "Unique", "TopK")
"""Operators whose output's size depends on data."""


def bounds_of_outputs(
    op: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    attrs: Attributes,
    types: Types,
    bounds: Mapping[str, Bound],
) -> dict[str, Bound]:
    """Return the bounds of what a canonical operator makes of bounded inputs.

    Raises:
        Unsupported: it would mix in what is not there.
    """
    bounded = {index: bounds[value] for index, value in enumerate(inputs) if value in bounds}
    if not bounded:
        return {}
    kinds = [types[value] if value else TensorType(DType.INT32, ()) for value in inputs]
    result = types[outputs[0]]
    axis = _elementwise(bounded, kinds, result) if op in ELEMENTWISE else _moved(op, bounded, kinds, result, attrs)
    if axis is None or len({bound.count for bound in bounded.values()}) != 1:
        raise Unsupported("it works along a dimension whose size depends on data")
    return dict.fromkeys(outputs, Bound(axis, next(iter(bounded.values())).count))


def _elementwise(bounded: Mapping[int, Bound], types: Sequence[TensorType], result: TensorType) -> int | None:
    rank = len(result.shape)
    axes = {bound.axis + rank - len(types[index].shape) for index, bound in bounded.items()}
    axis = axes.pop()
    if any(result.shape[axis] != types[index].shape[bound.axis] for index, bound in bounded.items()):
        return None
    for index, kind in enumerate(types):
        own = axis - (rank - len(kind.shape))
        if index not in bounded and own >= 0 and kind.shape[own] != 1:
            return None
    return axis if not axes else None


def _moved(
    op: str, bounded: Mapping[int, Bound], types: Sequence[TensorType], result: TensorType, attrs: Attributes
) -> int | None:
    """Return where the bounded dimension is in the output; None: not to be told, or it is worked along."""
    axis, rank = bounded[min(bounded)].axis, len(result.shape)
    shape, alone = types[0].shape, set(bounded) == {0}
    if op == "Reshape":
        return _reshaped(shape, axis, result.shape)
    if isinstance(attrs, Permutation):
        return attrs.perm.index(axis)
    if op in ("Softmax", "Hardmax", "LpNormalization") and isinstance(attrs, AlongAxis):
        return axis if axis != attrs.axis else None
    if isinstance(attrs, Slice):
        whole = attrs.first[axis] == 0 and attrs.stride[axis] == 1 and result.shape[axis] == shape[axis]
        return axis if whole else None
    if op == "Concat" and isinstance(attrs, AlongAxis):
        same = len(bounded) == len(types) and {bound.axis for bound in bounded.values()} == {axis}
        return axis if same and axis != attrs.axis else None
    if isinstance(attrs, Axes):
        before = 0 if attrs.keepdims else sum(dim < axis for dim in attrs.axes)
        return axis - before if axis not in attrs.axes else None
    if isinstance(attrs, Quantisation):
        return axis if alone and types[1].count == 1 else None
    return _picked(op, axis, min(bounded), types, rank, attrs) if len(bounded) == 1 else None


def _picked(op: str, axis: int, operand: int, types: Sequence[TensorType], rank: int, attrs: Attributes) -> int | None:
    """Return the same for operators whose one bounded input is a table, its indices, or a factor."""
    own = len(types[operand].shape)
    if op == "Gather" and isinstance(attrs, AlongAxis):
        if operand == 1:
            return attrs.axis + axis
        after = axis + len(types[1].shape) - 1
        return None if axis == attrs.axis else axis if axis < attrs.axis else after
    if op == "GatherND" and operand == 1 and axis < own - 1:
        return axis
    if op == "OneHot" and operand == 0 and isinstance(attrs, AlongAxis):
        return axis if axis < attrs.axis else axis + 1
    if op == "MatMul" and own > 1:
        worked_along = own - 1 if operand == 0 else own - 2
        return None if axis == worked_along else axis + rank - own
    if isinstance(attrs, Gemm) and operand < 2:
        row = (1 if attrs.transA else 0) if operand == 0 else (0 if attrs.transB else 1)
        return operand if axis == row else None
    return None


def _reshaped(shape: Sequence[int], axis: int, result: Sequence[int]) -> int | None:
    for dim, size in enumerate(result):
        if size == shape[axis] and prod(result[:dim]) == prod(shape[:axis]):
            return dim
    return None
