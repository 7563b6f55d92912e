"""Convolutions and matrix products."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import tflite

from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.frontend.problems import OWN, Unsupported
from mtool.compiler.frontend.tflite.fixed_point import limits, single_rounding
from mtool.compiler.frontend.tflite.rescaling import (
    EIGHT_BITS,
    eight_bits,
    rescale,
    rescale_by,
    rescale_long,
    rescale_real,
    unscaled,
)
from mtool.compiler.frontend.tflite.schema import Operator, Tensor
from mtool.compiler.frontend.tflite.translation import NCHW_OF_NHWC, NHWC_OF_NCHW, Translate, Translation
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.threshold_multipliers import Reach
from mtool.compiler.operators.conv_transpose import Phases


def padding(code: int, size: tuple[int, ...], window: tuple[int, ...], stride: tuple[int, ...]) -> list[int]:
    """Return the pads before each axis, then those behind, as ONNX writes them; `window` is dilated already."""
    if code == tflite.Padding.VALID:
        return [0] * (2 * len(size))
    if code != tflite.Padding.SAME:
        raise Unsupported(f"its padding is number {code}")
    totals = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(size, window, stride, strict=True)]
    return [total // 2 for total in totals] + [total - total // 2 for total in totals]


def pair(t: Translation, stem: str, default: int = 1) -> tuple[int, int]:
    """Return an option that stands for height and width, such as StrideH and StrideW.

    Raises:
        Unsupported: one is below 1.
    """
    height, width = (t.op.option(f"{stem}{axis}", default) for axis in ("H", "W"))
    if min(height, width) < 1:
        raise Unsupported(f"its {stem.lower()} is {height} x {width}")
    return height, width


def dilations(t: Translation) -> tuple[int, int]:
    """Return the dilation of a convolution."""
    found = t.op.option("DilationHFactor", 1), t.op.option("DilationWFactor", 1)
    if min(found) < 1:
        raise Unsupported(f"its dilation is {found[0]} x {found[1]}")
    return found


def weights(t: Translation, index: int, arranged: Callable[[Array], Array], axis: int, x: int = 0) -> str:
    """Return constant weights as real numbers in another arrangement, with their scales along `axis` of that.

    `x` is the input that they are multiplied with.
    """
    tensor = t.weights(index)
    data = arranged(t.known(index, "weights") if tensor.data is None else tensor.data)
    if tensor.is_quantised:
        lie = tensor is t.tensor(index) or _are_along(tensor, arranged, axis)
        if tensor.scale.size not in (1, data.shape[axis]) or not lie:
            raise Unsupported(f"its weights have {tensor.scale.size} scales for {data.shape[axis]} channels")
        _check_range(t, x, index)
        name = t.constant("weights", data)
        return t.dequantise(name, data.dtype, tensor.scale, tensor.zero_point, axis)
    if data.dtype.kind != "f":
        raise Unsupported(f"its weights are {data.dtype} without a scale")
    return t.constant("weights", data, np.float32)


def _are_along(tensor: Tensor, arranged: Callable[[Array], Array], axis: int) -> bool:
    """Whether the scales, which lie along an axis of the file's arrangement, lie along `axis` of the other one."""
    if tensor.scale.size == 1:
        return True

    def numbered(shape: tuple[int, ...], along: int) -> Array:
        sizes = [size if dim == along else 1 for dim, size in enumerate(shape)]
        return np.broadcast_to(np.arange(shape[along]).reshape(sizes), shape)

    moved = arranged(numbered(tensor.shape, tensor.axis))
    return np.array_equal(moved, numbered(moved.shape, axis))


def _check_range(t: Translation, x: int, w: int) -> None:
    """Refuse scales whose product, or its quotient by the output's, is no float32."""
    source, result = t.tensor(x), t.result()
    with np.errstate(all="ignore"):
        product = t.weights(w).scale * (source.scale if source.is_quantised else np.float32(1))
        quotient = product / (result.scale if result.is_quantised else np.float32(1))
    if product.size and (not np.isfinite(quotient).all() or product.min() < np.finfo(np.float32).tiny):
        raise Unsupported(f"the product of its scales, from {product.min():.3g}, is too small or too large for float32")


def bias(t: Translation, index: int, channels: int, x: int, w: int) -> str:
    """Return the bias as real numbers, "" if there is none.

    Integers count in steps of the input's scale times the weights', whatever the file says of the bias itself.
    """
    if not t.has(index):
        return ""
    tensor = t.weights(index)
    data = (t.known(index, "bias") if tensor.data is None else tensor.data).reshape(-1)
    if data.size != channels:
        raise Unsupported(f"it has {data.size} biases for {channels} channels")
    if data.dtype.kind == "f" and not t.tensor(x).is_quantised:
        return t.constant("bias", data, np.float32)
    if tensor is not t.tensor(index):  # integers that DEQUANTIZE makes real
        return t.constant("bias", (data - tensor.zero_point) * tensor.scale, np.float32)
    if data.dtype.kind != "i" or not t.tensor(x).is_quantised or not t.tensor(w).is_quantised:
        raise Unsupported(f"its bias is {data.dtype}, its input or its weights are not quantised")
    scale = t.tensor(x).scale * t.tensor(w).scale
    if data.dtype != np.int32 and np.abs(data).max(initial=0) >= 2**31:  # 16 x 8 bits: int64
        return t.constant("bias", data.astype(np.float64) * scale, np.float32)
    name = t.constant("bias", data, np.int32)
    return t.dequantise(name, np.dtype(np.int32), scale.astype(np.float32), np.zeros(scale.size, np.int64), 0)


Geometry = dict[str, Any]
"""The attributes of a Conv."""


def of_conv(t: Translation) -> tuple[tuple[int, ...], Geometry]:
    """Return the shape of the weights of CONV_2D, [out, height, width, in / groups], and the attributes of its Conv.

    Raises:
        Unsupported: the weights are not for its input.
    """
    size, shape = t.shape(0, 4), t.shape(1, 4)
    if not shape[3] or size[3] % shape[3]:
        raise Unsupported(f"its weights are for {shape[3]} channels, its input has {size[3]}")
    return shape, _geometry(t, shape[1:3], size[3] // shape[3])


def of_depthwise(t: Translation) -> tuple[tuple[int, ...], Geometry]:
    """Return those of DEPTHWISE_CONV_2D, whose weights are [1, height, width, in * multiplier].

    Raises:
        Unsupported: the weights are not for its input.
    """
    size, shape = t.shape(0, 4), t.shape(1, 4)
    if not size[3] or shape[3] % size[3] or shape[0] != 1:
        raise Unsupported(f"its weights are {list(shape)}, its input has {size[3]} channels")
    return shape, _geometry(t, shape[1:3], size[3])


def _geometry(t: Translation, kernel: tuple[int, ...], group: int) -> Geometry:
    strides, dilated = pair(t, "Stride"), dilations(t)
    window = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilated, strict=True))
    pads = padding(t.op.option("Padding"), t.shape(0)[1:3], window, strides)
    return {
        "kernel_shape": [*kernel], "strides": [*strides], "dilations": [*dilated], "pads": pads, "group": group,
    }  # fmt: skip


def conv(t: Translation) -> None:
    """Append CONV_2D."""
    shape, geometry = of_conv(t)
    _finish_conv(t, weights(t, 1, lambda data: data.transpose(0, 3, 1, 2), 0), shape[0], geometry)


def conv_3d(t: Translation) -> None:
    """CONV_3D: of float32, weights [depth, height, width, in, out]."""
    size, shape = t.shape(0, 5), t.shape(1, 5)
    if size[4] != shape[3]:
        raise Unsupported(f"its weights are for {shape[3]} channels, its input has {size[4]}")
    axes = ("D", "H", "W")
    strides, dilated = (
        tuple(t.op.option(name.format(axis), 1) for axis in axes) for name in ("Stride{}", "Dilation{}Factor")
    )
    if min(*strides, *dilated) < 1:
        raise Unsupported(f"its strides are {list(strides)}, its dilations {list(dilated)}")
    reach = tuple((k - 1) * d + 1 for k, d in zip(shape[:3], dilated, strict=True))
    made = t.node(
        "Conv",
        [
            t.node("Transpose", [t.real(0)], perm=[0, 4, 1, 2, 3]),
            weights(t, 1, lambda data: data.transpose(4, 3, 0, 1, 2), 0),
            *filter(None, [bias(t, 2, shape[4], 0, 1)]),
        ],
        kernel_shape=list(shape[:3]),
        strides=list(strides),
        dilations=list(dilated),
        pads=padding(t.op.option("Padding"), size[1:4], reach, strides),
    )
    made = t.node("Transpose", [made], perm=[0, 2, 3, 4, 1])
    t.store(t.activated(made, t.op.option("FusedActivationFunction")))


def depthwise(t: Translation) -> None:
    """Append DEPTHWISE_CONV_2D."""
    shape, geometry = of_depthwise(t)
    _finish_conv(t, weights(t, 1, lambda data: data.transpose(3, 0, 1, 2), 0), shape[3], geometry)


def _finish_conv(t: Translation, filters: str, channels: int, geometry: Geometry) -> None:
    made = t.node("Conv", [t.image(0), filters, *filter(None, [bias(t, 2, channels, 0, 1)])], **geometry)
    t.store_image(t.activated(made, t.op.option("FusedActivationFunction")))


def spread(t: Translation) -> dict[str, list[int]]:
    """Return the attributes of the ConvTranspose that TRANSPOSE_CONV is.

    Raises:
        Unsupported: its output's shape is none.
    """
    wanted = t.numbers(0, "the output's shape")
    size = t.shape(2, 4)
    if len(wanted) != 4 or min(wanted) < 0:
        raise Unsupported(f"its output's shape is {wanted}")
    strides, kernel = pair(t, "Stride"), t.shape(1, 4)[1:3]
    for n, out, step, width in zip(size[1:3], wanted[1:3], strides, kernel, strict=True):
        reach = out if t.op.option("Padding") == tflite.Padding.SAME else out - width + 1
        if n != -(-reach // step):
            raise Unsupported(f"its output's shape {wanted} is not one that an input of {list(size)} makes")
    full = [(n - 1) * s + k for n, s, k in zip(size[1:3], strides, kernel, strict=True)]
    before, behind, more = [], [], []
    for made, out in zip(full, wanted[1:3], strict=True):
        total = max(made - out, 0) if t.op.option("Padding") == tflite.Padding.SAME else 0
        left = out - (made - total)
        before.append(total // 2)
        behind.append(total - total // 2 - min(left, 0))
        more.append(max(left, 0))
    return {"kernel_shape": [*kernel], "strides": [*strides], "pads": before + behind, "output_padding": more}


def transpose_conv(t: Translation) -> None:
    """TRANSPOSE_CONV: inputs are the output's shape, weights [out, height, width, in], the image, a bias."""
    attrs: dict[str, Any] = spread(t)
    filters = weights(t, 1, lambda data: data.transpose(3, 0, 1, 2), 1, 2)
    offsets = bias(t, 3, t.shape(1)[0], 2, 1)
    made = t.node("ConvTranspose", [t.image(2), filters, *filter(None, [offsets])], **attrs)
    t.store_image(t.activated(made, t.op.option("FusedActivationFunction")))


def flat_rows(t: Translation) -> tuple[str, int]:
    """Return the input of FULLY_CONNECTED as rows of real numbers, and how many outputs each has.

    Raises:
        Unsupported: the weights are not for it.
    """
    if t.op.option("WeightsFormat"):
        raise Unsupported("its weights are shuffled")
    shape, (channels, depth) = t.shape(0), t.shape(1, 2)
    if not depth or math.prod(shape) % depth or not shape:
        raise Unsupported(f"its weights are for {depth} inputs, its input is {list(shape)}")
    if len(shape) == 2 and shape[1] == depth:
        return t.real(0), channels
    tensor, flat = t.tensor(0), t.whole("flat", (math.prod(shape) // depth, depth))
    if tensor.is_quantised and tensor.scale.size == 1:
        x = t.node("Reshape", [t.stored(0), flat])
        return t.dequantise(x, tensor.dtype, tensor.scale, tensor.zero_point), channels
    return t.node("Reshape", [t.real(0), flat]), channels


def unflat(t: Translation, made: str, channels: int) -> str:
    """Return rows of results in the shape of FULLY_CONNECTED's output."""
    shape = t.shape(0)
    if t.op.option("KeepNumDims") and len(shape) != 2:
        return t.node("Reshape", [made, t.whole("shape", (*shape[:-1], channels))])
    return made


def fully_connected(t: Translation) -> None:
    """FULLY_CONNECTED: weights [out, in]; the input is flat, but for KeepNumDims."""
    x, channels = flat_rows(t)
    w = t.real(1) if t.weights(1).data is None else weights(t, 1, lambda data: data, 0)
    made = t.node("Gemm", [x, w, *filter(None, [bias(t, 2, channels, 0, 1)])], transB=1)
    t.store(unflat(t, t.activated(made, t.op.option("FusedActivationFunction")), channels))


def batch_matmul(t: Translation) -> None:
    """BATCH_MATMUL: numpy.matmul, of either operand transposed."""
    operands = []
    for index, option in ((0, "AdjX"), (1, "AdjY")):
        value, rank = t.real(index), len(t.shape(index))
        if rank < 2:
            raise Unsupported(f"its input {index} has {rank} dimensions")
        if t.op.option(option):
            value = t.node("Transpose", [value], perm=[*range(rank - 2), rank - 1, rank - 2])
        operands.append(value)
    t.store(t.node("MatMul", operands))


STEPS = "QuantisedRows"  # mtool's own operator, of mtool/compiler/operators/quantized_rows.py


def in_integers(options: ModelOptions) -> bool:
    """Whether hybrid operators are to be computed as LiteRT does."""
    return options.hybrid in ("auto", "int8")


def has_int8_weights(operator: Operator, tensors: Sequence[Tensor]) -> bool:
    """Whether an operator has float activations, and int8 weights without zero point."""
    numbers = (*operator.inputs[:2], *operator.outputs[:1])
    if len(numbers) != 3 or min(numbers) < 0:
        return False
    x, w, y = (tensors[number] for number in numbers)
    int8 = w.dtype == np.int8 and w.is_quantised and w.data is not None and not w.zero_point.any()
    return int8 and x.dtype == np.float32 and y.dtype == np.float32


def is_part_of(network: onnx.ModelProto) -> bool:
    """Whether a network has such operators, in integers."""
    return any(node.op_type == STEPS and node.domain == OWN for node in network.graph.node)


def quantised(t: Translation, x: str, *, around_zero: bool) -> tuple[str, str]:
    """Return the steps of float32 numbers as whole numbers of float32, and the scale of each row."""
    steps, scale = t.several(STEPS, [x], 2, domain=OWN, around_zero=int(around_zero))
    return t.dequantise(steps, np.dtype(np.int16), np.ones(1, np.float32), np.zeros(1, np.int64)), scale


def _filters(t: Translation, arranged: Callable[[Array], Array]) -> str:
    data = arranged(t.known(1, "weights"))
    return t.dequantise(t.constant("weights", data), data.dtype, np.ones(1, np.float32), np.zeros(1, np.int64))


def _hybrid_finish(t: Translation, sums: str, factor: str, channels: int, *, behind: str = "") -> str:
    """Return the sums times one factor and another, plus the bias, behind the fused activation."""
    made = t.node("Mul", [sums, factor])
    if behind:
        made = t.node("Mul", [made, behind])
    offsets = bias(t, 2, channels, 0, 1)
    if offsets:
        made = t.node("Add", [made, offsets])
    return t.activated(made, t.op.option("FusedActivationFunction"))


def _channel_scales(t: Translation, channels: int) -> str:
    scale = t.tensor(1).scale
    if scale.size not in (1, channels):
        raise Unsupported(f"its weights have {scale.size} scales for {channels} channels")
    return t.constant("scale", scale if scale.size > 1 else scale[0], np.float32)


def hybrid_fully_connected(t: Translation) -> None:
    """Append FULLY_CONNECTED."""
    flat, channels = flat_rows(t)
    steps, scale = quantised(t, flat, around_zero=not t.op.option("AsymmetricQuantizeInputs"))
    sums = t.node("Gemm", [steps, _filters(t, lambda data: data)], transB=1)
    factor = t.node("Mul", [scale, _channel_scales(t, channels)])
    t.put(unflat(t, _hybrid_finish(t, sums, factor, channels), channels))


def hybrid_conv(t: Translation) -> None:
    """CONV_2D: around zero, but where channels have scales of their own or lie in groups."""
    shape, geometry = of_conv(t)
    scales = t.tensor(1).scale
    apart = np.unique(scales).size > 1 or geometry["group"] > 1
    steps, scale = quantised(t, t.real(0), around_zero=not apart)
    sums = _sums(t, steps, lambda data: data.transpose(0, 3, 1, 2), geometry)
    if apart:
        t.put(_hybrid_finish(t, sums, _channel_scales(t, shape[0]), shape[0], behind=scale))
        return
    factor = t.node("Mul", [scale, t.constant("scale", scales[0], np.float32)])
    t.put(_hybrid_finish(t, sums, factor, shape[0]))


def hybrid_depthwise(t: Translation) -> None:
    """Append DEPTHWISE_CONV_2D."""
    shape, geometry = of_depthwise(t)
    steps, scale = quantised(t, t.real(0), around_zero=False)
    sums = _sums(t, steps, lambda data: data.transpose(3, 0, 1, 2), geometry)
    t.put(_hybrid_finish(t, sums, t.node("Mul", [_channel_scales(t, shape[3]), scale]), shape[3]))


def _sums(t: Translation, steps: str, arranged: Callable[[Array], Array], geometry: Geometry) -> str:
    image = t.node("Transpose", [steps], perm=NCHW_OF_NHWC)
    return t.node("Transpose", [t.node("Conv", [image, _filters(t, arranged)], **geometry)], perm=NHWC_OF_NCHW)


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


def exact_conv(depthwise: bool) -> Translate:
    """Append CONV_2D, DEPTHWISE_CONV_2D in integers."""

    def translate(t: Translation) -> None:
        eight_bits(t, 0, wide=True)
        size, shape = t.shape(0, 4), t.shape(1, 4)
        if depthwise:
            filters = _unscaled_weights(t, 1, lambda data: data.transpose(3, 0, 1, 2), 0)
            channels, group = shape[3], size[3]
        else:
            filters = _unscaled_weights(t, 1, lambda data: data.transpose(0, 3, 1, 2), 0)
            channels, group = shape[0], size[3] // max(shape[3], 1)
        strides, dilated = pair(t, "Stride"), dilations(t)
        reach = tuple((k - 1) * d + 1 for k, d in zip(shape[1:3], dilated, strict=True))
        image = t.node("Transpose", [unscaled(t, t.stored(0), t.tensor(0))], perm=NCHW_OF_NHWC)
        sums = t.node(
            "Conv",
            [image, filters, *_unscaled_bias(t, 2, channels)],
            kernel_shape=shape[1:3],
            strides=strides,
            dilations=dilated,
            pads=padding(t.op.option("Padding"), size[1:3], reach, strides),
            group=group,
        )
        sums = t.node("Transpose", [sums], perm=NHWC_OF_NCHW)
        t.put(_rescale_sums(t, sums, _scales(t, 0, 1)))

    return translate


def exact_transpose_conv(t: Translation) -> None:
    """TRANSPOSE_CONV: a convolution with the phases of the stride as channels, which are interleaved once scaled."""
    eight_bits(t, 2, wide=True)
    attrs, size, outputs = spread(t), t.shape(2, 4), t.shape(1, 4)[0]
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


def exact_fully_connected(t: Translation) -> None:
    """Append FULLY_CONNECTED in integers."""
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


def exact_batch_matmul(t: Translation) -> None:
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
