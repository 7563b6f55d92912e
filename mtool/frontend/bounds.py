"""Values whose size depends on data, up to a stated maximum.

Such a value has its maximum as its shape in C, and along one dimension only the first so many elements are there: its
count, which the operator that makes it gives as an output of its own. What works element by element, or along other
dimensions, carries that on to what it makes. What mixes elements of that dimension would mix in what is not there,
and is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import onnx

from mtool.frontend.inference import check_size
from mtool.frontend.problems import Unsupported
from mtool.ir import Attributes, DType, TensorType
from mtool.lowerings.elementwise import LOWERINGS as ELEMENTWISE
from mtool.lowerings.gemm import Gemm
from mtool.lowerings.lowering import AlongAxis
from mtool.lowerings.movement import Permutation, Slice
from mtool.lowerings.quantise import Quantisation
from mtool.lowerings.reduce import Axes

if TYPE_CHECKING:
    from mtool.frontend.importer import Importer

Types = Mapping[str, TensorType]


@dataclass(frozen=True, slots=True)
class Bound:
    """Along `axis` only the first `count` elements are there; `count` is a value, int32[]."""

    axis: int
    count: str


COUNTING = ("NonZero", "NonMaxSuppression", "Compress", "Unique", "TopK")
"""Operators whose output's size depends on data."""


def limited(state: "Importer", proto: onnx.NodeProto, attrs: Mapping[str, Any]) -> bool:
    """Give the outputs of a counting operator their maximum as their shape, if one is stated.

    It is stated under the name of the first output, or of the dimension in the shape that the model declares for it.
    """
    if proto.op_type not in COUNTING or any(value and value not in state.types for value in proto.input):
        return False
    declared = state.declared.get(proto.output[0])
    dims = declared.tensor_type.shape.dim if declared is not None else ()
    names = [name for name in (proto.output[0], *(dim.dim_param for dim in dims)) if name in state.maxima]
    if not names:
        return False
    if any(value and value in state.bounds for value in proto.input):
        raise Unsupported("the size of its input depends on data too")
    state.used_maxima.add(names[0])
    count = state.unique(f"{proto.output[0]}_count")
    state.types[count] = TensorType(DType.INT32, ())
    for value, kind, axis in _outputs(state, proto, attrs, state.maxima[names[0]]):
        check_size(kind, "its output")
        state.types[value] = kind
        if axis is not None:
            state.bounds[value] = Bound(axis, count)
    return True


def _outputs(
    state: "Importer", proto: onnx.NodeProto, attrs: Mapping[str, Any], most: int
) -> list[tuple[str, TensorType, int | None]]:
    kind = state.types[proto.input[0]]
    rank = len(kind.shape)
    if proto.op_type == "NonZero":
        return [(proto.output[0], TensorType(DType.INT64, (rank, most)), 1)]
    if proto.op_type == "NonMaxSuppression":
        return [(proto.output[0], TensorType(DType.INT64, (most, 3)), 0)]
    place = attrs.get("axis", -1 if proto.op_type == "TopK" else None)
    flat: tuple[int, ...]
    if place is None:
        flat, place = (most,), 0
    else:
        place %= rank
        most = min(most, kind.shape[place]) if proto.op_type == "TopK" else most
        flat = (*kind.shape[:place], most, *kind.shape[place + 1 :])
    first = TensorType(kind.dtype, flat)
    rows = TensorType(DType.INT64, (most,))
    whole = TensorType(DType.INT64, (kind.count if "axis" not in attrs else kind.shape[place],))
    every: list[tuple[TensorType, int | None]] = [(first, place)]
    if proto.op_type == "TopK":
        every.append((TensorType(DType.INT64, flat), place))
    if proto.op_type == "Unique":
        every += [(rows, 0), (whole, None), (rows, 0)]
    return [(name, *pair) for name, pair in zip(proto.output, every, strict=False) if name]


def carried(
    op: str, inputs: Sequence[str], outputs: Sequence[str], attrs: Attributes, state: "Importer"
) -> dict[str, Bound]:
    """Return the bounds of what a canonical operator makes of bounded inputs.

    Raises:
        Unsupported: it would mix in what is not there.
    """
    given = {place: state.bounds[value] for place, value in enumerate(inputs) if value in state.bounds}
    if not given:
        return {}
    types = [state.types[value] if value else TensorType(DType.INT32, ()) for value in inputs]
    result = state.types[outputs[0]]
    axis = _elementwise(given, types, result) if op in ELEMENTWISE else _moved(op, given, types, result, attrs)
    if axis is None or len({bound.count for bound in given.values()}) != 1:
        raise Unsupported("it works along a dimension whose size depends on data")
    return dict.fromkeys(outputs, Bound(axis, next(iter(given.values())).count))


def _elementwise(given: Mapping[int, Bound], types: Sequence[TensorType], result: TensorType) -> int | None:
    rank = len(result.shape)
    axes = {bound.axis + rank - len(types[place].shape) for place, bound in given.items()}
    axis = axes.pop()
    if any(result.shape[axis] != types[place].shape[bound.axis] for place, bound in given.items()):
        return None
    for place, kind in enumerate(types):
        own = axis - (rank - len(kind.shape))
        if place not in given and own >= 0 and kind.shape[own] != 1:
            return None
    return axis if not axes else None


def _moved(
    op: str, given: Mapping[int, Bound], types: Sequence[TensorType], result: TensorType, attrs: Attributes
) -> int | None:
    """Return where the bounded dimension is in the output; None: not to be told, or it is worked along."""
    axis, rank = given[min(given)].axis, len(result.shape)
    shape, alone = types[0].shape, set(given) == {0}
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
        same = len(given) == len(types) and {bound.axis for bound in given.values()} == {axis}
        return axis if same and axis != attrs.axis else None
    if isinstance(attrs, Axes):
        before = 0 if attrs.keepdims else sum(place < axis for place in attrs.axes)
        return axis - before if axis not in attrs.axes else None
    if isinstance(attrs, Quantisation):
        return axis if alone and types[1].count == 1 else None
    return _picked(op, axis, min(given), types, rank, attrs) if len(given) == 1 else None


def _picked(op: str, axis: int, place: int, types: Sequence[TensorType], rank: int, attrs: Attributes) -> int | None:
    """Return the same for operators whose one bounded input is a table, its indices, or a factor."""
    own = len(types[place].shape)
    if op == "Gather" and isinstance(attrs, AlongAxis):
        if place == 1:
            return attrs.axis + axis
        after = axis + len(types[1].shape) - 1
        return None if axis == attrs.axis else axis if axis < attrs.axis else after
    if op == "GatherND" and place == 1 and axis < own - 1:
        return axis
    if op == "OneHot" and place == 0 and isinstance(attrs, AlongAxis):
        return axis if axis < attrs.axis else axis + 1
    if op == "MatMul" and own > 1:
        worked_along = own - 1 if place == 0 else own - 2
        return None if axis == worked_along else axis + rank - own
    if isinstance(attrs, Gemm) and place < 2:
        row = (1 if attrs.transA else 0) if place == 0 else (0 if attrs.transB else 1)
        return place if axis == row else None
    return None


def _reshaped(shape: Sequence[int], axis: int, result: Sequence[int]) -> int | None:
    for place, size in enumerate(result):
        if size == shape[axis] and prod(result[:place]) == prod(shape[:axis]):
            return place
    return None
