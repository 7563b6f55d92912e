"""Operators in the integer arithmetic of TFLite's reference kernels, for results that are theirs byte for byte.

Sums of products are a convolution of integers with a scale of 1, whose results are whole numbers; what follows is
spelled out in int32 and mtool's own Rescale. Requantisation rounds twice, as gemmlowp does, but for FULLY_CONNECTED.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import tflite
from onnx import helper

from mtool.frontend.problems import OWN, Unsupported
from mtool.frontend.tflite import exact_elements, exact_wide, kernels
from mtool.frontend.tflite.elementwise import beta_of
from mtool.frontend.tflite.fixed_point import exponentials, limits, multipliers, rescaled
from mtool.frontend.tflite.images import window
from mtool.frontend.tflite.rescaling import (
    centred,
    rescale,
    rescale_by,
    rescale_long,
    rescale_real,
    rescale_to,
    unscaled,
)
from mtool.frontend.tflite.translation import NHWC_OF_NCHW, Translation
from mtool.ir.types import Array

Translate = Callable[[Translation], None]

EIGHT_BITS = (np.dtype(np.int8), np.dtype(np.uint8))
SUM_SHIFT = 20  # bits by which the operands of a sum are shifted to the left before they are scaled
WIDE_SUM_SHIFT = 15  # the same of int16
MOST_EXACT = 2**24  # up to which float32 has every whole number


def eight_bits(t: Translation, *operands: int, wide: bool = False) -> None:
    """Check that these inputs and the output are 8-bit integers with one scale; `wide`: or all int16 around 0.

    Raises:
        Unsupported: one is not.
    """
    tensors = [*(t.tensor(number) for number in operands), t.result()]
    if wide and all(tensor.dtype == np.int16 and tensor.scale.size == 1 and not tensor.zero for tensor in tensors):
        return
    for tensor in tensors:
        if tensor.dtype not in EIGHT_BITS or tensor.scale.size != 1:
            raise Unsupported(f"{tensor.name!r} is {tensor.dtype}: --rounding tflite is for 8 bits with one scale")


def table(t: Translation, results: Array) -> None:
    """Make the output one of 256 results, by the value of the input."""
    data = t.constant("table", results, t.result().dtype)
    to = helper.np_dtype_to_tensor_dtype(t.result().dtype)
    t.put(t.node("Table", [t.stored(0), data], domain=OWN, to=to))


def _unscaled_weights(t: Translation, index: int, arranged: Callable[[Array], Array], axis: int) -> str:
    data, tensor = arranged(t.known(index, "weights")), t.tensor(index)
    if data.dtype not in EIGHT_BITS or not tensor.is_quantised:
        raise Unsupported(f"its weights are {data.dtype}")
    name, points = t.constant("weights", data), tensor.zero_point
    if np.unique(points).size == 1:
        return t.dequantise(name, data.dtype, np.ones(1, np.float32), points[:1])
    return t.dequantise(name, data.dtype, np.ones(points.size, np.float32), points, axis)


def _unscaled_bias(t: Translation, index: int, channels: int) -> list[str]:
    if not t.has(index):
        return []
    data = t.known(index, "bias").reshape(-1)
    wide = data.dtype == np.int64 and t.result().dtype == np.int16
    if not (data.dtype == np.int32 or wide) or data.size != channels:
        raise Unsupported(f"its bias is {data.dtype}[{data.size}]")
    if np.abs(data.astype(np.int64)).max(initial=0) >= 2**31:
        raise Unsupported("its bias has more than 32 bits")
    name = t.constant("bias", data, np.int32)
    return [t.dequantise(name, np.dtype(np.int32), np.ones(1, np.float32), np.zeros(1, np.int64))]


def _rescale_sums(t: Translation, sums: str) -> str:
    """Scale the sums of a convolution; those of int16 have 64 bits, unless their bias has 32."""
    scales, narrow = _scales(t, 0, 1), t.has(2) and t.tensor(2).dtype == np.int32
    if t.tensor(0).dtype != np.int16 or narrow:
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
        image = t.node("Transpose", [unscaled(t, t.stored(0), t.tensor(0))], perm=[0, 3, 1, 2])
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
        t.put(_rescale_sums(t, sums))

    return translate


def _transpose_conv(t: Translation) -> None:
    """TRANSPOSE_CONV: its sums are float32 loops, so they have to be small enough to be exact."""
    eight_bits(t, 2)
    attrs: dict[str, Any] = kernels.spread(t)
    filters = _unscaled_weights(t, 1, lambda data: data.transpose(3, 0, 1, 2), 1)
    offsets = _unscaled_bias(t, 3, t.shape(1)[0])
    data = t.known(1, "weights").astype(np.int64) - int(t.tensor(1).zero_point[0])
    most = 255 * int(np.abs(data).sum(axis=(1, 2, 3)).max(initial=0))
    if offsets:
        most += int(np.abs(t.known(3, "bias").astype(np.int64)).max(initial=0))
    if most >= MOST_EXACT:
        raise Unsupported("its sums may be too large to be exact with --rounding tflite")
    image = t.node("Transpose", [unscaled(t, t.stored(2), t.tensor(2))], perm=[0, 3, 1, 2])
    sums = t.node("ConvTranspose", [image, filters, *offsets], **attrs)
    t.put(rescale(t, t.node("Transpose", [sums], perm=NHWC_OF_NCHW), _scales(t, 2, 1), t.result(), axis=3))


def _may_tie(scale: float) -> bool:
    """Whether a sum of 32 bits times a scale may lie in the middle of two whole numbers."""
    return scale.as_integer_ratio()[1] <= 2**32


def _fully_connected(t: Translation) -> None:
    eight_bits(t, 0, wide=True)
    if t.op.option("WeightsFormat"):
        raise Unsupported("its weights are shuffled")
    shape, (channels, depth) = t.shape(0), t.shape(1, 2)
    count = int(np.prod(shape))
    if not depth or count % depth or not shape:
        raise Unsupported(f"its weights are for {depth} inputs, its input is {list(shape)}")
    flat = t.stored(0)
    if len(shape) != 2 or shape[1] != depth:
        flat = t.node("Reshape", [flat, t.whole("flat", (count // depth, depth))])
    x, w, out = t.tensor(0), t.tensor(1), t.result()
    filters = _unscaled_weights(t, 1, lambda data: data, 0)
    sums = t.node("Gemm", [unscaled(t, flat, x), filters, *_unscaled_bias(t, 2, channels)], transB=1)
    if w.scale.size == 1:  # the product of the scales is one of float32 here
        scales = np.asarray([float(x.scale[0] * w.scale[0]) / float(out.scale[0])])
    else:
        scales = _scales(t, 0, 1)
    products = x.scale.astype(np.float64) * w.scale.astype(np.float64) / float(out.scale[0])
    if x.dtype == np.int16 or any(_may_tie(float(product)) for product in products):
        made = rescale_real(t, sums, products, out, axis=1, activation=t.op.option("FusedActivationFunction"))
    else:
        made = rescale(t, sums, scales, out, axis=1, twice=False)
    if t.op.option("KeepNumDims") and len(shape) != 2:
        made = t.node("Reshape", [made, t.whole("shape", (*shape[:-1], channels))])
    t.put(made)


def _sum(kind: str) -> Translate:
    """ADD, SUB: both operands in steps of twice the larger scale, 20 bits to the left, those of int16 15 bits."""

    def translate(t: Translation) -> None:
        eight_bits(t, 0, 1, wide=True)
        left = SUM_SHIFT
        if t.result().dtype == np.int16:
            grids = [float(tensor.scale[0]) for tensor in (t.tensor(0), t.tensor(1), t.result())]
            if t.op.option("PotScaleInt16", True) and all(math.frexp(scale)[0] == 0.5 for scale in grids):
                raise Unsupported("its scales are powers of 2, which LiteRT shifts by")
            left = WIDE_SUM_SHIFT
        scales = [float(t.tensor(index).scale[0]) for index in (0, 1)]
        unit = 2 * max(scales)
        terms = []
        for index, scale in enumerate(scales):
            value, share = centred(t, index), scale / unit
            if share == 0.5:  # of a multiple of 2^20 that is no rounding
                terms.append(t.node("Mul", [value, t.constant("left", 1 << (left - 1), np.int32)]))
                continue
            shifted = t.node("Mul", [value, t.constant("left", 1 << left, np.int32)])
            terms.append(rescale(t, shifted, np.asarray([share])))
        factor = unit / float(np.float32(1 << left) * t.result().scale[0])
        t.put(rescale(t, t.node(kind, terms), np.asarray([factor]), t.result()))

    return translate


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


def _mul(t: Translation) -> None:
    eight_bits(t, 0, 1, wide=True)
    product = t.node("Mul", [centred(t, 0), centred(t, 1)])
    factor = t.tensor(0).scale * t.tensor(1).scale / t.result().scale  # of float32
    t.put(rescale(t, product, factor.astype(np.float64), t.result()))


def _average_pool(t: Translation) -> None:
    """AVERAGE_POOL_2D: the sum of the integers inside, divided with ties away from zero."""
    eight_bits(t, 0)
    kernel, strides, pads = window(t)
    if not t.same_grid(0):
        raise Unsupported("its input and output stand on different grids")
    count, channels = int(np.prod(kernel)), t.shape(0)[3]
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    if any(pads):
        image = t.node("Transpose", [unscaled(t, t.stored(0), t.tensor(0), point=0)], perm=[0, 3, 1, 2])
        t.afford(channels * count)
        ones = t.constant("ones", np.ones((channels, 1, *kernel), np.int8))
        filters = t.dequantise(ones, np.dtype(np.int8), np.ones(1, np.float32), np.zeros(1, np.int64))
        sums = t.node("Conv", [image, filters], group=channels, **attrs)
        divisor = t.constant("count", _inside(t, kernel, strides, pads), np.int32)
    else:
        image = t.node("Transpose", [unscaled(t, t.stored(0), t.tensor(0), float(count), 0)], perm=[0, 3, 1, 2])
        sums = t.node("AveragePool", [image], **attrs)
        divisor = t.constant("count", count, np.int32)
    sums = t.node("Transpose", [sums], perm=NHWC_OF_NCHW)
    low, high = limits(t.result(), t.op.option("FusedActivationFunction"))
    to = helper.np_dtype_to_tensor_dtype(t.result().dtype)
    t.put(t.node("RoundedMean", [sums, divisor], domain=OWN, low=low, high=max(low, high), to=to))


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


def _softmax(t: Translation) -> None:
    """SOFTMAX: gemmlowp's exponentials, of the difference to the largest, and its reciprocal of their sum."""
    x, out = t.tensor(0), t.result()
    if x.dtype not in EIGHT_BITS or x.scale.size != 1 or out.dtype.name not in ("int8", "uint8", "int16"):
        raise Unsupported(f"its input is {x.dtype}, its output {out.dtype}")
    unit = 2.0 ** (-8 * out.dtype.itemsize)
    near = abs(float(out.scale[0]) - unit) <= (1e-3 * unit if out.dtype == np.int16 else 0)
    if not near or int(out.zero_point[0]) != int(np.iinfo(out.dtype).min) or not x.shape:
        raise Unsupported(f"its output does not stand on a grid of 1/{round(1 / unit)} from 0 on")
    powers = t.constant("exponentials", exponentials(beta_of(t) * float(x.scale[0])))
    to = helper.np_dtype_to_tensor_dtype(out.dtype)
    t.put(t.node("FixedSoftmax", [t.stored(0), powers], domain=OWN, to=to))


def _mean(t: Translation) -> None:
    """MEAN: the division is part of the multiplier."""
    eight_bits(t, 0)
    rank = len(t.shape(0))
    axes = sorted({number % rank for number in t.numbers(1, "the axes")}) if rank else []
    count = int(np.prod([t.shape(0)[axis] for axis in axes]))
    sums = t.node("ReduceSum", [centred(t, 0), t.whole("axes", axes)], keepdims=int(bool(t.op.option("KeepDims"))))
    by, shift = multipliers(np.asarray([float(t.tensor(0).scale[0]) / float(t.result().scale[0])]))
    exponent = -1 - int(shift[0])
    more = min(count.bit_length() - 1, 32, 31 + exponent)
    multiplier, shift = (
        np.asarray([(int(by[0]) << more) // count], np.int32),
        np.asarray([more - 1 - exponent], np.int8),
    )
    t.put(rescale_by(t, sums, multiplier, shift, t.result()))


def _by_table(results: Callable[[Translation, Array], Array]) -> Translate:
    """An operator of one 8-bit input: its results for each of the 256, from the integers less their zero point."""

    def translate(t: Translation) -> None:
        eight_bits(t, 0)
        bounds, point = np.iinfo(t.tensor(0).dtype), int(t.tensor(0).zero_point[0])
        table(t, results(t, np.arange(bounds.min, bounds.max + 1, dtype=np.int64) - point))

    return translate


def _narrow_or(wide: Translate, narrow: Translate) -> Translate:
    """An operator that has another form for int16."""

    def translate(t: Translation) -> None:
        (wide if exact_wide.is_wide(t) else narrow)(t)

    return translate


def _ratio(t: Translation) -> float:
    return float(t.tensor(0).scale[0] / t.result().scale[0])  # of float32


def _clamped(t: Translation, steps: Array, activation: int = 0) -> Array:
    low, high = limits(t.result(), activation)
    results: Array = np.clip(steps + int(t.result().zero_point[0]), low, max(low, high))
    return results


def _linear(activation: int) -> Callable[[Translation, Array], Array]:
    return lambda t, x: _clamped(t, rescaled(x, _ratio(t)), activation)


def _wide_relu(t: Translation) -> None:
    """RELU, RELU6, RELU_N1_TO_1 of int16."""
    out = t.result()
    low, high = limits(out, getattr(tflite.ActivationFunctionType, t.op.kind))
    by, shifts = multipliers(np.asarray([_ratio(t)]))
    t.put(rescale_to(t, centred(t, 0), by, shifts, out.dtype, out.zero, (low, high)))


def _wide_leaky_relu(t: Translation) -> None:
    """LEAKY_RELU of int16."""
    x, out = centred(t, 0), t.result()
    slope = float(t.tensor(0).scale[0] * np.float32(t.op.option("Alpha", 0.0)) / out.scale[0])
    above, below = (
        rescale_to(t, x, *multipliers(np.asarray([factor])), out.dtype, out.zero) for factor in (_ratio(t), slope)
    )
    positive = t.node("GreaterOrEqual", [x, t.constant("zero", 0, np.int32)])
    t.put(t.node("Where", [positive, above, below]))


def _leaky_relu(t: Translation, x: Array) -> Array:
    slope = float(t.tensor(0).scale[0] * np.float32(t.op.option("Alpha", 0.0)) / t.result().scale[0])
    return _clamped(t, np.where(x >= 0, rescaled(x, _ratio(t)), rescaled(x, slope)))


def _absolute(t: Translation, x: Array) -> Array:
    return _clamped(t, rescaled(np.abs(x), _ratio(t)))


def _real(function: Callable[[Array], Array]) -> Callable[[Translation, Array], Array]:
    """A function of real numbers, its results rounded with ties away from zero."""

    def results(t: Translation, x: Array) -> Array:
        steps = function(x * np.float64(t.tensor(0).scale[0])) / np.float64(t.result().scale[0])
        return _clamped(t, (np.sign(steps) * np.floor(np.abs(steps) + 0.5)).astype(np.int64))

    return results


TRANSLATIONS: dict[str, Translate] = {
    "CONV_2D": _conv(False),
    "DEPTHWISE_CONV_2D": _conv(True),
    "TRANSPOSE_CONV": _transpose_conv,
    "FULLY_CONNECTED": _fully_connected,
    "BATCH_MATMUL": _batch_matmul,
    "ADD": _sum("Add"),
    "SUB": _sum("Sub"),
    "MUL": _mul,
    "AVERAGE_POOL_2D": _average_pool,
    "SOFTMAX": _narrow_or(exact_wide.softmax, _softmax),
    "MEAN": _mean,
    "QUANTIZE": exact_elements.quantize,
    "HARD_SWISH": _by_table(exact_elements.hard_swish),
    "MAXIMUM": exact_elements.pick("Max"),
    "MINIMUM": exact_elements.pick("Min"),
    "CONCATENATION": exact_elements.concatenation,
    "RESIZE_BILINEAR": exact_elements.resize_bilinear,
    "RELU": _narrow_or(_wide_relu, _by_table(_linear(tflite.ActivationFunctionType.RELU))),
    "RELU6": _narrow_or(_wide_relu, _by_table(_linear(tflite.ActivationFunctionType.RELU6))),
    "RELU_N1_TO_1": _by_table(_linear(tflite.ActivationFunctionType.RELU_N1_TO_1)),
    "LEAKY_RELU": _narrow_or(_wide_leaky_relu, _by_table(_leaky_relu)),
    "ABS": _by_table(_absolute),
    "LOGISTIC": _narrow_or(exact_wide.logistic, _by_table(_real(lambda x: 1 / (1 + np.exp(-x))))),
    "TANH": _narrow_or(exact_wide.tanh, _by_table(_real(np.tanh))),
    "ELU": _by_table(_real(lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x))),
    "EXP": _by_table(_real(np.exp)),
}
"""Operators that are computed in integers if an operand is quantised; others may not round."""
