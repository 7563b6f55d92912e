"""Pools and reductions in the integer arithmetic of TFLite's reference kernels."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.compiler.frontend.problems import OWN, Unsupported
from mtool.compiler.frontend.tflite.elementwise import axes_of
from mtool.compiler.frontend.tflite.fixed_point import limits, multipliers
from mtool.compiler.frontend.tflite.images import window
from mtool.compiler.frontend.tflite.rescaling import (
    centred,
    clamped,
    eight_bits,
    rescale,
    rescale_by,
    unscaled,
    widened,
)
from mtool.compiler.frontend.tflite.translation import NCHW_OF_NHWC, NHWC_OF_NCHW, Translation
from mtool.compiler.ir.types import Array

Translate = Callable[[Translation], None]


def _average_pool(t: Translation) -> None:
    """AVERAGE_POOL_2D: the sum of the integers inside, divided with ties away from zero."""
    eight_bits(t, 0, wide=True)
    kernel, strides, pads = window(t)
    if not t.same_grid(0):
        raise Unsupported("its input and output stand on different grids")
    count, channels = int(np.prod(kernel)), t.shape(0)[3]
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    if any(pads) or t.result().dtype == np.int16:
        image = t.node("Transpose", [unscaled(t, t.stored(0), t.tensor(0), point=0)], perm=NCHW_OF_NHWC)
        t.afford(channels * count)
        ones = t.constant("ones", np.ones((channels, 1, *kernel), np.int8))
        filters = t.dequantise(ones, np.dtype(np.int8), np.ones(1, np.float32), np.zeros(1, np.int64))
        sums = t.node("Conv", [image, filters], group=channels, **attrs)
        divisor = t.constant("count", _inside(t, kernel, strides, pads) if any(pads) else count, np.int32)
    else:
        image = t.node("Transpose", [unscaled(t, t.stored(0), t.tensor(0), float(count), 0)], perm=NCHW_OF_NHWC)
        sums = t.node("AveragePool", [image], **attrs)
        divisor = t.constant("count", count, np.int32)
    sums = t.node("Transpose", [sums], perm=NHWC_OF_NCHW)
    low, high = limits(t.result(), t.op.option("FusedActivationFunction"))
    to = helper.np_dtype_to_tensor_dtype(t.result().dtype)
    t.put(t.node("RoundedMean", [sums, divisor], domain=OWN, low=low, high=max(low, high), to=to))


def _max_pool(t: Translation) -> None:
    """MAX_POOL_2D: of the integers themselves, kept inside of the activation's limits."""
    kernel, strides, pads = window(t)
    if not t.same_grid(0):
        raise Unsupported("its input and output stand on different grids")
    kind, activation = t.result().dtype, t.op.option("FusedActivationFunction")
    value = t.node("Transpose", [t.stored(0)], perm=NCHW_OF_NHWC)
    if kind == np.int16:  # which MaxPool does not have; float32 has its numbers
        value = t.node("Cast", [value], to=onnx.TensorProto.FLOAT)
    value = t.node("MaxPool", [value], kernel_shape=kernel, strides=strides, pads=pads)
    value, to = t.node("Transpose", [value], perm=NHWC_OF_NCHW), helper.np_dtype_to_tensor_dtype(kind)
    if activation:
        low, high = limits(t.result(), activation)
        value = clamped(t, widened(t, value), low, max(low, high))
    t.put(t.node("Cast", [value], to=to) if activation or kind == np.int16 else value)


def _inside(t: Translation, kernel: tuple[int, int], strides: tuple[int, int], pads: list[int]) -> Array:
    """Return how many elements of the window lie inside the image, [1, height, width, 1] of the output."""
    counts = []
    image = t.shape(0)[1:3]
    made = [(n + a + b - k) // s + 1 for n, a, b, k, s in zip(image, pads, pads[2:], kernel, strides, strict=False)]
    t.afford(8 * int(np.prod(made)))
    for axis, size in enumerate(image):
        first = np.arange(made[axis]) * strides[axis] - pads[axis]
        counts.append(np.minimum(first + kernel[axis], size) - np.maximum(first, 0))
    inside: Array = np.maximum(np.outer(*counts), 1)[None, :, :, None]
    return inside


def _total(t: Translation) -> tuple[str, int]:
    """Return the sums of a reduction's integers less their zero point, and of how many."""
    eight_bits(t, 0, wide=True)
    axes, shape = axes_of(t), t.shape(0)
    count = int(np.prod([shape[axis] for axis in axes]))
    most = 2**15 if t.tensor(0).dtype == np.int16 else 255
    if count * most >= 2**31:
        raise Unsupported(f"sums of {count:,} numbers may leave 32 bits")
    keep = int(bool(t.op.option("KeepDims")))
    return t.node("ReduceSum", [centred(t, 0), t.whole("axes", axes)], keepdims=keep, noop_with_empty_axes=1), count


def _mean(t: Translation) -> None:
    """MEAN: the division is part of the multiplier."""
    sums, count = _total(t)
    if not count:
        raise Unsupported("its mean is one of no numbers")
    by, shift = multipliers(np.asarray([float(t.tensor(0).scale[0]) / float(t.result().scale[0])]))
    exponent = -1 - int(shift[0])
    more = min(count.bit_length() - 1, 32, 31 + exponent)
    multiplier, shift = (
        np.asarray([(int(by[0]) << more) // count], np.int32),
        np.asarray([more - 1 - exponent], np.int8),
    )
    t.put(rescale_by(t, sums, multiplier, shift, t.result()))


def _reduced_sum(t: Translation) -> None:
    """SUM, as TFLite Micro has it, and LiteRT but for int8 and int16 in its reference kernel, which reads uint8."""
    sums, _ = _total(t)
    scale = float(t.tensor(0).scale[0]) / float(t.result().scale[0])
    t.put(rescale(t, sums, np.asarray([scale]), t.result()))


TRANSLATIONS: dict[str, Translate] = {
    "AVERAGE_POOL_2D": _average_pool,
    "MAX_POOL_2D": _max_pool,
    "MEAN": _mean,
    "SUM": _reduced_sum,
}
