"""Maximum sizes: where a size depends on data, the stated maximum is the shape of the operator's outputs."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.compiler.frontend.bounds import COUNTING, Bound
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.inference import check_size
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.ir import DType, TensorType


def set_maximum_sizes(state: Importer, proto: onnx.NodeProto, attrs: Mapping[str, Any]) -> bool:
    """Give the outputs of a counting operator their maximum as their shape, if one is known.

    It is stated under the name of the first output, or of the dimension in the shape that the model declares for it;
    where it is not, and the shape is not declared either, it may be what the inputs' shapes allow.
    """
    if proto.op_type not in COUNTING or any(value and value not in state.types for value in proto.input):
        return False
    declared = state.declared.get(proto.output[0])
    dims = declared.tensor_type.shape.dim if declared is not None else ()
    names = [name for name in (proto.output[0], *(dim.dim_param for dim in dims)) if name in state.maxima]
    if names:
        most = state.maxima[names[0]]
    elif state.natural_maxima and not (dims and all(dim.HasField("dim_value") for dim in dims)):
        most = _natural(state, proto, attrs)
    else:
        return False
    if not most:
        return False
    if any(value and value in state.bounds for value in proto.input):
        raise Unsupported("the size of its input depends on data too")
    state.used_maxima.update(names[:1])
    count = state.unique(f"{proto.output[0]}_count")
    state.types[count] = TensorType(DType.INT32, ())
    for value, kind, axis in _outputs(state, proto, attrs, most):
        check_size(kind, "its output")
        state.types[value] = kind
        if axis is not None:
            state.bounds[value] = Bound(axis, count)
    return True


def gather_of_compress(state: Importer, proto: onnx.NodeProto, attrs: Mapping[str, Any]) -> onnx.NodeProto | None:
    """Return the Gather that a Compress with a constant condition is, whose size does not depend on data; None: not so.

    Raises:
        Unsupported: the condition is no list, or longer than the axis.
    """
    if proto.op_type != "Compress" or proto.input[1] not in state.constants or proto.input[0] not in state.types:
        return None
    condition = state.constants[proto.input[1]]
    kind, axis = state.types[proto.input[0]], attrs.get("axis")
    size = kind.count if axis is None else kind.shape[axis]
    if condition.ndim != 1 or condition.size > size:
        raise Unsupported(f"its condition has shape {list(condition.shape)}; it chooses among {size} elements")
    data = proto.input[0]
    if axis is None:
        data = state.unique(f"{proto.output[0]}/flat")
        shape = state.constant(f"{proto.output[0]}/shape", np.array([-1], np.int64))
        state.run(helper.make_node("Reshape", [proto.input[0], shape], [data], name=proto.name), {"": 21})
    chosen = state.constant(f"{proto.output[0]}/chosen", np.flatnonzero(condition).astype(np.int64))
    return helper.make_node("Gather", [data, chosen], proto.output, name=proto.name, axis=axis or 0)


def _natural(state: Importer, proto: onnx.NodeProto, attrs: Mapping[str, Any]) -> int:
    """Return how many elements there can be at most, whatever the data."""
    kinds = [state.types[name] for name in proto.input if name]  # the first two are always there
    if proto.op_type == "NonMaxSuppression":
        (batches, classes, boxes), limit = kinds[1].shape, state.constants.get([*proto.input, ""][2])
        return batches * classes * (boxes if limit is None else min(max(int(limit.item()), 0), boxes))
    axis = attrs.get("axis", -1 if proto.op_type == "TopK" else None)
    most = kinds[0].count if proto.op_type == "NonZero" or axis is None else kinds[0].shape[axis]
    return min(most, kinds[1].count) if proto.op_type == "Compress" else most


def _outputs(
    state: Importer, proto: onnx.NodeProto, attrs: Mapping[str, Any], most: int
) -> list[tuple[str, TensorType, int | None]]:
    kind = state.types[proto.input[0]]
    rank = len(kind.shape)
    if proto.op_type == "NonZero":
        return [(proto.output[0], TensorType(DType.INT64, (rank, most)), 1)]
    if proto.op_type == "NonMaxSuppression":
        return [(proto.output[0], TensorType(DType.INT64, (most, 3)), 0)]
    dim = attrs.get("axis", -1 if proto.op_type == "TopK" else None)
    flat: tuple[int, ...]
    if dim is None:
        flat, dim = (most,), 0
    else:
        dim %= rank
        most = min(most, kind.shape[dim]) if proto.op_type == "TopK" else most
        flat = (*kind.shape[:dim], most, *kind.shape[dim + 1 :])
    first = TensorType(kind.dtype, flat)
    rows = TensorType(DType.INT64, (most,))
    whole = TensorType(DType.INT64, (kind.count if "axis" not in attrs else kind.shape[dim],))
    every: list[tuple[TensorType, int | None]] = [(first, dim)]
    if proto.op_type == "TopK":
        every.append((TensorType(DType.INT64, flat), dim))
    if proto.op_type == "Unique":
        every += [(rows, 0), (whole, None), (rows, 0)]
    return [(name, *pair) for name, pair in zip(proto.output, every, strict=False) if name]
