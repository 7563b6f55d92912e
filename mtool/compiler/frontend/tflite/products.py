"""Convolutions and matrix products."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import tflite

from mtool.base import plural
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.frontend.tflite.fixed_point import limits, single_rounding
from mtool.compiler.frontend.tflite.rescaling import (
    EIGHT_BITS,
    clamp_to,
    rescale,
    rescale_long,
    unscaled,
    whole,
)
from mtool.compiler.frontend.tflite.schema import Operator, Tensor
from mtool.compiler.frontend.tflite.translation import NCHW_OF_NHWC, NHWC_OF_NCHW, Translate, Translation
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.threshold_multipliers import Reach
from mtool.compiler.operators.conv import Phases
from mtool.compiler.operators.problems import OWN, Unsupported


def padding(code: int, size: tuple[int, ...], window: tuple[int, ...], stride: tuple[int, ...]) -> list[int]:
    """Return the pads before each axis, then those after it, as in ONNX; `window` is the dilated size."""
    if code == tflite.Padding.VALID:
        return [0] * (2 * len(size))
    if code != tflite.Padding.SAME:
        raise Unsupported(f"its padding number {code} is not supported")
    totals = [max((-(-n // s) - 1) * s + k - n, 0) for n, k, s in zip(size, window, stride, strict=True)]
    return [total // 2 for total in totals] + [total - total // 2 for total in totals]


def steps(t: Translation, name: str, axes: str = "HW") -> tuple[int, ...]:
    """Return an option that exists for several axes, such as StrideH and StrideW.

    Raises:
        Unsupported: one is below 1.
    """
    values = tuple(t.op.option(name.format(axis), 1) for axis in axes)
    if min(values) < 1:
        raise Unsupported(f"its {name.partition('{')[0].lower()} is {' x '.join(map(str, values))}")
    return values


def weights(t: Translation, index: int, arranged: Callable[[Array], Array], axis: int, x: int = 0) -> str:
    """Return constant weights as real numbers in another layout, with their scales along its `axis`.

    `x` is the number of the input that they are multiplied with.
    """
    tensor = t.weights(index)
    data = arranged(t.data(index, "weights") if tensor.data is None else tensor.data)
    if tensor.block:
        parts = (data, tensor.scale, tensor.zero_point.astype(data.dtype))
        return t("DequantizeLinear", *parts, axis=tensor.axis, block_size=tensor.block)
    if tensor.is_quantized:
        lie = tensor is t.tensor(index) or _are_along(tensor, arranged, axis)
        if tensor.scale.size not in (1, data.shape[axis]) or not lie:
            raise Unsupported(
                f"its weights have {plural.count(tensor.scale.size, 'scale')} for {data.shape[axis]} channels"
            )
        _check_range(t, x, index)
        name = t.constant("weights", data)
        return t.dequantize(name, data.dtype, tensor.scale, tensor.zero_point, axis)
    if data.dtype.kind != "f":
        raise Unsupported(f"its weights are {data.dtype} without a scale")
    return t.constant("weights", data, np.float32)


def _are_along(tensor: Tensor, arranged: Callable[[Array], Array], axis: int) -> bool:
    """Whether the scales, which lie along an axis of the file's layout, lie along `axis` of the new one."""
    if tensor.scale.size == 1:
        return True

    def numbered(shape: tuple[int, ...], along: int) -> Array:
        sizes = [size if dim == along else 1 for dim, size in enumerate(shape)]
        return np.broadcast_to(np.arange(shape[along]).reshape(sizes), shape)

    moved = arranged(numbered(tensor.shape, tensor.axis))
    return np.array_equal(moved, numbered(moved.shape, axis))


def _check_range(t: Translation, x: int, w: int) -> None:
    """Raise an error if the scales' product, or its quotient by the output's scale, is out of float32's range."""
    source, result = t.tensor(x), t.result()
    with np.errstate(all="ignore"):
        product = t.weights(w).scale * (source.scale if source.is_quantized else np.float32(1))
        quotient = product / (result.scale if result.is_quantized else np.float32(1))
    if product.size and (not np.isfinite(quotient).all() or product.min() < np.finfo(np.float32).tiny):
        raise Unsupported(f"the product of its scales, from {product.min():.3g}, is too small or too large for float32")


def bias(t: Translation, index: int, channels: int, x: int, w: int) -> list[str]:
    """Return the bias as real numbers; empty: there is none.

    An integer bias has the scale of the input times that of the weights, whatever its own scale in the file.
    """
    if not t.has(index):
        return []
    tensor = t.weights(index)
    data = (t.data(index, "bias") if tensor.data is None else tensor.data).reshape(-1)
    if data.size != channels:
        raise Unsupported(f"its bias has {plural.count(data.size, 'element')}; expected {channels}, one per channel")
    if data.dtype.kind == "f" and not t.tensor(x).is_quantized:
        return [t.constant("bias", data, np.float32)]
    if tensor is not t.tensor(index):  # integers that DEQUANTIZE makes real
        return [t.constant("bias", (data - tensor.zero_point) * tensor.scale, np.float32)]
    if data.dtype.kind != "i" or not t.tensor(x).is_quantized or not t.tensor(w).is_quantized:
        raise Unsupported(f"its bias is {data.dtype}, but its input or its weights are not quantized")
    scale = t.tensor(x).scale * t.tensor(w).scale
    if data.dtype != np.int32 and np.abs(data).max(initial=0) >= 2**31:  # 16 x 8 bits: int64
        return [t.constant("bias", data.astype(np.float64) * scale, np.float32)]
    name = t.constant("bias", data, np.int32)
    return [t.dequantize(name, np.dtype(np.int32), scale.astype(np.float32), np.zeros(scale.size, np.int64), 0)]


STEPS = "QuantizedRows"  # mtool's own operator, of mtool/compiler/operators/quantize.py


def in_integers(options: ModelOptions) -> bool:
    """Whether hybrid operators are computed in integers, as in LiteRT."""
    return options.hybrid in ("auto", "int8")


def has_int8_weights(operator: Operator, tensors: Sequence[Tensor]) -> bool:
    """Whether an operator has float activations and int8 weights without zero point."""
    numbers = (*operator.inputs[:2], *operator.outputs[:1])
    if len(numbers) != 3 or min(numbers) < 0:
        return False
    x, w, y = (tensors[number] for number in numbers)
    int8 = w.dtype == np.int8 and w.is_quantized and not w.block and w.data is not None and not w.zero_point.any()
    return int8 and x.dtype == np.float32 and y.dtype == np.float32


def is_part_of(network: onnx.ModelProto) -> bool:
    """Whether a network has hybrid operators in integers."""
    return any(node.op_type == STEPS and node.domain == OWN for node in network.graph.node)


Arranged = Callable[[Array], Array]
"""Converts weights to ONNX's layout."""


@dataclass
class Real:
    """Sums of products in real numbers; quantized operands are dequantized.

    x, w, b: the numbers of the input, the weights and the bias among the operator's inputs.
    """

    t: Translation
    x: int = 0
    w: int = 1
    b: int = 2

    def operand(self, index: int, name: str = "") -> str:
        """Return an input in the form in which it is multiplied."""
        tensor = self.t.tensor(index)
        return self.t.dequantize(name, tensor.dtype, tensor.scale, tensor.zero_point) if name else self.t.real(index)

    def factor(self, index: int) -> str:
        """Return an operand of a matrix product of two variables."""
        return self.operand(index)

    def weights(self, arranged: Arranged, axis: int) -> str:
        """Return the weights in another layout, with the channels along its `axis`."""
        return weights(self.t, self.w, arranged, axis, self.x)

    def bias(self, channels: int) -> list[str]:
        """Return the bias that is part of the product; empty: there is none."""
        return bias(self.t, self.b, channels, self.x, self.w)

    def put_image(self, image: str, channels: int) -> None:
        """Set the output to the sums, a channels-first image."""
        self.t.store_image(self.t.activated(image), len(self.t.shape(self.x)))

    def put_rows(self, rows: str, channels: int) -> None:
        """Set the output to the sums, one row per row of the input."""
        self.t.store(unflat(self.t, self.t.activated(rows), channels))

    def put_product(self, product: str) -> None:
        """Set the output to a product of two variables."""
        self.t.store(product)


class Hybrid(Real):
    """Sums of products of float activations and int8 weights in integers, as in LiteRT.

    The activations are quantized at run time, each row (of a dense layer) or image by its own range, with or without a
    zero point. The int8 products are added in int32, and the sums are multiplied by the scales.
    """

    def operand(self, index: int, name: str = "") -> str:
        """Return the quantized input; the scale of each row is kept."""
        t = self.t
        around_zero = not t.op.option("AsymmetricQuantizeInputs") if t.op.kind == "FULLY_CONNECTED" else not self.apart
        rows, self.scale = t.several(STEPS, 2, name or t.real(index), around_zero=int(around_zero))
        return whole(t, rows, np.dtype(np.int16))

    @property
    def apart(self) -> bool:
        """Whether the channels have their own scales or form groups."""
        t = self.t
        is_grouped = t.op.kind == "DEPTHWISE_CONV_2D" or t.shape(0)[-1] > t.shape(self.w)[-1]
        return bool(np.unique(t.tensor(self.w).scale).size > 1) or is_grouped

    def weights(self, arranged: Arranged, axis: int) -> str:
        """Return the weights as integers."""
        data = arranged(self.t.data(self.w, "weights"))
        return whole(self.t, self.t.constant("weights", data), data.dtype)

    def bias(self, channels: int) -> list[str]:
        """Return nothing: the bias is added to the scaled sums."""
        return []

    def put_image(self, image: str, channels: int) -> None:
        """Set the output to the sums, an NCHW image."""
        t = self.t
        sums = t("Transpose", image, perm=NHWC_OF_NCHW)
        if t.op.kind == "DEPTHWISE_CONV_2D":
            scaled = t("Mul", sums, t("Mul", self._channel_scales(channels), self.scale))
        elif self.apart:
            scaled = t("Mul", t("Mul", sums, self._channel_scales(channels)), self.scale)
        else:
            scaled = t("Mul", sums, t("Mul", self.scale, t.tensor(self.w).scale[0]))
        self._finish(scaled, channels)

    def put_rows(self, rows: str, channels: int) -> None:
        """Set the output to the sums, one row per row of the input."""
        factor = self.t("Mul", self.scale, self._channel_scales(channels))
        self._finish(self.t("Mul", rows, factor), channels)

    def _channel_scales(self, channels: int) -> str:
        scale = self.t.tensor(self.w).scale
        if scale.size not in (1, channels):
            raise Unsupported(f"its weights have {plural.count(scale.size, 'scale')} for {channels} channels")
        return self.t.constant("scale", scale if scale.size > 1 else scale[0], np.float32)

    def _finish(self, result: str, channels: int) -> None:
        """Add the bias, apply the fused activation, and make the result the output."""
        t, offsets = self.t, bias(self.t, self.b, channels, self.x, self.w)
        result = t.activated(t("Add", result, *offsets) if offsets else result)
        t.put(unflat(t, result, channels) if t.op.kind == "FULLY_CONNECTED" else result)


class Exact(Real):
    """Sums of products in the integer arithmetic of LiteRT's reference kernels.

    They are sums of integers with a scale of 1, followed by a Rescale. Requantization rounds twice, as in gemmlowp,
    except for FULLY_CONNECTED, whose sums are multiplied by a float64 and rounded once.
    """

    def operand(self, index: int, name: str = "") -> str:
        """Return integers less their zero point."""
        return unscaled(self.t, name or self.t.stored(index), self.t.tensor(index))

    def factor(self, index: int) -> str:
        """Return an operand of a matrix product of two variables, int16 as int64."""
        if self.t.tensor(0).dtype != np.int16:
            return self.operand(index)
        return self.t.cast(self.t.stored(index), np.int64)

    def weights(self, arranged: Arranged, axis: int) -> str:
        """Return the weights less their zero points."""
        t = self.t
        data, tensor = arranged(t.data(self.w, "weights")), t.tensor(self.w)
        if data.dtype not in EIGHT_BITS or not tensor.is_quantized:
            raise Unsupported(f"its weights are {data.dtype}")
        name, points = t.constant("weights", data), tensor.zero_point
        points = points[:1] if np.unique(points).size == 1 else points
        return t.dequantize(name, data.dtype, np.ones(points.size, np.float32), points, axis)

    def bias(self, channels: int, phases: int = 1) -> list[str]:
        """Return the bias, repeated for each phase of a transposed convolution."""
        t = self.t
        if not t.has(self.b):
            return []
        data = t.data(self.b, "bias").reshape(-1)
        wide = data.dtype == np.int64 and t.result().dtype == np.int16
        if not (data.dtype == np.int32 or wide) or data.size != channels:
            raise Unsupported(f"its bias {data.dtype}[{data.size}] is not supported")
        if np.abs(data.astype(np.int64)).max(initial=0) >= 2**31:
            raise Unsupported("its bias does not fit in 32 bits")
        return [whole(t, t.constant("bias", np.tile(data, phases), np.int32), np.dtype(np.int32))]

    @property
    def scales(self) -> Array:
        """The scale of the sums divided by the output's."""
        x, w, out = self.t.tensor(self.x), self.t.tensor(self.w), self.t.result()
        return x.scale.astype(np.float64) * w.scale.astype(np.float64) / float(out.scale[0])

    def put_image(self, image: str, channels: int) -> None:
        """Set the output to the sums, an NCHW image."""
        self.t.put(self.rescaled_image(self.t("Transpose", image, perm=NHWC_OF_NCHW)))

    def rescaled_image(self, sums: str, phases: int = 1) -> str:
        """Scale the sums of a convolution; int16 ones have 64 bits, unless their bias has 32."""
        t, x, w, out = self.t, self.t.tensor(self.x), self.t.tensor(self.w), self.t.result()
        scales = self.scales
        if x.dtype == np.uint8:  # uint8 is multiplied as float32
            scales = (x.scale * w.scale).astype(np.float64) / float(out.scale[0])
        scales = np.tile(scales, phases) if scales.size > 1 else scales
        narrow = t.has(self.b) and t.tensor(self.b).dtype == np.int32
        if out.dtype != np.int16 or narrow:
            return rescale(t, sums, scales, out, axis=3)
        return rescale_long(t, sums, scales, out, axis=3, activation=t.activation)

    def put_rows(self, rows: str, channels: int) -> None:
        """Set the output to the sums, one row per row of the input."""
        t, out, scales = self.t, self.t.result(), self.scales
        if out.dtype == np.int16 and t.has(2) and t.tensor(2).dtype == np.int32:
            raise Unsupported(
                "its bias is int32, which LiteRT's reference kernel reads as int64 (its default kernel does not)"
            )
        single = self._rounding_once(scales) if t.tensor(0).dtype != np.int16 else None
        if single is None:
            factors, limits = t.constant("scale", scales, np.float64), clamp_to(out, t.activation)
            rows = t("RescaleReal", rows, factors, axis=1, zero_point=out.zero, **limits)
        else:
            rows = rescale(t, rows, single, out, axis=1, twice=False)
        t.put(unflat(t, rows, channels))

    def _rounding_once(self, scales: Array) -> tuple[Array, Array] | None:
        """Return multipliers and shifts that round an 8-bit dense layer's sums once, if there are any."""
        t, x, w, out = self.t, self.t.tensor(0), self.t.tensor(1), self.t.result()
        rows = t.data(1, "weights").astype(np.int16) - w.zero_point.reshape(-1, 1)
        offsets = t.data(2, "bias").reshape(-1) if t.has(2) else np.zeros(len(rows), np.int64)
        kind = np.iinfo(x.dtype)
        reach = Reach.of(rows, offsets, kind.min - x.zero, kind.max - x.zero).of_32_bits
        low, high = (bound - out.zero for bound in limits(out, t.activation))
        return single_rounding(scales, reach.of_all if scales.size == 1 else reach, low, max(low, high))

    def put_product(self, product: str) -> None:
        """Set the output to a product of two variables."""
        t, out = self.t, self.t.result()
        scales = np.asarray([float(t.tensor(0).scale[0] * t.tensor(1).scale[0]) / float(out.scale[0])])
        t.put((rescale_long if t.tensor(0).dtype == np.int16 else rescale)(t, product, scales, out))


def _check_kernel_reads(t: Translation) -> None:
    """Check the weights of integer products: LiteRT's kernels refuse some, and misread others.

    With int8 and int16 activations, weights have to be int8 with zero point 0. CONV_2D's kernel refuses others;
    DEPTHWISE_CONV_2D's ignores the zero point, as does FULLY_CONNECTED's with several scales; uint8 is read as int8.

    Raises:
        Unsupported: LiteRT's kernels do not support the weights.
    """
    x, w, kind = t.tensor(0), t.tensor(1), t.op.kind
    if not x.is_quantized or x.dtype == np.uint8 or not w.is_quantized:
        return
    if kind == "FULLY_CONNECTED" and x.dtype == np.int16 and w.dtype == np.uint8:
        raise Unsupported("its input is int16 and its weights are uint8, which LiteRT's kernel reads as int8")
    points = w.zero_point[w.zero_point.nonzero()]
    takes_zero_alone = w.dtype == np.int8 and (w.scale.size > 1 or kind == "DEPTHWISE_CONV_2D")
    if points.size and (takes_zero_alone or kind == "CONV_2D"):
        raise Unsupported(
            f"its weights are {w.dtype} with a zero point of {points[0]}; with an input of {x.dtype}, LiteRT's kernel "
            "needs int8 weights with zero point 0"
        )


def conv(arithmetic: type[Real]) -> Translate:
    """CONV_2D: weights [out, height, width, in / groups]; DEPTHWISE_CONV_2D: [1, height, width, in * multiplier].

    CONV_3D: [depth, height, width, in, out].
    """

    def translate(t: Translation) -> None:
        axes = "DHW" if t.op.kind == "CONV_3D" else "HW"
        products, rank = arithmetic(t), len(axes) + 2
        _check_kernel_reads(t)
        size, shape = t.shape(0, rank), t.shape(1, rank)
        depth, filter_depth = size[-1], shape[3]
        order: tuple[int, ...]
        if t.op.kind == "DEPTHWISE_CONV_2D":
            if not depth or filter_depth % depth or shape[0] != 1:
                raise Unsupported(f"its weights {list(shape)} do not fit an input of {depth} channels")
            channels, group, order, window = filter_depth, depth, (3, 0, 1, 2), shape[1:3]
        elif not filter_depth or depth % filter_depth or (rank == 5 and depth != filter_depth):
            raise Unsupported(f"its weights are for {filter_depth} channels; its input has {depth}")
        elif rank == 5:
            channels, group, order, window = shape[4], 1, (4, 3, 0, 1, 2), shape[:3]
        else:
            channels, group, order, window = shape[0], depth // filter_depth, (0, 3, 1, 2), shape[1:3]
        strides, dilated = steps(t, "Stride{}", axes), steps(t, "Dilation{}Factor", axes)
        reach = tuple((k - 1) * d + 1 for k, d in zip(window, dilated, strict=True))
        pads = padding(t.op.option("Padding"), size[1:-1], reach, strides)
        filters = products.weights(lambda data: data.transpose(order), 0)
        image = t("Transpose", products.operand(0), perm=[0, rank - 1, *range(1, rank - 1)])
        attrs = {"kernel_shape": window, "strides": strides, "dilations": dilated, "pads": pads, "group": group}
        products.put_image(t("Conv", image, filters, *products.bias(channels), **attrs), channels)

    return translate


def spread(t: Translation) -> dict[str, Any]:
    """Return the attributes of a TRANSPOSE_CONV as a ConvTranspose.

    Raises:
        Unsupported: its output's shape is not possible.
    """
    shape = t.numbers(0, "the output's shape")
    size = t.shape(2, 4)
    if len(shape) != 4 or min(shape) < 0:
        raise Unsupported(f"its output's shape {shape} is not valid")
    strides, kernel = steps(t, "Stride{}"), t.shape(1, 4)[1:3]
    for n, out, step, width in zip(size[1:3], shape[1:3], strides, kernel, strict=True):
        reach = out if t.op.option("Padding") == tflite.Padding.SAME else out - width + 1
        if n != -(-reach // step):
            raise Unsupported(f"its output's shape {shape} does not match its input {list(size)}")
    full = [(n - 1) * s + k for n, s, k in zip(size[1:3], strides, kernel, strict=True)]
    before, behind, more = [], [], []
    for extent, out in zip(full, shape[1:3], strict=True):
        total = max(extent - out, 0) if t.op.option("Padding") == tflite.Padding.SAME else 0
        missing = out - (extent - total)
        before.append(total // 2)
        behind.append(total - total // 2 - min(missing, 0))
        more.append(max(missing, 0))
    return {"kernel_shape": [*kernel], "strides": [*strides], "pads": before + behind, "output_padding": more}


def transpose_conv(t: Translation) -> None:
    """TRANSPOSE_CONV: the inputs are the output's shape, weights [out, height, width, in], the image and a bias."""
    products, attrs, channels = Real(t, 2, 1, 3), spread(t), t.shape(1)[0]
    filters, offsets = products.weights(lambda data: data.transpose(3, 0, 1, 2), 1), products.bias(channels)
    products.put_image(t("ConvTranspose", t.image(2), filters, *offsets, **attrs), channels)


def exact_transpose_conv(t: Translation) -> None:
    """TRANSPOSE_CONV: a convolution with the phases of the stride as channels, which are scaled and interleaved."""
    products = Exact(t, 2, 1, 3)
    attrs, size, outputs = spread(t), t.shape(2, 4), t.shape(1, 4)[0]
    kernel, (before_h, before_w) = t.shape(1, 4)[1:3], attrs["pads"][:2]
    out_size = t.numbers(0, "the output's shape")[1:3]
    phases = Phases(
        (kernel[0], kernel[1]), (attrs["strides"][0], attrs["strides"][1]), (before_h, before_w),
        (size[1], size[2]), (out_size[0], out_size[1]),
    )  # fmt: skip
    filters = products.weights(lambda data: _in_phases(t, phases, data), 0)
    count = math.prod(phases.stride)
    top, left, bottom, right = phases.pads
    image = products.operand(2)
    if min(bottom, right) < 0:  # the last inputs belong to no output
        image = t("Slice", image, (0, 0), (size[1] + min(bottom, 0), size[2] + min(right, 0)), (1, 2))
    image = t("Transpose", image, perm=NCHW_OF_NHWC)
    pads = [top, left, max(bottom, 0), max(right, 0)]
    sums = t("Conv", image, filters, *products.bias(outputs, count), kernel_shape=phases.taps, pads=pads)
    _interleave(t, phases, products.rescaled_image(t("Transpose", sums, perm=NHWC_OF_NCHW), count))


def _in_phases(t: Translation, phases: Phases, weights: Array) -> Array:
    """Return weights [O, KH, KW, C] as those of the phases, OIHW; missing taps are the zero point."""
    points = np.unique(t.tensor(1).zero_point)
    if points.size != 1:
        raise Unsupported(f"its weights have {plural.count(points.size, 'zero point')}; expected one")
    t.afford(2 * math.prod((*phases.taps, *phases.stride)) * weights.shape[0] * weights.shape[3])
    centred = weights.astype(np.int16) - points[0]
    result: Array = phases.filters(centred.transpose(3, 0, 1, 2)).transpose(0, 3, 1, 2) + points[0]
    return result.astype(weights.dtype)


def _interleave(t: Translation, phases: Phases, grid: str) -> None:
    """Set the output to [N, QH, QW, SH * SW * O], interleaved, without the padding."""
    batch, height, width, channels = t.numbers(0, "the output's shape")
    apart = t("Reshape", grid, (batch, *phases.quotients, *phases.stride, channels))
    transposed = t("Transpose", apart, perm=[0, 1, 3, 2, 4, 5])
    sizes = [count * stride for count, stride in zip(phases.quotients, phases.stride, strict=True)]
    image = t("Reshape", transposed, (batch, *sizes, channels))
    if (height, width) != tuple(sizes):
        image = t("Slice", image, phases.pad, (phases.pad[0] + height, phases.pad[1] + width), (1, 2))
    t.put(image)


def flat_rows(products: Real) -> tuple[str, int]:
    """Return the input of FULLY_CONNECTED as rows, and the number of outputs of each.

    Raises:
        Unsupported: the weights do not fit the input.
    """
    t = products.t
    if t.op.option("WeightsFormat"):
        raise Unsupported("shuffled weights are not supported")
    shape, (channels, depth) = t.shape(0), t.shape(1, 2)
    if not depth or math.prod(shape) % depth or not shape:
        raise Unsupported(f"its weights are for {depth} inputs; its input is {list(shape)}")
    if len(shape) == 2 and shape[1] == depth:
        return products.operand(0), channels
    tensor, flat = t.tensor(0), (math.prod(shape) // depth, depth)
    if tensor.is_quantized and tensor.scale.size == 1:
        return products.operand(0, t("Reshape", t.stored(0), flat)), channels
    rows = t("Reshape", t.real(0), flat)
    return products.operand(0, rows) if isinstance(products, Hybrid) else rows, channels


def unflat(t: Translation, rows: str, channels: int) -> str:
    """Return rows of results in the shape of FULLY_CONNECTED's output."""
    shape = t.shape(0)
    if t.op.option("KeepNumDims") and len(shape) != 2:
        return t("Reshape", rows, (*shape[:-1], channels))
    return rows


def fully_connected(arithmetic: type[Real]) -> Translate:
    """FULLY_CONNECTED: weights [out, in]; the input is flattened, except with KeepNumDims."""

    def translate(t: Translation) -> None:
        products = (Real if t.tensor(1).block else arithmetic)(t)
        _check_kernel_reads(t)
        x, channels = flat_rows(products)
        is_variable = type(products) is Real and t.weights(1).data is None
        w = t.real(1) if is_variable else products.weights(lambda data: data, 0)
        products.put_rows(t("Gemm", x, w, *products.bias(channels), transB=1), channels)

    return translate


def batch_matmul(arithmetic: type[Real]) -> Translate:
    """BATCH_MATMUL: numpy.matmul, with either operand transposed; int16 in 64-bit sums."""

    def translate(t: Translation) -> None:
        products, operands = arithmetic(t), []
        for index, option in ((0, "AdjX"), (1, "AdjY")):
            value, rank = products.factor(index), len(t.shape(index))
            if rank < 2:
                raise Unsupported(f"its input {index} has {rank} dimensions; expected at least 2")
            if t.op.option(option):
                value = t("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])
            operands.append(value)
        products.put_product(t("MatMul", *operands))

    return translate
