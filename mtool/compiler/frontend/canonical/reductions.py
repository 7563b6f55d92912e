"""Canonical forms of what looks along axes: reductions, running sums, normalisations."""

import numpy as np
import onnx

from mtool.compiler.frontend.canonical.forms import Attrs, Canonical, attributes_of, unchanged, vector, with_axis
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.ir import TensorType
from mtool.compiler.operators.lowering import AlongAxis, Epsilon
from mtool.compiler.operators.normalize import LRN, LpNormalization, Softmax
from mtool.compiler.operators.ordering import Running, TopK
from mtool.compiler.operators.reduce import ArgAxes, Axes
from mtool.compiler.operators.standardize import GroupNormalization, LayerNormalization, MeanVariance

_PLAIN = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")  # those of one element are that element


def _reduce(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    rank = len(state.types[proto.input[0]].shape)
    axes = vector(state, proto, attrs, "axes", 1)
    over_none = not axes and bool(attrs.get("noop_with_empty_axes"))
    if over_none and proto.op_type in _PLAIN:
        state.emit("Reshape", origin, [proto.input[0]], [proto.output[0]])
        return
    chosen = tuple(sorted({a % rank for a in axes})) if axes else () if over_none else tuple(range(rank))
    keep = bool(attrs.get("keepdims", 1))
    state.emit(proto.op_type, origin, [proto.input[0]], [proto.output[0]], Axes(axes=chosen, keepdims=keep))


def _arg(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    rank = len(state.types[proto.input[0]].shape)
    if not rank:
        state.add_constant(proto.output[0], np.zeros((), np.int64))
        return
    axes, last = (attrs.get("axis", 0) % rank,), bool(attrs.get("select_last_index"))
    made = ArgAxes(axes=axes, keepdims=bool(attrs.get("keepdims", 1)), last=last)
    state.emit(proto.op_type, origin, [proto.input[0]], [proto.output[0]], made)


def _running(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """CumSum, CumProd: the axis is an input."""
    axis, rank = int(state.value_of(proto.input[1], "axis").item()), len(state.types[proto.input[0]].shape)
    if not -rank <= axis < rank:
        raise Unsupported(f"its axis is {axis}; its input has {rank} dimensions")
    made = Running(axis=axis % rank, exclusive=bool(attrs.get("exclusive")), reverse=bool(attrs.get("reverse")))
    state.emit(proto.op_type, origin, [proto.input[0]], [proto.output[0]], made)


def _softmax(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Softmax, LogSoftmax: before opset 13 they flatten to two dimensions at `axis` (default 1)."""
    rank = len(state.types[proto.input[0]].shape)
    log = proto.op_type == "LogSoftmax"
    if version >= 13:
        axis = attrs.get("axis", -1) % rank if rank else 0
        state.emit("Softmax", origin, [proto.input[0]], [proto.output[0]], Softmax(axis=axis, log=log))
        return
    axis = attrs.get("axis", 1)
    _flattened(state, proto, origin, "Softmax", axis + rank if axis < 0 else axis, Softmax(axis=1, log=log))


def _hardmax(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """Hardmax: before opset 13 it flattens to two dimensions at `axis` (default 1)."""
    rank = len(state.types[proto.input[0]].shape)
    axis = attrs.get("axis", -1 if version >= 13 else 1) % rank
    if version >= 13 or axis == rank - 1:
        state.emit("Hardmax", origin, [proto.input[0]], [proto.output[0]], AlongAxis(axis=axis))
        return
    _flattened(state, proto, origin, "Hardmax", axis, AlongAxis(axis=1))


def _flattened(state: Importer, proto: onnx.NodeProto, origin: str, op: str, axis: int, told: AlongAxis) -> None:
    """Emit `op` along the second of two dimensions, those before `axis` and those from it on."""
    kind = state.types[proto.input[0]]
    flat = (int(np.prod(kind.shape[:axis])), int(np.prod(kind.shape[axis:])))
    before, after = state.unique(f"{origin}/flat"), state.unique(f"{origin}/{op.lower()}")
    for name in (before, after):
        state.types[name] = TensorType(kind.dtype, flat)
    state.emit("Reshape", origin, [proto.input[0]], [before])
    state.emit(op, origin, [before], [after], told)
    state.emit("Reshape", origin, [after], [proto.output[0]])


def _batch_norm(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
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
        attributes_of(Epsilon, attrs),
    )


def _group_norm(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """GroupNormalization: groups of channels, and scales and biases for all of them, or for all channels."""
    shape, groups = state.types[proto.input[0]].shape, attrs["num_groups"]
    if len(shape) < 2 or groups < 1 or shape[1] % groups:
        raise Unsupported(f"{groups} groups do not fit its input {state.types[proto.input[0]]}")
    sizes = [state.types[value].shape for value in proto.input[1:3]]
    if sizes not in ([(groups,)] * 2, [shape[1:2]] * 2):
        raise Unsupported("its scale and bias do not have a number for each channel or group")
    made = attributes_of(GroupNormalization, attrs)
    state.emit("GroupNormalization", origin, list(proto.input), [proto.output[0]], made)


def _mean_variance(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """MeanVarianceNormalization: what onnx adds to the deviation is tiny, and it adds it outside of the root."""
    rank, stated = len(state.types[proto.input[0]].shape), attrs.get("axes", (0, 2, 3))
    if not all(-rank <= dim < rank for dim in stated):
        raise Unsupported(f"its axes are {list(stated)}; its input has {rank} dimensions")
    axes = tuple(sorted({dim % rank for dim in stated}))
    state.emit(proto.op_type, origin, [proto.input[0]], [proto.output[0]], MeanVariance(axes=axes, epsilon=1e-9))


def _lrn(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    """LRN: it looks at as many channels as there are at most, those further away count as 0."""
    shape, size = state.types[proto.input[0]].shape, attrs["size"]
    if len(shape) < 2 or size < 1:
        raise Unsupported(f"a size of {size} does not fit its input {state.types[proto.input[0]]}")
    before, behind = (min(reach, shape[1]) for reach in ((size - 1) // 2, size // 2))
    made = LRN(
        alpha=attrs.get("alpha", 1e-4) / size, beta=attrs.get("beta", 0.75), bias=attrs.get("bias", 1.0),
        before=before, size=before + 1 + behind,
    )  # fmt: skip
    state.emit("LRN", origin, list(proto.input), list(proto.output), made)


def _lp_normalization(state: Importer, proto: onnx.NodeProto, origin: str, attrs: Attrs, version: int) -> None:
    kind, p = state.types[proto.input[0]], attrs.get("p", 2)
    if p not in (1, 2) or not kind.shape:
        raise Unsupported(f"a norm of p = {p} of its input {kind} is not supported")
    made = LpNormalization(axis=attrs.get("axis", -1) % len(kind.shape), p=p)
    state.emit("LpNormalization", origin, list(proto.input), list(proto.output), made)


REDUCTIONS: dict[str, Canonical] = {
    **dict.fromkeys(["Softmax", "LogSoftmax"], _softmax),
    **dict.fromkeys(_PLAIN, _reduce),
    **dict.fromkeys(["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"], _reduce),
    "BatchNormalization": _batch_norm,
    **dict.fromkeys(["ArgMax", "ArgMin"], _arg),
    **dict.fromkeys(["CumSum", "CumProd"], _running),
    "TopK": with_axis(TopK, -1),
    "Hardmax": _hardmax,
    "LRN": _lrn,
    "LpNormalization": _lp_normalization,
    "InstanceNormalization": unchanged(Epsilon),
    "LayerNormalization": with_axis(LayerNormalization, -1),
    "GroupNormalization": _group_norm,
    "MeanVarianceNormalization": _mean_variance,
}
