"""Operators on images without weights: pooling, resizing, space and depth, space and batch."""

import functools
import math
from typing import Any

import numpy as np

from mtool.compiler.frontend.tflite.fixed_point import limits
from mtool.compiler.frontend.tflite.products import padding, steps
from mtool.compiler.frontend.tflite.rescaling import clamp_to, eight_bits, unscaled, whole
from mtool.compiler.frontend.tflite.translation import (
    GRIDS,
    NCHW_OF_NHWC,
    NHWC_OF_NCHW,
    Operand,
    Translate,
    Translation,
)
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.problems import Unsupported


def window(t: Translation) -> dict[str, Any]:
    """Return a pool's window, strides and pads, as attributes."""
    kernel = t.op.option("FilterHeight"), t.op.option("FilterWidth")
    if min(kernel) < 1:
        raise Unsupported(f"its window {kernel[0]} x {kernel[1]} is not valid")
    strides = steps(t, "Stride{}")
    pads = padding(t.op.option("Padding"), t.shape(0, 4)[1:3], kernel, strides)
    return {"kernel_shape": kernel, "strides": strides, "pads": pads}


def average_pool(t: Translation) -> None:
    """Append AVERAGE_POOL_2D."""
    t.store_image(t.activated(t("AveragePool", t.image(0), **window(t), count_include_pad=0)))


def l2_pool(t: Translation) -> None:
    """L2_POOL_2D: the square root of the mean of the squares."""
    x = t.image(0)
    mean = t("AveragePool", t("Mul", x, x), **window(t), count_include_pad=0)
    t.store_image(t.activated(t("Sqrt", mean)))


def max_pool(t: Translation) -> None:
    """MAX_POOL_2D, on the stored integers where the output has the same quantization."""
    if t.same_grid(0) and not t.activation and t.result().dtype.name != "int16":
        _put_moved(t, "MaxPool", **window(t))
    else:
        t.store_image(t.activated(t("MaxPool", t.image(0), **window(t))))


def _put_moved(t: Translation, kind: str, *more: Operand, **attrs: Any) -> None:
    """Set the output to an operator's result for the stored image."""
    image = t("Transpose", t.stored(0), perm=NCHW_OF_NHWC)
    t.put(t("Transpose", t(kind, image, *more, **attrs), perm=NHWC_OF_NCHW))


def resize(mode: str) -> Translate:
    """Append RESIZE_BILINEAR, RESIZE_NEAREST_NEIGHBOR."""

    def translate(t: Translation) -> None:
        batch, _, _, channels = t.shape(0, 4)
        size, corners, centres = _resized(t)
        transform = "align_corners" if corners else "half_pixel" if centres else "asymmetric"
        attrs: dict[str, str] = {"coordinate_transformation_mode": transform, "mode": mode}
        if mode == "nearest":
            attrs["nearest_mode"] = "round_prefer_ceil" if corners or centres else "floor"
        sizes = (batch, channels, *size)
        if mode == "nearest" and t.tensor(0).dtype == t.result().dtype:  # moves stored elements, as in LiteRT
            _put_moved(t, "Resize", "", "", sizes, **attrs)
        else:
            t.store_image(t("Resize", t.image(0), "", "", sizes, **attrs))

    return translate


def _resized(t: Translation) -> tuple[list[int], bool, bool]:
    """Return height and width of the resized image, and whether corners or pixel centres are aligned."""
    size, corners, centres = t.numbers(1, "the size"), t.op.option("AlignCorners"), t.op.option("HalfPixelCenters")
    if len(size) != 2 or min(size) < 1:
        raise Unsupported(f"its size {size} is not valid")
    if corners and centres:
        raise Unsupported("align_corners and half_pixel_centers exclude each other")
    return size, corners, centres


def blocks(kind: str, **fixed: str) -> Translate:
    """SPACE_TO_DEPTH, DEPTH_TO_SPACE: TensorFlow's order of the channels is ONNX's DCR."""

    def translate(t: Translation) -> None:
        t.shape(0, 4)
        t.check_grid(0)
        _put_moved(t, kind, blocksize=t.op.option("BlockSize"), **fixed)

    return translate


def space_to_batch(t: Translation) -> None:
    """SPACE_TO_BATCH_ND: pad, split each spatial axis into blocks, move the position in the block to the front."""
    shape, block = t.shape(0), t.numbers(1, "the block")
    pads = np.reshape(t.data(2, "the pads"), (-1, 2)).tolist()
    spatial = len(block)
    if len(pads) != spatial or len(shape) <= spatial or not t.same_grid(0) or min(block, default=0) < 1:
        raise Unsupported(f"its block {block} and pads {pads} do not fit its input {list(shape)}")
    value = t.stored(0)
    rest = len(shape) - 1 - spatial
    if np.any(pads):
        ends = [0, *(p[0] for p in pads), *[0] * rest, 0, *(p[1] for p in pads), *[0] * rest]
        value = t("Pad", value, ends, np.asarray(t.tensor(0).zero, t.tensor(0).dtype))
    sizes = [n + a + b for n, (a, b) in zip(shape[1:], pads, strict=False)]
    if any(size % b for size, b in zip(sizes, block, strict=True)):
        raise Unsupported(f"its padded size {sizes} is not a multiple of its block {block}")
    blocks = [size // b for size, b in zip(sizes, block, strict=True)]
    cut = [shape[0], *(n for pair in zip(blocks, block, strict=True) for n in pair), *shape[1 + spatial :]]
    inner, outer = [2 + 2 * n for n in range(spatial)], [1 + 2 * n for n in range(spatial)]
    value = t("Transpose", t("Reshape", value, cut), perm=[*inner, 0, *outer, *range(1 + 2 * spatial, len(cut))])
    t.put(t("Reshape", value, [shape[0] * math.prod(block), *blocks, *shape[1 + spatial :]]))


def batch_to_space(t: Translation) -> None:
    """BATCH_TO_SPACE_ND: the inverse, then crop."""
    shape, block = t.shape(0), t.numbers(1, "the block")
    crops = np.reshape(t.data(2, "the crops"), (-1, 2)).tolist()
    spatial, count = len(block), int(np.prod(block))
    if len(crops) != spatial or len(shape) <= spatial or count < 1 or shape[0] % count or not t.same_grid(0):
        raise Unsupported(f"its block {block} and crops {crops} do not fit its input {list(shape)}")
    batch, sizes, rest = shape[0] // count, shape[1 : 1 + spatial], shape[1 + spatial :]
    value = t("Reshape", t.stored(0), [*block, batch, *sizes, *rest])
    woven = [dim for n in range(spatial) for dim in (spatial + 1 + n, n)]
    value = t("Transpose", value, perm=[spatial, *woven, *range(2 * spatial + 1, 2 * spatial + 1 + len(rest))])
    grown = [size * b for size, b in zip(sizes, block, strict=True)]
    value = t("Reshape", value, [batch, *grown, *rest])
    ends = [size - crop[1] for size, crop in zip(grown, crops, strict=True)]
    t.put(t("Slice", value, [crop[0] for crop in crops], ends, range(1, 1 + spatial)))


def exact_average_pool(t: Translation) -> None:
    """AVERAGE_POOL_2D: the sum of the integers in the window, divided with ties away from zero."""
    eight_bits(t, 0, wide=True)
    attrs = window(t)
    t.check_grid(0)
    count, channels, is_padded = math.prod(attrs["kernel_shape"]), t.shape(0)[3], any(attrs["pads"])
    by_products = is_padded or t.result().dtype == np.int16
    scaled = unscaled(t, t.stored(0), t.tensor(0), 1.0 if by_products else float(count), 0)
    image = t("Transpose", scaled, perm=NCHW_OF_NHWC)
    if by_products:
        t.afford(channels * count)
        ones = t.constant("ones", np.ones((channels, 1, *attrs["kernel_shape"]), np.int8))
        sums = t("Conv", image, whole(t, ones, np.dtype(np.int8)), group=channels, **attrs)
    else:
        sums = t("AveragePool", image, **attrs)
    divisor = t.constant("count", _inside(t, **attrs) if is_padded else count, np.int32)
    sums = t("Transpose", sums, perm=NHWC_OF_NCHW)
    t.put(t("RoundedMean", sums, divisor, **clamp_to(t.result(), t.activation)))


def exact_max_pool(t: Translation) -> None:
    """MAX_POOL_2D of the stored integers, clamped to the activation's limits."""
    t.check_grid(0)
    kind = t.result().dtype
    value = t("Transpose", t.stored(0), perm=NCHW_OF_NHWC)
    if kind == np.int16:  # MaxPool has no int16; float32 represents it exactly
        value = t.cast(value, np.float32)
    value = t("Transpose", t("MaxPool", value, **window(t)), perm=NHWC_OF_NCHW)
    if t.activation:
        low, high = limits(t.result(), t.activation)
        value = t("Clip", t.cast(value, np.int32), low, max(low, high))
    t.put(t.cast(value, kind) if t.activation or kind == np.int16 else value)


def _inside(t: Translation, kernel_shape: tuple[int, int], strides: tuple[int, int], pads: list[int]) -> Array:
    """Return the number of the window's elements inside the image, [1, height, width, 1] of the output."""
    counts, image = [], t.shape(0)[1:3]
    sides = zip(image, pads, pads[2:], kernel_shape, strides, strict=False)
    out_size = [(n + a + b - k) // s + 1 for n, a, b, k, s in sides]
    t.afford(8 * math.prod(out_size))
    for axis, size in enumerate(image):
        first = np.arange(out_size[axis]) * strides[axis] - pads[axis]
        counts.append(np.minimum(first + kernel_shape[axis], size) - np.maximum(first, 0))
    inside: Array = np.maximum(np.outer(*counts), 1)[None, :, :, None]
    return inside


FRACTION_BITS = 10  # fractional bits of a position between two pixels


def exact_resize_bilinear(t: Translation) -> None:
    """RESIZE_BILINEAR of the integers in fixed point, int16 in 64 bits; uint8 in float32."""
    _, height, width, _ = t.shape(0, 4)
    x, (size, _, _) = t.tensor(0), _resized(t)
    if min(height, width) < 1:
        raise Unsupported(f"its input {list(x.shape)} is not an image")
    if x.dtype.name not in GRIDS or not t.same_grid(0):
        raise Unsupported(f"its input type {x.dtype} is not supported, or its output has another quantization")
    neighbours = _neighbours_by_floats if x.dtype == np.uint8 else _neighbours
    rows, columns = (neighbours(t, n, count) for n, count in ((height, size[0]), (width, size[1])))
    dtype = {"uint8": np.float32, "int8": np.int32, "int16": np.int64}[x.dtype.name]
    image = t.cast(t.stored(0), dtype)
    terms = []
    for column in (0, 1):
        for row in (0, 1):
            at = t("Gather", image, t.constant("rows", rows[row], np.int32), axis=1)
            at = t("Gather", at, t.constant("columns", columns[column], np.int32), axis=2)
            at = t("Mul", at, t.constant("weights", rows[2 + row].reshape(1, -1, 1, 1), dtype))
            terms.append(t("Mul", at, t.constant("weights", columns[2 + column].reshape(1, 1, -1, 1), dtype)))
    total, one = functools.reduce(lambda a, b: t("Add", a, b), terms), 1 << (2 * FRACTION_BITS)
    if x.dtype == np.int8:
        t.put(t("RoundedMean", total, one, **clamp_to(x)))
    elif x.dtype == np.uint8:
        t.put(t.cast(t.cast(t("Add", total, 0.5), np.int32), x.dtype))
    else:
        half = t("Where", t("Greater", total, np.int64(0)), np.int64(one // 2), np.int64(-one // 2))
        t.put(t.cast(t("Div", t("Add", total, half), np.int64(one)), x.dtype))


def _neighbours(t: Translation, size: int, out: int) -> tuple[Array, Array, Array, Array]:
    """Return, for each output pixel, the two input pixels around it, and their weights in units of 1/1024."""
    one = 1 << FRACTION_BITS
    step = (one * size + out // 2) // out
    if t.op.option("AlignCorners") and out > 1:
        step = (one * (size - 1) + (out - 1) // 2) // (out - 1)
    at = np.arange(out, dtype=np.int64) * step
    if t.op.option("HalfPixelCenters"):
        at += step // 2 - one // 2
    first = np.maximum(np.trunc(at / one).astype(np.int64), 0)
    last = np.minimum(np.trunc((at + one - 1) / one).astype(np.int64), size - 1)
    share = at - one * first
    return np.minimum(first, size - 1), last, one - share, share


def _neighbours_by_floats(t: Translation, size: int, out: int) -> tuple[Array, Array, Array, Array]:
    """Return the same with float32 weights."""
    step = np.float32(size) / np.float32(out)
    if t.op.option("AlignCorners") and out > 1:
        step = np.float32(size - 1) / np.float32(out - 1)
    at: Any = np.arange(out).astype(np.float32)
    half = np.float32(0.5)
    at = (at + half) * step - half if t.op.option("HalfPixelCenters") else at * step
    first = np.maximum(np.floor(at).astype(np.int64), 0)
    last = np.minimum(np.ceil(at).astype(np.int64), size - 1)
    share = at - first.astype(np.float32)
    return np.minimum(first, size - 1), last, np.float32(1) - share, share
