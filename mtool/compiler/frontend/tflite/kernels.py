"""Convolutions and matrix products."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tflite

from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.tflite.description import Tensor
from mtool.compiler.frontend.tflite.translation import Translation
from mtool.compiler.ir.types import Array


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


def _conv(t: Translation) -> None:
    shape, geometry = of_conv(t)
    _finish(t, weights(t, 1, lambda data: data.transpose(0, 3, 1, 2), 0), shape[0], geometry)


def _conv_3d(t: Translation) -> None:
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


def _depthwise(t: Translation) -> None:
    shape, geometry = of_depthwise(t)
    _finish(t, weights(t, 1, lambda data: data.transpose(3, 0, 1, 2), 0), shape[3], geometry)


def _finish(t: Translation, filters: str, channels: int, geometry: Geometry) -> None:
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


def _transpose_conv(t: Translation) -> None:
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


def _fully_connected(t: Translation) -> None:
    """FULLY_CONNECTED: weights [out, in]; the input is flat, but for KeepNumDims."""
    x, channels = flat_rows(t)
    w = t.real(1) if t.weights(1).data is None else weights(t, 1, lambda data: data, 0)
    made = t.node("Gemm", [x, w, *filter(None, [bias(t, 2, channels, 0, 1)])], transB=1)
    t.store(unflat(t, t.activated(made, t.op.option("FusedActivationFunction")), channels))


def _batch_matmul(t: Translation) -> None:
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


TRANSLATIONS = {
    "CONV_2D": _conv,
    "CONV_3D": _conv_3d,
    "DEPTHWISE_CONV_2D": _depthwise,
    "TRANSPOSE_CONV": _transpose_conv,
    "FULLY_CONNECTED": _fully_connected,
    "BATCH_MATMUL": _batch_matmul,
}
