"""Canonical forms: what ten years of opsets spell in many ways, the rest of mtool sees in one.

Each function takes a node as it stands in the file and emits the canonical one: axes, pads, shapes
and bounds as plain attributes, never negative; views of all kinds as `Reshape` of one input.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

from mtool.ir import TensorType

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
    state.emit(proto.op_type, origin, list(proto.input), list(proto.output), {**window, "group": attrs.get("group", 1)})


def _conv_transpose(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """ConvTranspose: the padding that its output shape implies, split as the operator's text says."""
    spatial, result = state.types[proto.input[0]].shape[2:], state.types[proto.output[0]].shape[2:]
    kernel = state.types[proto.input[1]].shape[2:]
    rank = len(kernel)
    strides, dilations = attrs.get("strides") or (1,) * rank, attrs.get("dilations") or (1,) * rank
    extra, mode = attrs.get("output_padding") or (0,) * rank, attrs.get("auto_pad", "NOTSET")
    before = list((attrs.get("pads") or (0,) * 2 * rank)[:rank])
    if mode in ("SAME_UPPER", "SAME_LOWER") or "output_shape" in attrs:
        for i in range(rank):
            span = (kernel[i] - 1) * dilations[i] + 1
            total = max(strides[i] * (spatial[i] - 1) + extra[i] + span - result[i], 0)
            before[i] = total // 2 if mode == "SAME_UPPER" else total - total // 2
    window = {"kernel": kernel, "strides": tuple(strides), "dilations": tuple(dilations), "pads": tuple(before)}
    group = attrs.get("group", 1)
    state.emit("ConvTranspose", origin, list(proto.input), list(proto.output), {**window, "group": group})


def _col2im(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    kernel = tuple(int(size) for size in state.value_of(proto.input[2], "block_shape"))
    rank = len(kernel)
    window = {
        "kernel": kernel,
        "strides": attrs.get("strides") or (1,) * rank,
        "dilations": attrs.get("dilations") or (1,) * rank,
        "pads": attrs.get("pads") or (0,) * 2 * rank,
    }
    state.emit("Col2Im", origin, [proto.input[0]], list(proto.output), window)


def _pool(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    spatial = state.types[proto.input[0]].shape[2:]
    attrs_p = attrs.get("p", 2)
    if proto.op_type.startswith("Global"):
        attrs = {"kernel_shape": spatial}
    window = _window(state, proto, attrs, tuple(attrs["kernel_shape"]))
    kind = "max" if "Max" in proto.op_type else "lp" if "Lp" in proto.op_type else "average"
    given = attrs.get("pads", (0,) * 2 * len(spatial))
    rank = len(spatial)
    count_pads = bool(attrs.get("count_include_pad")) and attrs.get("auto_pad", "NOTSET") == "NOTSET"
    # With count_include_pad, only the declared padding counts, not what ceil_mode adds.
    limits = tuple(spatial[i] + given[rank + i] for i in range(rank)) if count_pads else spatial
    made = {**window, "kind": kind, "count_pads": count_pads, "limits": limits, "p": attrs_p}
    if len(proto.output) > 1 and proto.output[1]:
        made["column_major"] = bool(attrs.get("storage_order"))
        state.emit("MaxPoolIndices", origin, [proto.input[0]], list(proto.output), made)
        return
    state.emit("Pool", origin, [proto.input[0]], [proto.output[0]], made)


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
        value = state.value_of(proto.input[place], key)
        return tuple(int(number) for number in np.atleast_1d(value))
    return None


def _reduce(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    rank = len(state.types[proto.input[0]].shape)
    axes = _vector(state, proto, attrs, "axes", 1)
    if not axes and attrs.get("noop_with_empty_axes"):
        state.emit("Reshape", origin, [proto.input[0]], [proto.output[0]], {})
        return
    chosen = tuple(sorted({a % rank for a in axes})) if axes else tuple(range(rank))
    keep = bool(attrs.get("keepdims", 1))
    state.emit(proto.op_type, origin, [proto.input[0]], [proto.output[0]], {"axes": chosen, "keepdims": keep})


def _slice(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    shape = state.types[proto.input[0]].shape
    starts = _vector(state, proto, attrs, "starts", 1) or ()
    axes = _vector(state, proto, attrs, "axes", 3) or tuple(range(len(starts)))
    steps = _vector(state, proto, attrs, "steps", 4) or (1,) * len(starts)
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
        value = state.value_of(proto.input[2], "constant_value").item()
    pads = _vector(state, proto, attrs, "pads", 1) or ()
    axes = _vector(state, proto, {}, "axes", 3) or tuple(range(len(kind.shape)))
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


def _shape(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    shape = state.types[proto.input[0]].shape
    part = shape[slice(attrs.get("start", 0), attrs.get("end"))]
    state.add_constant(proto.output[0], np.asarray(part, np.int64))


def _size(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    state.add_constant(proto.output[0], np.asarray(state.types[proto.input[0]].count, np.int64))


def _constant_of_shape(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    value = numpy_helper.to_array(attrs["value"]).item() if "value" in attrs else 0
    state.emit("Fill", origin, [], [proto.output[0]], {"value": value})


def _binary(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Before opset 7 a second operand is broadcast only if told, and from `axis` on."""
    inputs = list(proto.input)
    left, right = (state.types[name] for name in inputs[:2])
    start = attrs.get("axis")
    if version < 7 and len(right.shape) < len(left.shape) and (start is not None or proto.op_type == "PRelu"):
        start = 1 if start is None else start % len(left.shape)
        padded = (*right.shape, *[1] * (len(left.shape) - start - len(right.shape)))
        inputs[1] = state.unique(f"{origin}/aligned")
        state.types[inputs[1]] = TensorType(right.dtype, padded)
        state.emit("Reshape", origin, [proto.input[1]], [inputs[1]], {})
    kept = {key: value for key, value in attrs.items() if key in ("fmod", "direction")}
    state.emit(proto.op_type, origin, inputs, list(proto.output), kept)


def _with_axis(default: int | None, **fixed: Any) -> Canonical:
    """An operator whose `axis` is brought to 0 … rank - 1; `fixed` are the
    attributes that are kept, with their defaults."""

    def canonical(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
        made = {key: attrs.get(key, value) for key, value in fixed.items()}
        if default is not None:
            made["axis"] = attrs.get("axis", default) % max(len(state.types[proto.input[0]].shape), 1)
        state.emit(proto.op_type, origin, list(proto.input), list(proto.output), made)

    return canonical


def _hardmax(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Hardmax: before opset 13 it flattens to two dimensions at `axis` (default 1)."""
    kind = state.types[proto.input[0]]
    rank = len(kind.shape)
    axis = attrs.get("axis", -1 if version >= 13 else 1) % rank
    if version >= 13 or axis == rank - 1:
        state.emit("Hardmax", origin, [proto.input[0]], [proto.output[0]], {"axis": axis})
        return
    flat = (int(np.prod(kind.shape[:axis])), int(np.prod(kind.shape[axis:])))
    before, after = state.unique(f"{origin}/flat"), state.unique(f"{origin}/hardmax")
    for name in (before, after):
        state.types[name] = TensorType(kind.dtype, flat)
    state.emit("Reshape", origin, [proto.input[0]], [before], {})
    state.emit("Hardmax", origin, [before], [after], {"axis": 1})
    state.emit("Reshape", origin, [after], [proto.output[0]], {})


def _one_hot(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    rank = len(state.types[proto.output[0]].shape)
    state.emit("OneHot", origin, list(proto.input), [proto.output[0]], {"axis": attrs.get("axis", -1) % rank})


def _first_input(op: str) -> Canonical:
    """An operator whose further inputs only say its output's shape."""

    def canonical(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
        state.emit(op, origin, [proto.input[0]], [proto.output[0]], {})

    return canonical


def _computed(*roles: str) -> Canonical:
    """An operator that is computed here, once all its inputs are known."""

    def canonical(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
        for name, role in zip(proto.input, roles, strict=False):
            state.value_of(name, role)

    return canonical


CANONICAL: dict[str, Canonical] = {
    **dict.fromkeys(["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"], _view),
    "Clip": _clip,
    **dict.fromkeys(["Conv", "ConvInteger"], _conv),
    "ConvTranspose": _conv_transpose,
    "Col2Im": _col2im,
    **dict.fromkeys(["MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"], _pool),
    **dict.fromkeys(["Softmax", "LogSoftmax"], _softmax),
    **dict.fromkeys(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"], _reduce),
    **dict.fromkeys(["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"], _reduce),
    "Slice": _slice,
    "Split": _split,
    "Pad": _pad,
    "Transpose": _transpose,
    "Concat": _concat,
    "BatchNormalization": _batch_norm,
    "Gather": _gather,
    "Expand": _first_input("Expand"),
    "Tile": _first_input("Tile"),
    "Shape": _shape,
    "Size": _size,
    "ConstantOfShape": _constant_of_shape,
    **dict.fromkeys(["Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "PRelu", "Mod", "BitShift"], _binary),
    **dict.fromkeys(["Less", "Greater", "Equal"], _binary),
    "Cast": _with_axis(None),
    "CastLike": _with_axis(None),
    "BitCast": _with_axis(None),
    "EyeLike": _with_axis(None, k=0),
    "Trilu": _with_axis(None, upper=1),
    "OneHot": _one_hot,
    "Hardmax": _hardmax,
    "LRN": _with_axis(None, alpha=1e-4, beta=0.75, bias=1.0, size=1),
    "LpNormalization": _with_axis(-1, p=2),
    "InstanceNormalization": _with_axis(None, epsilon=1e-5),
    "GatherElements": _with_axis(0),
    "GatherND": _with_axis(None, batch_dims=0),
    "DepthToSpace": _with_axis(None, blocksize=1, mode="DCR"),
    "SpaceToDepth": _with_axis(None, blocksize=1),
    "ReverseSequence": _with_axis(None, time_axis=0, batch_axis=1),
    "MelWeightMatrix": _computed("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"),
}
