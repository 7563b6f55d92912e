"""Sums of products in the integer arithmetic of TFLite's reference kernels: convolutions, dense layers, matrices.

They are a convolution of integers with a scale of 1, whose results are whole numbers, and a Rescale. Requantisation
rounds twice, as gemmlowp does, but for FULLY_CONNECTED, whose sums are multiplied by a float64 and rounded once.
"""

import math
from collections.abc import Callable

import numpy as np
import onnx

from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.tflite import kernels
from mtool.compiler.frontend.tflite.fixed_point import limits
from mtool.compiler.frontend.tflite.rescaling import (
    EIGHT_BITS,
    eight_bits,
    rescale,
    rescale_by,
    rescale_long,
    rescale_real,
    unscaled,
)
from mtool.compiler.frontend.tflite.single_rounding import single_rounding
from mtool.compiler.frontend.tflite.translation import NCHW_OF_NHWC, NHWC_OF_NCHW, Translation
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.threshold_multipliers import Reach
from mtool.compiler.operators.conv_transpose import Phases

Translate = Callable[[Translation], None]


def _unscaled_weights(t: Translation, index: int, arranged: Callable[[Array], Array], axis: int) -> str:
    data, tensor = arranged(t.known(index, "weights")), t.tensor(index)
    if data.dtype not in EIGHT_BITS or not tensor.is_quantised:
        raise Unsupported(f"its weights are {data.dtype}")
    name, points = t.constant("weights", data), tensor.zero_point
    if np.unique(points).size == 1:
        return t.dequantise(name, data.dtype, np.ones(1, np.float32), points[:1])
    return t.dequantise(name, data.dtype, np.ones(points.size, np.float32), points, axis)


def _unscaled_bias(t: Translation, index: int, channels: int, phases: int = 1) -> list[str]:
    """Return the bias, for each phase of a transposed convolution once more; nothing: there is none."""
    if not t.has(index):
        return []
    data = t.known(index, "bias").reshape(-1)
    wide = data.dtype == np.int64 and t.result().dtype == np.int16
    if not (data.dtype == np.int32 or wide) or data.size != channels:
        raise Unsupported(f"its bias is {data.dtype}[{data.size}]")
    if np.abs(data.astype(np.int64)).max(initial=0) >= 2**31:
        raise Unsupported("its bias has more than 32 bits")
    name = t.constant("bias", np.tile(data, phases), np.int32)
    return [t.dequantise(name, np.dtype(np.int32), np.ones(1, np.float32), np.zeros(1, np.int64))]


def _rescale_sums(t: Translation, sums: str, scales: Array, bias: int = 2) -> str:
    """Scale the sums of a convolution; those of int16 have 64 bits, unless their bias has 32."""
    narrow = t.has(bias) and t.tensor(bias).dtype == np.int32
    if t.result().dtype != np.int16 or narrow:
        return rescale(t, sums, scales, t.result(), axis=3)
    return rescale_long(t, sums, scales, t.result(), axis=3, activation=t.op.option("FusedActivationFunction"))


def _scales(t: Translation, x: int, w: int) -> Array:
    """Return what a step of the sums is, in steps of the output; for uint8 the scales are multiplied as float32."""
    if t.tensor(x).dtype == np.uint8:
        return (t.tensor(x).scale * t.tensor(w).scale).astype(np.float64) / float(t.result().scale[0])
    return t.tensor(x).scale.astype(np.float64) * t.tensor(w).scale.astype(np.float64) / float(t.result().scale[0])


def _conv(depthwise: bool) -> Translate:
    def translate(t: Translation) -> None:
        eight_bits(t, 0, wide=True)
        size, shape = t.shape(0, 4), t.shape(1, 4)
        if depthwise:
            filters = _unscaled_weights(t, 1, lambda data: data.transpose(3, 0, 1, 2), 0)
            channels, group = shape[3], size[3]
        else:
            filters = _unscaled_weights(t, 1, lambda data: data.transpose(0, 3, 1, 2), 0)
            channels, group = shape[0], size[3] // max(shape[3], 1)
        strides, dilated = kernels.pair(t, "Stride"), kernels.dilations(t)
        reach = tuple((k - 1) * d + 1 for k, d in zip(shape[1:3], dilated, strict=True))
        image = t.node("Transpose", [unscaled(t, t.stored(0), t.tensor(0))], perm=NCHW_OF_NHWC)
        sums = t.node(
            "Conv",
            [image, filters, *_unscaled_bias(t, 2, channels)],
            kernel_shape=shape[1:3],
            strides=strides,
            dilations=dilated,
            pads=kernels.padding(t.op.option("Padding"), size[1:3], reach, strides),
            group=group,
        )
        sums = t.node("Transpose", [sums], perm=NHWC_OF_NCHW)
        t.put(_rescale_sums(t, sums, _scales(t, 0, 1)))

    return translate


def _transpose_conv(t: Translation) -> None:
    """TRANSPOSE_CONV: a convolution with the phases of the stride as channels, which are interleaved once scaled."""
    eight_bits(t, 2, wide=True)
    attrs, size, outputs = kernels.spread(t), t.shape(2, 4), t.shape(1, 4)[0]
    kernel, (before_h, before_w) = t.shape(1, 4)[1:3], attrs["pads"][:2]
    made = t.numbers(0, "the output's shape")[1:3]
    phases = Phases(
        (kernel[0], kernel[1]), (attrs["strides"][0], attrs["strides"][1]), (before_h, before_w),
        (size[1], size[2]), (made[0], made[1]),
    )  # fmt: skip
    filters = _unscaled_weights(t, 1, lambda data: _in_phases(t, phases, data), 0)
    count = math.prod(phases.stride)
    top, left, bottom, right = phases.pads
    image = unscaled(t, t.stored(2), t.tensor(2))
    if min(bottom, right) < 0:  # the last inputs meet no output
        ends = size[1] + min(bottom, 0), size[2] + min(right, 0)
        names = t.whole("starts", (0, 0)), t.whole("ends", ends), t.whole("axes", (1, 2))
        image = t.node("Slice", [image, *names])
    sums = t.node(
        "Conv",
        [t.node("Transpose", [image], perm=NCHW_OF_NHWC), filters, *_unscaled_bias(t, 3, outputs, count)],
        kernel_shape=phases.taps,
        pads=[top, left, max(bottom, 0), max(right, 0)],
    )
    sums, scales = t.node("Transpose", [sums], perm=NHWC_OF_NCHW), _scales(t, 2, 1)
    scales = np.tile(scales, count) if scales.size > 1 else scales
    _interleave(t, phases, _rescale_sums(t, sums, scales, bias=3))


def _in_phases(t: Translation, phases: Phases, weights: Array) -> Array:
    """Return weights [O, KH, KW, C] as those of the phases, OIHW; a tap that is not there is their zero point."""
    points = np.unique(t.tensor(1).zero_point)
    if points.size != 1:
        raise Unsupported(f"its weights have {points.size} zero points")
    t.afford(2 * math.prod((*phases.taps, *phases.stride)) * weights.shape[0] * weights.shape[3])
    centred = weights.astype(np.int16) - points[0]
    made: Array = phases.filters(centred.transpose(3, 0, 1, 2)).transpose(0, 3, 1, 2) + points[0]
    return made.astype(weights.dtype)


def _interleave(t: Translation, phases: Phases, made: str) -> None:
    """Make the output of [N, QH, QW, SH * SW * O], without what lies in its padding."""
    batch, height, width, channels = t.numbers(0, "the output's shape")
    apart = t.node("Reshape", [made, t.whole("apart", (batch, *phases.quotients, *phases.stride, channels))])
    turned = t.node("Transpose", [apart], perm=[0, 1, 3, 2, 4, 5])
    whole = [count * stride for count, stride in zip(phases.quotients, phases.stride, strict=True)]
    image = t.node("Reshape", [turned, t.whole("whole", (batch, *whole, channels))])
    if (height, width) != tuple(whole):
        ends = phases.pad[0] + height, phases.pad[1] + width
        names = t.whole("starts", phases.pad), t.whole("ends", ends), t.whole("axes", (1, 2))
        image = t.node("Slice", [image, *names])
    t.put(image)


def _rounding_once(t: Translation, scales: Array) -> tuple[Array, Array] | None:
    """Return multipliers and shifts for the sums of a dense layer of 8 bits, if it has them."""
    x, w, out = t.tensor(0), t.tensor(1), t.result()
    weights = t.known(1, "weights").astype(np.int16) - w.zero_point.reshape(-1, 1)
    bias = t.known(2, "bias").reshape(-1) if t.has(2) else np.zeros(len(weights), np.int64)
    kind = np.iinfo(x.dtype)
    reach = Reach.of(weights, bias, kind.min - x.zero, kind.max - x.zero).of_32_bits
    low, high = (bound - out.zero for bound in limits(out, t.op.option("FusedActivationFunction")))
    return single_rounding(scales, reach.of_all if scales.size == 1 else reach, low, max(low, high))


def _fully_connected(t: Translation) -> None:
    eight_bits(t, 0, wide=True)
    if t.op.option("WeightsFormat"):
        raise Unsupported("its weights are shuffled")
    shape, (channels, depth) = t.shape(0), t.shape(1, 2)
    count = int(np.prod(shape))
    if not depth or count % depth or not shape:
        raise Unsupported(f"its weights are for {depth} inputs, its input is {list(shape)}")
    if t.result().dtype == np.int16 and t.has(2) and t.tensor(2).dtype == np.int32:
        raise Unsupported("its bias has 32 bits, which LiteRT's reference kernel reads as 64; its default one does not")
    flat = t.stored(0)
    if len(shape) != 2 or shape[1] != depth:
        flat = t.node("Reshape", [flat, t.whole("flat", (count // depth, depth))])
    x, w, out = t.tensor(0), t.tensor(1), t.result()
    filters = _unscaled_weights(t, 1, lambda data: data, 0)
    sums = t.node("Gemm", [unscaled(t, flat, x), filters, *_unscaled_bias(t, 2, channels)], transB=1)
    scales, found = x.scale.astype(np.float64) * w.scale.astype(np.float64) / float(out.scale[0]), None
    if x.dtype != np.int16:
        found = _rounding_once(t, scales)
    if found is None:
        made = rescale_real(t, sums, scales, out, axis=1, activation=t.op.option("FusedActivationFunction"))
    else:
        made = rescale_by(t, sums, *found, out, axis=1, twice=False)
    if t.op.option("KeepNumDims") and len(shape) != 2:
        made = t.node("Reshape", [made, t.whole("shape", (*shape[:-1], channels))])
    t.put(made)


def _batch_matmul(t: Translation) -> None:
    """BATCH_MATMUL: of int16 in sums of 64 bits."""
    eight_bits(t, 0, 1, wide=True)
    operands, wide = [], t.tensor(0).dtype == np.int16
    for index, option in ((0, "AdjX"), (1, "AdjY")):
        rank = len(t.shape(index))
        if rank < 2:
            raise Unsupported(f"its input {index} has {rank} dimensions")
        value = t.stored(index)
        value = t.node("Cast", [value], to=onnx.TensorProto.INT64) if wide else unscaled(t, value, t.tensor(index))
        if t.op.option(option):
            value = t.node("Transpose", [value], perm=[*range(rank - 2), rank - 1, rank - 2])
        operands.append(value)
    sums, out = t.node("MatMul", operands), t.result()
    scales = np.asarray([float(t.tensor(0).scale[0] * t.tensor(1).scale[0]) / float(out.scale[0])])
    t.put(rescale_long(t, sums, scales, out) if wide else rescale(t, sums, scales, out))


TRANSLATIONS: dict[str, Translate] = {
    "CONV_2D": _conv(False),
    "DEPTHWISE_CONV_2D": _conv(True),
    "TRANSPOSE_CONV": _transpose_conv,
    "FULLY_CONNECTED": _fully_connected,
    "BATCH_MATMUL": _batch_matmul,
}
