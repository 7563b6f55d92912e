"""Canonical forms: what ten years of opsets spell in many ways, the rest of mtool sees in one.

Each function takes a node as it stands in the file and emits the canonical one: axes, pads, shapes
and bounds as plain attributes, never negative; views of all kinds as `Reshape` of one input.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

if TYPE_CHECKING:
    from mtool.frontend.importer import Importer

Attrs = Mapping[str, Any]
Canonical = Callable[["Importer", onnx.NodeProto, str, Attrs, int], None]


def _view(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Reshape, Flatten, Squeeze, Unsqueeze, Identity, Dropout at inference."""
    state.emit("Reshape", origin, [proto.input[0]], [proto.output[0]], {})
    if len(proto.output) > 1 and proto.output[1]:  # Dropout's mask is all true
        state.add_constant(proto.output[1], np.ones(state.types[proto.input[0]].shape, bool))


def _clip(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Clip: opset 6 has its bounds as attributes, opset 11 as inputs."""
    inputs = [*proto.input, "", ""][:3]
    dtype = state.types[proto.input[0]].dtype.numpy
    for place, key in ((1, "min"), (2, "max")):
        if key in attrs:
            inputs[place] = state.constant(f"{origin}/{key}", np.asarray(attrs[key], dtype))
    state.emit("Clip", origin, inputs, [proto.output[0]], {})


def _window(state: "Importer", proto: onnx.NodeProto, attrs: Attrs, kernel: tuple[int, ...]) -> dict[str, Any]:
    """Return explicit strides, dilations and pads of a convolution or pool, auto_pad and ceil_mode resolved."""
    spatial = state.types[proto.input[0]].shape[2:]
    result = state.types[proto.output[0]].shape[2:]
    rank = len(kernel)
    strides = attrs.get("strides") or (1,) * rank
    dilations = attrs.get("dilations") or (1,) * rank
    begin, end = [], []
    for i in range(rank):
        span = (kernel[i] - 1) * dilations[i] + 1
        missing = max((result[i] - 1) * strides[i] + span - spatial[i], 0)
        mode = attrs.get("auto_pad", "NOTSET")
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            before = missing // 2 if mode == "SAME_UPPER" else missing - missing // 2
        elif mode == "VALID":
            before = 0
        else:
            before = attrs.get("pads", (0,) * 2 * rank)[i]
        begin.append(before)
        end.append(max(missing - before, 0))  # what the output really reaches, ceil_mode included
    return {"kernel": tuple(kernel), "strides": tuple(strides), "dilations": tuple(dilations), "pads": (*begin, *end)}


def _conv(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    window = _window(state, proto, attrs, state.types[proto.input[1]].shape[2:])
    if len(window["kernel"]) > 2:
        state.fail("Conv", origin, f"{len(window['kernel'])} spatial dimensions; 1 and 2 are supported")
        return
    state.emit("Conv", origin, list(proto.input), list(proto.output), {**window, "group": attrs.get("group", 1)})


def _pool(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    if len(proto.output) > 1 and proto.output[1]:
        state.fail(proto.op_type, origin, "its Indices output is not supported")
        return
    spatial = state.types[proto.input[0]].shape[2:]
    if proto.op_type.startswith("Global"):
        attrs = {"kernel_shape": spatial}
    window = _window(state, proto, attrs, tuple(attrs["kernel_shape"]))
    if len(window["kernel"]) > 2:
        state.fail(proto.op_type, origin, f"{len(window['kernel'])} spatial dimensions; 1 and 2 are supported")
        return
    kind = "max" if "Max" in proto.op_type else "average"
    given = attrs.get("pads", (0,) * 2 * len(spatial))
    rank = len(spatial)
    count_pads = bool(attrs.get("count_include_pad")) and attrs.get("auto_pad", "NOTSET") == "NOTSET"
    # With count_include_pad, only the declared padding counts, not what ceil_mode adds.
    limits = tuple(spatial[i] + given[rank + i] for i in range(rank)) if count_pads else spatial
    state.emit(
        "Pool",
        origin,
        [proto.input[0]],
        [proto.output[0]],
        {**window, "kind": kind, "count_pads": count_pads, "limits": limits},
    )


def _softmax(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Softmax, LogSoftmax: before opset 13 they flatten to two dimensions at `axis` (default 1)."""
    kind = state.types[proto.input[0]]
    rank = len(kind.shape)
    log = proto.op_type == "LogSoftmax"
    if version >= 13:
        axis = attrs.get("axis", -1) % rank if rank else 0
        state.emit("Softmax", origin, [proto.input[0]], [proto.output[0]], {"axis": axis, "log": log})
        return
    axis = attrs.get("axis", 1)
    axis += rank if axis < 0 else 0
    flat = (int(np.prod(kind.shape[:axis])), int(np.prod(kind.shape[axis:])))
    before, after = state.unique(f"{origin}/flat"), state.unique(f"{origin}/softmax")
    for name in (before, after):
        state.types[name] = type(kind)(kind.dtype, flat)
    state.emit("Reshape", origin, [proto.input[0]], [before], {})
    state.emit("Softmax", origin, [before], [after], {"axis": 1, "log": log})
    state.emit("Reshape", origin, [after], [proto.output[0]], {})


def _vector(state: "Importer", proto: onnx.NodeProto, attrs: Attrs, key: str, place: int) -> tuple[int, ...] | None:
    """Return a list that is an attribute in old opsets and a constant input in new ones; None: not given."""
    if key in attrs:
        return tuple(attrs[key])
    if len(proto.input) > place and proto.input[place]:
        value = state.constants.get(proto.input[place])
        if value is None:
            raise KeyError(f"{key} is not a constant")
        return tuple(int(number) for number in np.atleast_1d(value))
    return None


def _reduce(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    rank = len(state.types[proto.input[0]].shape)
    try:
        axes = _vector(state, proto, attrs, "axes", 1)
    except KeyError as problem:
        state.fail(proto.op_type, origin, str(problem.args[0]))
        return
    if not axes and attrs.get("noop_with_empty_axes"):
        state.emit("Reshape", origin, [proto.input[0]], [proto.output[0]], {})
        return
    chosen = tuple(sorted({a % rank for a in axes})) if axes else tuple(range(rank))
    keep = bool(attrs.get("keepdims", 1))
    state.emit(proto.op_type, origin, [proto.input[0]], [proto.output[0]], {"axes": chosen, "keepdims": keep})


def _slice(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    shape = state.types[proto.input[0]].shape
    try:
        starts = _vector(state, proto, attrs, "starts", 1) or ()
        axes = _vector(state, proto, attrs, "axes", 3) or tuple(range(len(starts)))
        steps = _vector(state, proto, attrs, "steps", 4) or (1,) * len(starts)
    except KeyError as problem:
        state.fail("Slice", origin, str(problem.args[0]))
        return
    first, stride = [0] * len(shape), [1] * len(shape)
    for start, place, step in zip(starts, axes, steps, strict=True):
        place %= len(shape)
        size = shape[place]
        start += size if start < 0 else 0
        first[place] = min(max(start, 0), size if step > 0 else size - 1)
        stride[place] = step
    state.emit("Slice", origin, [proto.input[0]], [proto.output[0]], {"first": tuple(first), "stride": tuple(stride)})


def _pad(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    mode = attrs.get("mode", "constant")
    kind = state.types[proto.input[0]]
    value: Any = attrs.get("value", 0.0)
    if len(proto.input) > 2 and proto.input[2]:
        if proto.input[2] not in state.constants:
            state.fail("Pad", origin, "constant_value is not a constant")
            return
        value = state.constants[proto.input[2]].item()
    try:
        pads = _vector(state, proto, attrs, "pads", 1) or ()
        axes = _vector(state, proto, {}, "axes", 3) or tuple(range(len(kind.shape)))
    except KeyError as problem:
        state.fail("Pad", origin, str(problem.args[0]))
        return
    before = [0] * len(kind.shape)
    for place, amount in zip(axes, pads[: len(axes)], strict=True):
        before[place % len(kind.shape)] = amount
    state.emit(
        "Pad", origin, [proto.input[0]], [proto.output[0]], {"mode": mode, "before": tuple(before), "value": value}
    )


def _transpose(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    rank = len(state.types[proto.input[0]].shape)
    perm = tuple(attrs.get("perm") or reversed(range(rank)))
    state.emit("Transpose", origin, [proto.input[0]], [proto.output[0]], {"perm": perm})


def _concat(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    rank = len(state.types[proto.output[0]].shape)
    axis = attrs.get("axis", 1) % rank
    inputs = [name for name in proto.input if state.types[name].count]
    if not inputs:
        inputs = [proto.input[0]]
    state.emit("Concat", origin, inputs, [proto.output[0]], {"axis": axis})


def _split(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Split: a slice for each output."""
    shape = state.types[proto.input[0]].shape
    axis = attrs.get("axis", 0) % len(shape)
    start = 0
    for output in proto.output:
        if not output:
            continue
        first = tuple(start if place == axis else 0 for place in range(len(shape)))
        state.emit("Slice", origin, [proto.input[0]], [output], {"first": first, "stride": (1,) * len(shape)})
        start += state.types[output].shape[axis]


def _batch_norm(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    if attrs.get("training_mode") or any(proto.output[1:]):
        state.fail("BatchNormalization", origin, "training mode is not supported")
        return
    state.emit(
        "BatchNormalization",
        origin,
        list(proto.input),
        [proto.output[0]],
        {"epsilon": attrs.get("epsilon", 1e-5)},
    )


def _gather(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    rank = len(state.types[proto.input[0]].shape)
    state.emit("Gather", origin, list(proto.input), [proto.output[0]], {"axis": attrs.get("axis", 0) % rank})


def _first_input(op: str) -> Canonical:
    """An operator whose further inputs only say its output's shape."""

    def canonical(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
        state.emit(op, origin, [proto.input[0]], [proto.output[0]], {})

    return canonical


CANONICAL: dict[str, Canonical] = {
    **dict.fromkeys(["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"], _view),
    "Clip": _clip,
    "Conv": _conv,
    **dict.fromkeys(["MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"], _pool),
    **dict.fromkeys(["Softmax", "LogSoftmax"], _softmax),
    **dict.fromkeys(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"], _reduce),
    "Slice": _slice,
    "Split": _split,
    "Pad": _pad,
    "Transpose": _transpose,
    "Concat": _concat,
    "BatchNormalization": _batch_norm,
    "Gather": _gather,
    "Expand": _first_input("Expand"),
}
