"""SVDF: a filter bank in the features, whose results of the last calls a second filter sums over time.

Sources: tensorflow/lite/kernels/internal/reference/svdf.h; TFLite Micro's svdf_common.cc for states of 8 bits, which
LiteRT does not have. The activation function of integers is their output's range.
"""

import numpy as np
import onnx

from mtool.compiler.frontend.problems import OWN, Unsupported
from mtool.compiler.frontend.tflite import kernels
from mtool.compiler.frontend.tflite.fixed_point import multipliers
from mtool.compiler.frontend.tflite.recurrence import State, finish, real_activation
from mtool.compiler.frontend.tflite.rescaling import centred_of, clamped, rescale_to, unscaled, widened
from mtool.compiler.frontend.tflite.translation import Translation


def _svdf(t: Translation) -> None:
    images, count = t.shape(0, 2)
    filters, width = t.shape(1, 2)
    rank, memory = int(t.op.option("Rank")), t.shape(2, 2)[1]
    if rank < 1 or filters % rank or width != count or t.shape(2)[0] != filters or not memory:
        raise Unsupported(f"its weights {list(t.shape(1))} and {list(t.shape(2))} do not fit together")
    integer = t.tensor(0).is_quantised
    kinds = (t.tensor(2).dtype.name,) if integer else ("float32",)
    state = State(t, 4, (images, memory * filters), kinds)
    if t.at_once and integer:
        inputs = [t.stored(0), state.name, t.stored(1), t.stored(2), t.stored(3) if t.has(3) else ""]
        made, kept = t.several("IntegerSvdf", inputs, 2, domain=OWN, rank=rank)
        state.put(kept)
        finish(t, made, (images, filters // rank))
        return
    old = t.node("Reshape", [state.name, t.whole("shape", (images, filters, memory))])
    kept = t.node("Slice", [old, t.whole("start", [1]), t.whole("end", [memory]), t.whole("axes", [2])])
    latest = _integer_features(t, state) if integer else _features(t)
    latest = t.node("Reshape", [latest, t.whole("shape", (images, filters, 1))])
    seen = t.node("Concat", [kept, latest], axis=2)
    state.put(t.node("Reshape", [seen, t.whole("shape", (images, memory * filters))]))
    made = _integer_result(t, state, seen, rank) if integer else _result(t, seen, rank)
    finish(t, made, (images, filters // rank))


def _features(t: Translation) -> str:
    name = kernels.weights(t, 1, lambda data: data, 0)
    return t.node("Gemm", [t.real(0), name], transB=1)


def _result(t: Translation, seen: str, rank: int) -> str:
    """Sum over time, over the filters of a unit, and add the bias."""
    images, (filters, memory) = t.shape(0)[0], t.shape(2)
    units = filters // rank
    data = t.known(2, "weights over time")
    weights = t.constant("time", data, np.float32)
    if t.tensor(2).is_quantised:
        name = t.constant("time", data)
        weights = t.dequantise(name, data.dtype, t.tensor(2).scale, t.tensor(2).zero_point, 0)
    grouped = t.node("Reshape", [t.node("Mul", [seen, weights]), t.whole("shape", (images, units, rank * memory))])
    total = t.node("ReduceSum", [grouped, t.whole("axes", [2])], keepdims=0)
    if t.has(3):
        total = t.node("Add", [total, t.constant("bias", t.known(3, "bias"), np.float32)])
    return real_activation(t, total)


def _integer_features(t: Translation, state: State) -> str:
    x, w, kept = t.tensor(0), t.tensor(1), state.tensor
    data = t.known(1, "weights")
    if x.dtype != np.int8 or data.dtype != np.int8 or w.scale.size != 1 or w.zero_point.any() or kept.scale.size != 1:
        raise Unsupported(f"its input is {x.dtype}, its weights are {data.dtype} with {w.scale.size} scales")
    weights = t.dequantise(t.constant("weights", data), data.dtype, np.ones(1, np.float32), np.zeros(1, np.int64))
    sums = t.node("Gemm", [unscaled(t, t.stored(0), x), weights], transB=1)
    factor = float(x.scale[0] * w.scale[0] / kept.scale[0])  # of float32
    if not kept.zero:
        return rescale_to(t, sums, *multipliers(np.asarray([factor])), kept.dtype)
    bounds = np.iinfo(kept.dtype)  # the result is clamped before the zero point is added, which may wrap around
    wide = rescale_to(t, sums, *multipliers(np.asarray([factor])), np.dtype(np.int32))
    inside = clamped(t, wide, int(bounds.min), int(bounds.max))
    moved = t.node("Add", [inside, t.constant("zero_point", kept.zero, np.int32)])
    return t.node("Cast", [moved], to=onnx.helper.np_dtype_to_tensor_dtype(kept.dtype))


def _integer_result(t: Translation, state: State, seen: str, rank: int) -> str:
    images, (filters, memory) = t.shape(0)[0], t.shape(2)
    units = filters // rank
    w, out = t.tensor(2), t.result()
    data = t.known(2, "weights over time")
    if out.dtype != np.int8 or out.scale.size != 1 or w.scale.size != 1 or w.zero_point.any():
        raise Unsupported(f"its output is {out.dtype}, its weights over time are {w.dtype} with {w.scale.size} scales")
    terms = t.node("Mul", [centred_of(t, seen, state.tensor), widened(t, t.constant("time", data))])
    grouped = t.node("Reshape", [terms, t.whole("shape", (images, units, rank * memory))])
    total = t.node("ReduceSum", [grouped, t.whole("axes", [2])], keepdims=0)
    if t.has(3):
        total = t.node("Add", [total, t.constant("bias", t.known(3, "bias"), np.int32)])
    factor = float(state.tensor.scale[0] * w.scale[0] / out.scale[0])  # of float32
    return rescale_to(t, total, *multipliers(np.asarray([factor])), out.dtype, out.zero)


TRANSLATIONS = {"SVDF": _svdf}
