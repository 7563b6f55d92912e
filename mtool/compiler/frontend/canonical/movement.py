"""Canonical forms of what moves elements and computes none: views, slices, gathers, shapes."""

from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from mtool.compiler.frontend.canonical.forms import Attrs, Canonical, first_input, unchanged, vector, with_axis
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.operators.creation import EyeLike, Fill, Trilu
from mtool.compiler.operators.indexing import Blocks, GatherND, ReverseSequence, TensorScatter
from mtool.compiler.operators.lowering import AlongAxis
from mtool.compiler.operators.movement import Pad, Permutation, Slice
from mtool.compiler.operators.ordering import Compress, Unique
from mtool.compiler.operators.scatter import ScatterElements, ScatterND


def _view(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Reshape, Flatten, Squeeze, Unsqueeze, Identity, Dropout at inference."""
    before, after = state.types[proto.input[0]], state.types[proto.output[0]]
    if before.count != after.count:  # inference does not look, and a declared shape may say anything
        raise Unsupported(f"its input is {before} and its output {after}; expected as many elements")
    state.emit("Reshape", origin, [proto.input[0]], [proto.output[0]])
    if len(proto.output) > 1 and proto.output[1]:  # Dropout's mask: all is kept; before 12 onnxruntime fills in zeros
        mask = state.types[proto.output[1]]
        state.budget.afford("constants", mask.bytes, f"{proto.op_type} {origin}")
        state.add_constant(proto.output[1], np.full(mask.shape, version >= 12, mask.dtype.numpy))


def _slice(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    shape = state.types[proto.input[0]].shape
    starts = vector(state, proto, attrs, "starts", 1) or ()
    axes = vector(state, proto, attrs, "axes", 3) or tuple(range(len(starts)))
    steps = vector(state, proto, attrs, "steps", 4) or (1,) * len(starts)
    first, stride = [0] * len(shape), [1] * len(shape)
    for start, dim, step in zip(starts, axes, steps, strict=True):
        dim %= len(shape)
        size = shape[dim]
        start += size if start < 0 else 0
        first[dim] = min(max(start, 0), size if step > 0 else size - 1)
        far = max(size, 2**15)  # any further leads out: there is one element
        stride[dim] = min(max(step, -far), far)
    state.emit("Slice", origin, [proto.input[0]], [proto.output[0]], Slice(first=tuple(first), stride=tuple(stride)))


def _split(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Split: a slice for each output."""
    shape = state.types[proto.input[0]].shape
    axis = attrs.get("axis", 0) % len(shape)
    start = 0
    for output in proto.output:
        if not output:
            continue
        first = tuple(start if dim == axis else 0 for dim in range(len(shape)))
        state.emit("Slice", origin, [proto.input[0]], [output], Slice(first=first, stride=(1,) * len(shape)))
        start += state.types[output].shape[axis]


def _pad(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    mode = attrs.get("mode", "constant")
    kind = state.types[proto.input[0]]
    inputs = [proto.input[0]]
    value: Any = attrs.get("value", 0.0)
    if len(proto.input) > 2 and proto.input[2]:
        known = state.constants.get(proto.input[2])
        if known is None:
            inputs.append(proto.input[2])
        else:
            value = known.item()
    pads = vector(state, proto, attrs, "pads", 1) or ()
    axes = vector(state, proto, {}, "axes", 3) or tuple(range(len(kind.shape)))
    if len(pads) != 2 * len(axes):
        raise Unsupported(f"it has {len(pads)} pads for {len(axes)} axes")
    before = [0] * len(kind.shape)
    for dim, amount in zip(axes, pads[: len(axes)], strict=True):
        before[dim % len(kind.shape)] = amount
    tables = sum(size for size, old in zip(state.types[proto.output[0]].shape, kind.shape, strict=True) if size != old)
    state.budget.spend("constants", 4 * tables, f"Pad {origin}")  # where each element comes from
    state.emit("Pad", origin, inputs, [proto.output[0]], Pad(mode=mode, before=tuple(before), value=value))


def _transpose(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    rank = len(state.types[proto.input[0]].shape)
    perm = tuple(attrs.get("perm") or reversed(range(rank)))
    state.emit("Transpose", origin, [proto.input[0]], [proto.output[0]], Permutation(perm=perm))


def _concat(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    rank = len(state.types[proto.output[0]].shape)
    axis = attrs.get("axis", 1) % rank
    inputs = [name for name in proto.input if state.types[name].count]
    if not inputs:
        inputs = [proto.input[0]]
    state.emit("Concat", origin, inputs, [proto.output[0]], AlongAxis(axis=axis))


def _gather(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    rank = len(state.types[proto.input[0]].shape)
    state.emit("Gather", origin, list(proto.input), [proto.output[0]], AlongAxis(axis=attrs.get("axis", 0) % rank))


def _shape(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    shape = state.types[proto.input[0]].shape
    part = shape[slice(attrs.get("start", 0), attrs.get("end"))]
    state.add_constant(proto.output[0], np.asarray(part, np.int64))


def _size(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    state.add_constant(proto.output[0], np.asarray(state.types[proto.input[0]].count, np.int64))


def _constant_of_shape(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    value = numpy_helper.to_array(attrs["value"]).item() if "value" in attrs else 0
    state.emit("Fill", origin, [], [proto.output[0]], Fill(value=value))


def _one_hot(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    rank = len(state.types[proto.output[0]].shape)
    state.emit("OneHot", origin, list(proto.input), [proto.output[0]], AlongAxis(axis=attrs.get("axis", -1) % rank))


def _eye_like(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """EyeLike: a diagonal that lies outside is one as far outside as the matrix is large."""
    rows, columns = state.types[proto.input[0]].shape
    made = EyeLike(k=min(max(attrs.get("k", 0), -rows), columns))
    state.emit("EyeLike", origin, list(proto.input), list(proto.output), made)


def _optional_axis(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Compress, Unique: without an axis the input is flat."""
    axis = attrs["axis"] % len(state.types[proto.input[0]].shape) if "axis" in attrs else None
    told = Compress(axis=axis)
    if proto.op_type == "Unique":
        told = Unique(axis=axis, sorted=bool(attrs.get("sorted", 1)))
    state.emit(proto.op_type, origin, list(proto.input), list(proto.output), told)


MOVEMENT: dict[str, Canonical] = {
    **dict.fromkeys(["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"], _view),
    "Slice": _slice,
    "Split": _split,
    "Pad": _pad,
    "Transpose": _transpose,
    "Concat": _concat,
    "Gather": _gather,
    "Expand": first_input("Expand"),
    "Tile": first_input("Tile"),
    "Shape": _shape,
    "Size": _size,
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye_like,
    "Trilu": unchanged(Trilu),
    **dict.fromkeys(["Compress", "Unique"], _optional_axis),
    **dict.fromkeys(["ScatterElements", "Scatter"], with_axis(ScatterElements, 0)),
    "ScatterND": unchanged(ScatterND),
    "TensorScatter": with_axis(TensorScatter, -2),
    "OneHot": _one_hot,
    "GatherElements": with_axis(AlongAxis, 0),
    "GatherND": unchanged(GatherND),
    "DepthToSpace": unchanged(Blocks),
    "SpaceToDepth": unchanged(Blocks),
    "ReverseSequence": unchanged(ReverseSequence),
}
