"""Constant indices and lengths held against the dimensions that they are of.

Indices that come with the data are clamped when the model runs; one that the model itself has is a fault of the
model, an error to ONNX and to onnxruntime.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from onnx import NodeProto
from onnx.defs import OpSchema

from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.ir import TensorType
from mtool.compiler.ir.types import Array


@dataclass(frozen=True, slots=True)
class Range:
    """The range of values that an input of a node may have; `low` and `high` are broadcast to it.

    size: of the dimensions that it is of, for messages.
    """

    index: int
    low: Array
    high: Array
    size: Array


Shape = tuple[int, ...]
Rule = Callable[[Sequence[Shape], Mapping[str, Any]], Range]


def range_of_wrong_indices(
    proto: NodeProto, attrs: Mapping[str, Any], types: Mapping[str, TensorType], constants: Mapping[str, Array]
) -> Range | None:
    """Return what a node's constant indices have to be, if one is not; None: all are, or they are no constants."""
    rule = _RULES.get(proto.op_type)
    if rule is None or any(name and name not in types for name in proto.input):
        return None
    shapes = [types[name].shape if name else () for name in proto.input]
    try:
        allowed = rule(shapes, attrs)
    except (IndexError, ValueError):  # the shapes do not go together, which is told elsewhere
        return None
    if allowed.index >= len(proto.input) or proto.input[allowed.index] not in constants:
        return None
    try:
        inside = _is_inside(constants[proto.input[allowed.index]], allowed)
    except ValueError:
        return None
    return None if inside.all() else allowed


def check_indices(
    proto: NodeProto,
    schema: OpSchema,
    attrs: Mapping[str, Any],
    types: Mapping[str, TensorType],
    constants: Mapping[str, Array],
) -> None:
    """Check a node's constant indices or lengths against the dimensions that they are of.

    Raises:
        Unsupported: one lies outside.
    """
    allowed = range_of_wrong_indices(proto, attrs, types, constants)
    if allowed is None:
        return
    found = constants[proto.input[allowed.index]]
    wrong = np.unravel_index(np.argmin(_is_inside(found, allowed)), found.shape)
    low, high, size = (np.broadcast_to(each, found.shape)[wrong] for each in (allowed.low, allowed.high, allowed.size))
    name = schema.inputs[allowed.index].name
    raise Unsupported(f"its {name} hold {found[wrong]} for a dimension of {size}; expected {low} to {high}")


def clamp_constant_indices(found: Array, allowed: Range) -> Array:
    """Return indices with those outside made the nearest that are allowed (0 where none is)."""
    return np.asarray(np.clip(found, allowed.low, np.maximum(allowed.high, allowed.low))).astype(found.dtype)


def _is_inside(found: Array, allowed: Range) -> Array:
    return np.asarray((allowed.low <= found) & (found <= allowed.high))


def _of(index: int, size: Any, *, from_end: bool = True) -> Range:
    """Return the range of an index into dimensions of a size; `from_end`: it may be negative."""
    sizes = np.asarray(size, np.int64)
    return Range(index, -sizes if from_end else np.zeros_like(sizes), sizes - 1, sizes)


def _length(index: int, size: int) -> Range:
    return Range(index, np.array(0), np.array(size), np.array(size))


def _along(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Range:
    return _of(1, shapes[0][attrs.get("axis", 0)])


def _tuples(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Range:
    """GatherND, ScatterND: the last dimension of the indices has one for each of the data's first dimensions."""
    first = attrs.get("batch_dims", 0)
    return _of(1, shapes[0][first : first + shapes[1][-1]])


def _rows(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Range:
    """TensorScatter: where an update begins; in a ring, anywhere."""
    axis = attrs.get("axis", -2)
    if attrs.get("mode") == "circular":
        raise ValueError
    return _length(2, shapes[0][axis] - shapes[1][axis])


def _unpooled(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Range:
    """MaxUnpool: indices in the flat result, unless another size is wanted of that."""
    if len(shapes) > 2:
        raise ValueError
    kernel = attrs["kernel_shape"]
    strides, pads = attrs.get("strides", (1,) * len(kernel)), attrs.get("pads", (0,) * 2 * len(kernel))
    ends = zip(shapes[0][2:], strides, kernel, pads[: len(kernel)], pads[len(kernel) :], strict=True)
    made = [(size - 1) * stride + width - before - after for size, stride, width, before, after in ends]
    return _of(1, prod(shapes[0][:2]) * prod(made), from_end=False)


def _steps(shapes: Sequence[Shape], attrs: Mapping[str, Any]) -> Range:
    return _length(4, shapes[0][1 if attrs.get("layout") else 0])


_RULES: dict[str, Rule] = {
    **dict.fromkeys(["Gather", "GatherElements", "ScatterElements", "Scatter"], _along),
    **dict.fromkeys(["GatherND", "ScatterND"], _tuples),
    **dict.fromkeys(["RNN", "GRU", "LSTM"], _steps),
    "MaxUnpool": _unpooled,
    "ReverseSequence": lambda shapes, attrs: _length(1, shapes[0][attrs.get("time_axis", 0)]),
    "RoiAlign": lambda shapes, attrs: _of(2, shapes[0][0], from_end=False),
    "TensorScatter": _rows,
}
