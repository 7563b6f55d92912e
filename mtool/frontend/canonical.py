"""Canonical forms: what ten years of opsets spell in many ways, the rest of mtool sees in one.

Each function takes a node as it stands in the file and emits the canonical one: axes, pads, shapes
and bounds as plain attributes, never negative; views of all kinds as `Reshape` of one input.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import numpy_helper

from mtool.frontend.canonical_windows import WINDOWS, Attrs, Canonical
from mtool.frontend.problems import Unsupported
from mtool.ir import TensorType

if TYPE_CHECKING:
    from mtool.frontend.importer import Importer


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
    inputs = [proto.input[0]]
    value: Any = attrs.get("value", 0.0)
    if len(proto.input) > 2 and proto.input[2]:
        known = state.constants.get(proto.input[2])
        if known is None:
            inputs.append(proto.input[2])
        else:
            value = known.item()
    pads = _vector(state, proto, attrs, "pads", 1) or ()
    axes = _vector(state, proto, {}, "axes", 3) or tuple(range(len(kind.shape)))
    if len(pads) != 2 * len(axes):
        raise Unsupported(f"it has {len(pads)} pads for {len(axes)} axes")
    before = [0] * len(kind.shape)
    for place, amount in zip(axes, pads[: len(axes)], strict=True):
        before[place % len(kind.shape)] = amount
    state.emit("Pad", origin, inputs, [proto.output[0]], {"mode": mode, "before": tuple(before), "value": value})


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
    x = state.types[proto.input[0]].shape
    if len(x) < 2 or any(state.types[value].shape != x[1:2] for value in proto.input[1:5]):
        raise Unsupported("its scale, bias, mean and variance do not have a number for each channel")
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


def _cast_like(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """CastLike: of a constant it is one too, whatever the value whose type it takes."""
    source, output = proto.input[0], proto.output[0]
    if source in state.constants:
        dtype, data = state.types[output].dtype, state.constants[source]
        if attrs.get("saturate", 1) and dtype.is_float and dtype.size == 1:
            data = np.clip(data, -dtype.largest, dtype.largest)
        state.add_constant(output, data.astype(dtype.numpy))
        return
    state.emit("CastLike", origin, [source], [output], {"saturate": attrs.get("saturate", 1)})


def _arg(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    rank = len(state.types[proto.input[0]].shape)
    made = {"axes": (attrs.get("axis", 0) % max(rank, 1),), "keepdims": bool(attrs.get("keepdims", 1))}
    made["last"] = bool(attrs.get("select_last_index"))
    state.emit(proto.op_type, origin, [proto.input[0]], [proto.output[0]], made)


def _running(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """CumSum, CumProd: the axis is an input."""
    axis = int(state.value_of(proto.input[1], "axis").item()) % len(state.types[proto.input[0]].shape)
    made = {"axis": axis, "exclusive": bool(attrs.get("exclusive")), "reverse": bool(attrs.get("reverse"))}
    state.emit(proto.op_type, origin, [proto.input[0]], [proto.output[0]], made)


def _optional_axis(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Compress, Unique: without an axis the input is flat."""
    made: dict[str, Any] = {"axis": None, "sorted": bool(attrs.get("sorted", 1))}
    if "axis" in attrs:
        made["axis"] = attrs["axis"] % len(state.types[proto.input[0]].shape)
    state.emit(proto.op_type, origin, list(proto.input), list(proto.output), made)


def recurrent(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """RNN, GRU, LSTM: an activation is its name, alpha and beta."""
    gates = {"RNN": 1, "GRU": 2, "LSTM": 3}[proto.op_type]
    default = ("Tanh",) if gates == 1 else ("Sigmoid", "Tanh", "Tanh")[:gates]
    directions = state.types[proto.input[1]].shape[0]
    names = [name.decode() for name in attrs.get("activations") or ()] or list(default) * directions
    alphas, betas = list(attrs.get("activation_alpha") or ()), list(attrs.get("activation_beta") or ())
    functions = []
    for name in names:
        alpha, beta = ACTIVATIONS.get(name.lower(), (None, None))
        alpha = alphas.pop(0) if alpha is not None and alphas else alpha
        beta = betas.pop(0) if beta is not None and betas else beta
        functions.append((name.lower(), alpha, beta))
    made = {
        "functions": tuple(functions), "clip": attrs.get("clip"), "batch_first": bool(attrs.get("layout")),
        "direction": attrs.get("direction", "forward"), "input_forget": bool(attrs.get("input_forget")),
        "linear_before_reset": bool(attrs.get("linear_before_reset")),
    }  # fmt: skip
    made |= {key: attrs[key] for key in ("weights", "dynamic_state") if key in attrs}  # of DynamicQuantizeLSTM
    state.emit(proto.op_type, origin, list(proto.input), list(proto.output), made)


ACTIVATIONS: dict[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0), "leakyrelu": (0.01, None), "thresholdedrelu": (1.0, None), "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5), "elu": (1.0, None),
}  # fmt: skip
"""Default alpha and beta of the activations that have them."""


def _dft(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    shape = state.types[proto.input[0]].shape
    inverse, onesided = bool(attrs.get("inverse")), bool(attrs.get("onesided"))
    axis = attrs.get("axis", 1 if version < 20 else -2)
    if len(proto.input) > 2 and proto.input[2]:
        axis = int(state.value_of(proto.input[2], "axis").item())
    axis %= len(shape)
    length = 2 * (shape[axis] - 1) if inverse and onesided else shape[axis]
    if len(proto.input) > 1 and proto.input[1]:
        length = int(state.value_of(proto.input[1], "dft_length").item())
    made = {"axis": axis, "length": length, "inverse": inverse, "onesided": onesided}
    state.emit("DFT", origin, [proto.input[0]], [proto.output[0]], made)


def _stft(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    signal, step, window, length = [*proto.input, "", ""][:4]
    size = int(state.value_of(length, "frame_length").item()) if length else state.types[window].shape[0]
    made = {"step": int(state.value_of(step, "frame_step").item()), "length": size}
    kind = state.types[proto.output[0]]
    bins = size // 2 + 1 if attrs.get("onesided", 1) else size
    state.types[proto.output[0]] = TensorType(kind.dtype, (*kind.shape[:2], bins, 2))
    state.emit("STFT", origin, [signal, window], [proto.output[0]], made)


def _roi_align(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    if not attrs.get("sampling_ratio"):
        raise Unsupported("a sampling_ratio of 0, as many samples as the box is large, is not supported")
    half = attrs.get("coordinate_transformation_mode", "half_pixel" if version >= 16 else "output_half_pixel")
    made = {
        "sampling_ratio": attrs["sampling_ratio"], "spatial_scale": attrs.get("spatial_scale", 1.0),
        "mode": attrs.get("mode", "avg"), "half_pixel": half == "half_pixel",
    }  # fmt: skip
    state.emit("RoiAlign", origin, list(proto.input), [proto.output[0]], made)


def _tf_idf(state: "Importer", proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    if "pool_strings" in attrs:
        raise Unsupported("strings are not supported")
    state.emit("TfIdfVectorizer", origin, list(proto.input), list(proto.output), attrs)


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
    **WINDOWS,
    **dict.fromkeys(["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout"], _view),
    "Clip": _clip,
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
    "Cast": _with_axis(None, saturate=1),
    "CastLike": _cast_like,
    "BitCast": _with_axis(None),
    "EyeLike": _with_axis(None, k=0),
    "Trilu": _with_axis(None, upper=1),
    **dict.fromkeys(["ArgMax", "ArgMin"], _arg),
    **dict.fromkeys(["CumSum", "CumProd"], _running),
    **dict.fromkeys(["Compress", "Unique"], _optional_axis),
    **dict.fromkeys(["RNN", "GRU", "LSTM"], recurrent),
    **dict.fromkeys(["ScatterElements", "Scatter"], _with_axis(0, reduction="none")),
    "ScatterND": _with_axis(None, reduction="none"),
    "TensorScatter": _with_axis(-2, mode="linear"),
    "TfIdfVectorizer": _tf_idf,
    "RoiAlign": _roi_align,
    "GridSample": _with_axis(None, mode="linear", padding_mode="zeros", align_corners=0),
    "NonMaxSuppression": _with_axis(None, center_point_box=0),
    "DFT": _dft,
    "STFT": _stft,
    "TopK": _with_axis(-1, largest=1),
    "OneHot": _one_hot,
    "Hardmax": _hardmax,
    "LRN": _with_axis(None, alpha=1e-4, beta=0.75, bias=1.0, size=1),
    "LpNormalization": _with_axis(-1, p=2),
    "InstanceNormalization": _with_axis(None, epsilon=1e-5),
    "GatherElements": _with_axis(0),
    "GatherND": _with_axis(None, batch_dims=0),
    "DepthToSpace": _with_axis(None, blocksize=1, mode="DCR"),
    "SpaceToDepth": _with_axis(None, blocksize=1, mode="DCR"),
    "ReverseSequence": _with_axis(None, time_axis=0, batch_axis=1),
    "MelWeightMatrix": _computed("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"),
}
