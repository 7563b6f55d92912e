"""Operators on images without weights: pooling, resizing, space and depth, space and batch."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.tflite.kernels import padding, pair
from mtool.compiler.frontend.tflite.translation import NCHW_OF_NHWC, NHWC_OF_NCHW, Translation


def window(t: Translation) -> tuple[tuple[int, int], tuple[int, int], list[int]]:
    """Return a pool's window, strides and pads."""
    kernel = t.op.option("FilterHeight"), t.op.option("FilterWidth")
    if min(kernel) < 1:
        raise Unsupported(f"its window is {kernel[0]} x {kernel[1]}")
    strides = pair(t, "Stride")
    return kernel, strides, padding(t.op.option("Padding"), t.shape(0, 4)[1:3], kernel, strides)


def _average_pool(t: Translation) -> None:
    kernel, strides, pads = window(t)
    made = t.node("AveragePool", [t.image(0)], kernel_shape=kernel, strides=strides, pads=pads, count_include_pad=0)
    t.store_image(t.activated(made, t.op.option("FusedActivationFunction")))


def _l2_pool(t: Translation) -> None:
    """L2_POOL_2D: the root of the mean of the squares."""
    kernel, strides, pads = window(t)
    x = t.image(0)
    squares = t.node("Mul", [x, x])
    made = t.node("AveragePool", [squares], kernel_shape=kernel, strides=strides, pads=pads, count_include_pad=0)
    t.store_image(t.activated(t.node("Sqrt", [made]), t.op.option("FusedActivationFunction")))


def max_pool(t: Translation) -> None:
    """MAX_POOL_2D, of the integers themselves where the output stands on the same grid."""
    kernel, strides, pads = window(t)
    attrs: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    if t.same_grid(0) and not t.op.option("FusedActivationFunction") and t.result().dtype.name != "int16":
        image = t.node("Transpose", [t.stored(0)], perm=NCHW_OF_NHWC)
        t.put(t.node("Transpose", [t.node("MaxPool", [image], **attrs)], perm=NHWC_OF_NCHW))
        return
    made = t.node("MaxPool", [t.image(0)], **attrs)
    t.store_image(t.activated(made, t.op.option("FusedActivationFunction")))


def _resize(mode: str) -> Callable[[Translation], None]:
    def translate(t: Translation) -> None:
        batch, _, _, channels = t.shape(0, 4)
        size = t.numbers(1, "the size")
        if len(size) != 2 or min(size) < 1:
            raise Unsupported(f"its size is {size}")
        corners, centres = t.op.option("AlignCorners"), t.op.option("HalfPixelCenters")
        if corners and centres:
            raise Unsupported("it has both align_corners and half_pixel_centers, which exclude each other")
        how = "align_corners" if corners else "half_pixel" if centres else "asymmetric"
        attrs: dict[str, str] = {"coordinate_transformation_mode": how, "mode": mode}
        if mode == "nearest":
            attrs["nearest_mode"] = "round_prefer_ceil" if corners or centres else "floor"
        sizes = t.whole("sizes", (batch, channels, *size))
        if mode == "nearest" and t.tensor(0).dtype == t.result().dtype:  # moved as stored, as LiteRT does
            image = t.node("Transpose", [t.stored(0)], perm=NCHW_OF_NHWC)
            t.put(t.node("Transpose", [t.node("Resize", [image, "", "", sizes], **attrs)], perm=NHWC_OF_NCHW))
        else:
            t.store_image(t.node("Resize", [t.image(0), "", "", sizes], **attrs))

    return translate


def _moved(kind: str, **fixed: str) -> Callable[[Translation], None]:
    """SPACE_TO_DEPTH, DEPTH_TO_SPACE: TensorFlow's order of the channels is ONNX's DCR."""

    def translate(t: Translation) -> None:
        t.shape(0, 4)
        if not t.same_grid(0):
            raise Unsupported("its input and output stand on different grids")
        image = t.node("Transpose", [t.stored(0)], perm=NCHW_OF_NHWC)
        made = t.node(kind, [image], blocksize=t.op.option("BlockSize"), **fixed)
        t.put(t.node("Transpose", [made], perm=NHWC_OF_NCHW))

    return translate


def _space_to_batch(t: Translation) -> None:
    """SPACE_TO_BATCH_ND: pad, cut each spatial axis into blocks, bring the position within the block to the front."""
    shape, block = t.shape(0), t.numbers(1, "the block")
    pads = np.reshape(t.known(2, "the pads"), (-1, 2)).tolist()
    spatial = len(block)
    if len(pads) != spatial or len(shape) <= spatial or not t.same_grid(0) or min(block, default=0) < 1:
        raise Unsupported(f"its input is {list(shape)}, its block {block}, its pads {pads}")
    value = t.stored(0)
    rest = len(shape) - 1 - spatial
    if np.any(pads):
        ends = [0, *(p[0] for p in pads), *[0] * rest, 0, *(p[1] for p in pads), *[0] * rest]
        point = t.tensor(0).zero_point[0] if t.tensor(0).is_quantised else 0
        value = t.node("Pad", [value, t.whole("pads", ends), t.constant("value", point, t.tensor(0).dtype)])
    sizes = [n + a + b for n, (a, b) in zip(shape[1:], pads, strict=False)]
    if any(size % b for size, b in zip(sizes, block, strict=True)):
        raise Unsupported(f"its padded size is {sizes}, its block {block}")
    cut = [shape[0], *(n for size, b in zip(sizes, block, strict=True) for n in (size // b, b)), *shape[1 + spatial :]]
    inner, outer = [2 + 2 * n for n in range(spatial)], [1 + 2 * n for n in range(spatial)]
    value = t.node("Reshape", [value, t.whole("cut", cut)])
    value = t.node("Transpose", [value], perm=[*inner, 0, *outer, *range(1 + 2 * spatial, len(cut))])
    blocks = [size // b for size, b in zip(sizes, block, strict=True)]
    whole = [shape[0] * int(np.prod(block)), *blocks, *shape[1 + spatial :]]
    t.put(t.node("Reshape", [value, t.whole("whole", whole)]))


def _batch_to_space(t: Translation) -> None:
    """BATCH_TO_SPACE_ND: the other way round, then crop."""
    shape, block = t.shape(0), t.numbers(1, "the block")
    crops = np.reshape(t.known(2, "the crops"), (-1, 2)).tolist()
    spatial, count = len(block), int(np.prod(block))
    if len(crops) != spatial or len(shape) <= spatial or count < 1 or shape[0] % count or not t.same_grid(0):
        raise Unsupported(f"its input is {list(shape)}, its block {block}, its crops {crops}")
    batch, sizes, rest = shape[0] // count, shape[1 : 1 + spatial], shape[1 + spatial :]
    value = t.node("Reshape", [t.stored(0), t.whole("cut", [*block, batch, *sizes, *rest])])
    woven = [dim for n in range(spatial) for dim in (spatial + 1 + n, n)]
    value = t.node("Transpose", [value], perm=[spatial, *woven, *range(2 * spatial + 1, 2 * spatial + 1 + len(rest))])
    grown = [size * b for size, b in zip(sizes, block, strict=True)]
    value = t.node("Reshape", [value, t.whole("whole", [batch, *grown, *rest])])
    starts = [crop[0] for crop in crops]
    ends = [size - crop[1] for size, crop in zip(grown, crops, strict=True)]
    axes = t.whole("axes", range(1, 1 + spatial))
    t.put(t.node("Slice", [value, t.whole("starts", starts), t.whole("ends", ends), axes]))


TRANSLATIONS = {
    "AVERAGE_POOL_2D": _average_pool,
    "MAX_POOL_2D": max_pool,
    "L2_POOL_2D": _l2_pool,
    "RESIZE_BILINEAR": _resize("linear"),
    "RESIZE_NEAREST_NEIGHBOR": _resize("nearest"),
    "SPACE_TO_DEPTH": _moved("SpaceToDepth"),
    "DEPTH_TO_SPACE": _moved("DepthToSpace", mode="DCR"),
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "BATCH_TO_SPACE_ND": _batch_to_space,
}
