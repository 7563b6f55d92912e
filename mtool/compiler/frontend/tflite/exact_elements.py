"""Operators on elements in the arithmetic of TFLite's reference kernels that are neither sums of products nor tables of
a function: float32 to integers, other grids, HARD_SWISH, MAXIMUM, CONCATENATION, RESIZE_BILINEAR.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from mtool.compiler.frontend.problems import OWN, Unsupported
from mtool.compiler.frontend.tflite import movement
from mtool.compiler.frontend.tflite.description import Tensor
from mtool.compiler.frontend.tflite.fixed_point import multipliers
from mtool.compiler.frontend.tflite.rescaling import requantised, widened
from mtool.compiler.frontend.tflite.translation import Translation
from mtool.compiler.ir.types import Array

INTEGERS = ("int8", "uint8", "int16")
FRACTION_BITS = 10  # bits behind the point of a position between two pixels


def quantize(t: Translation) -> None:
    """QUANTIZE: of float32, rounded with ties away from zero, or of integers."""
    x, out = t.tensor(0), t.result()
    if x.dtype != np.float32:
        t.put(requantised(t))
        return
    if out.dtype.name not in INTEGERS or out.scale.size != 1:
        raise Unsupported(f"its output is {out.dtype} with {out.scale.size} scales")
    bounds, point = np.iinfo(out.dtype), out.zero
    scaled = t.node("Div", [t.stored(0), t.constant("scale", out.scale[0], np.float32)])
    to = helper.np_dtype_to_tensor_dtype(out.dtype)
    low, high = int(bounds.min), int(bounds.max)
    t.put(t.node("RoundedSteps", [scaled], domain=OWN, zero_point=point, low=low, high=high, to=to))


def pick(kind: str) -> Callable[[Translation], None]:
    """MAXIMUM, MINIMUM: of the integers as they are stored."""

    def translate(t: Translation) -> None:
        if not t.same_grid(0, 1):
            raise Unsupported("its inputs and its output stand on different grids, which LiteRT does not heed")
        t.put(t.node(kind, [t.stored(0), t.stored(1)]))

    return translate


def concatenation(t: Translation) -> None:
    """CONCATENATION: of uint8 each input by a table of its own; others are copied."""
    operands = range(len(t.op.inputs))
    if t.same_grid(*operands):
        movement.TRANSLATIONS["CONCATENATION"](t)
        return
    out = t.result()
    if out.dtype != np.uint8 or any(t.tensor(index).dtype != np.uint8 for index in operands):
        raise Unsupported("its inputs and its output stand on different grids, which LiteRT has for uint8 only")
    parts = [t.stored(index) if _stands_on(t.tensor(index), out) else _moved(t, index, out) for index in operands]
    t.put(t.node("Concat", parts, axis=t.op.option("Axis")))


def _stands_on(tensor: Tensor, out: Tensor) -> bool:
    return bool(tensor.zero == out.zero and tensor.scale[0] == out.scale[0])


def _moved(t: Translation, index: int, out: Tensor) -> str:
    """Return an input on the grid of the output, by float32 arithmetic."""
    tensor = t.tensor(index)
    scale = tensor.scale[0] * (np.float32(1) / out.scale[0])
    steps = np.arange(256).astype(np.float32) * scale + np.float32(-tensor.zero) * scale
    results = np.clip(_rounded(steps) + out.zero, 0, 255)
    data = t.constant("table", results, np.uint8)
    return t.node("Table", [t.stored(index), data], domain=OWN, to=helper.np_dtype_to_tensor_dtype(out.dtype))


def _rounded(values: Array) -> Array:
    """Return whole numbers, ties away from zero."""
    wide = values.astype(np.float64)
    return (np.sign(wide) * np.floor(np.abs(wide) + 0.5)).astype(np.int64)


def hard_swish(t: Translation, x: Array) -> Array:
    """HARD_SWISH: x * relu6(x + 3) / 6 of integers less their zero point, in fixed point of 16 bits."""
    source, out = t.tensor(0), t.result()
    fine = np.float32(1 / 128) * source.scale[0]
    out_by, out_exponent = _of_16_bits(float(fine / out.scale[0]))
    by, exponent = _of_16_bits(float(fine / (np.float32(3) / np.float32(32768))))
    if out_exponent > 0:
        raise Unsupported("its output has a finer scale than LiteRT takes")
    hires = x * 128
    preshift = _product(hires, out_by)
    share = _saturated(hires << max(exponent - 1, 0))
    share = _product(share, by)
    share = _saturated(share * 2) if exponent > 0 else _divided(share, -exponent)
    share = (share + (1 << 15)) >> 1
    product = share * preshift
    steps = np.sign(product) * (np.abs(product) >> 15)  # towards zero
    bounds = np.iinfo(out.dtype)
    results: Array = np.clip(_divided(steps, -out_exponent) + out.zero, bounds.min, bounds.max)
    return results


def _of_16_bits(scale: float) -> tuple[int, int]:
    """Return a multiplier of 15 bits behind the point, and an exponent."""
    (by,), (shift,) = multipliers(np.asarray([scale]))
    exponent = -1 - int(shift)
    rounded = (int(by) + (1 << 15)) >> 16 if int(by) < 2**31 - 1 - (1 << 15) else 2**15 - 1
    return rounded, exponent


def _product(values: Array, by: int) -> Array:
    return (values * by + (1 << 14)) >> 15


def _saturated(values: Array) -> Array:
    return np.clip(values, -(2**15), 2**15 - 1)


def _divided(values: Array, bits: int) -> Array:
    """Return values / 2^bits, ties away from zero."""
    mask = (1 << bits) - 1
    found: Array = (values >> bits) + ((values & mask) > (mask >> 1) + (values < 0))
    return found


def resize_bilinear(t: Translation) -> None:
    """RESIZE_BILINEAR: of the integers, in fixed point, int16 in 64 bits; of uint8 in float32."""
    _, height, width, _ = t.shape(0, 4)
    size = t.numbers(1, "the size")
    x = t.tensor(0)
    if len(size) != 2 or min(size) < 1 or min(height, width) < 1:
        raise Unsupported(f"its size is {size}")
    if x.dtype.name not in INTEGERS or not t.same_grid(0):
        raise Unsupported(f"its input is {x.dtype}, or its output stands on another grid")
    if t.op.option("AlignCorners") and t.op.option("HalfPixelCenters"):
        raise Unsupported("it has both align_corners and half_pixel_centers, which exclude each other")
    neighbours = _neighbours_by_floats if x.dtype == np.uint8 else _neighbours
    rows, columns = (neighbours(t, n, count) for n, count in ((height, size[0]), (width, size[1])))
    dtype = {"uint8": np.float32, "int8": np.int32, "int16": np.int64}[x.dtype.name]
    image = t.node("Cast", [t.stored(0)], to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    terms = []
    for column in (0, 1):
        for row in (0, 1):
            at = t.node("Gather", [image, t.constant("rows", rows[row], np.int32)], axis=1)
            at = t.node("Gather", [at, t.constant("columns", columns[column], np.int32)], axis=2)
            at = t.node("Mul", [at, t.constant("weights", rows[2 + row].reshape(1, -1, 1, 1), dtype)])
            terms.append(t.node("Mul", [at, t.constant("weights", columns[2 + column].reshape(1, 1, -1, 1), dtype)]))
    total = terms[0]
    for term in terms[1:]:
        total = t.node("Add", [total, term])
    bounds = np.iinfo(x.dtype)
    low, high, to = int(bounds.min), int(bounds.max), helper.np_dtype_to_tensor_dtype(x.dtype)
    if x.dtype == np.uint8:
        whole = widened(t, t.node("Add", [total, t.constant("half", 0.5, np.float32)]))
        t.put(t.node("Cast", [whole], to=to))
        return
    one = 1 << (2 * FRACTION_BITS)
    if x.dtype == np.int16:
        positive = t.node("Greater", [total, t.constant("zero", 0, np.int64)])
        halves = (t.constant("half", half, np.int64) for half in (one // 2, -one // 2))
        moved = t.node("Add", [total, t.node("Where", [positive, *halves])])
        t.put(t.node("Cast", [t.node("Div", [moved, t.constant("one", one, np.int64)])], to=to))
        return
    count = t.constant("count", one, np.int32)
    t.put(t.node("RoundedMean", [total, count], domain=OWN, low=low, high=high, to=to))


def _neighbours(t: Translation, size: int, made: int) -> tuple[Array, Array, Array, Array]:
    """Return, for each pixel that is made, the two that it lies between, and what share of both it is, of 1024."""
    one = 1 << FRACTION_BITS
    step = (one * size + made // 2) // made
    if t.op.option("AlignCorners") and made > 1:
        step = (one * (size - 1) + (made - 1) // 2) // (made - 1)
    at = np.arange(made, dtype=np.int64) * step
    if t.op.option("HalfPixelCenters"):
        at += step // 2 - one // 2
    first = np.maximum(np.trunc(at / one).astype(np.int64), 0)
    last = np.minimum(np.trunc((at + one - 1) / one).astype(np.int64), size - 1)
    share = at - one * first
    return np.minimum(first, size - 1), last, one - share, share


def _neighbours_by_floats(t: Translation, size: int, made: int) -> tuple[Array, Array, Array, Array]:
    """Return the same with shares of 1, in float32."""
    step = np.float32(size) / np.float32(made)
    if t.op.option("AlignCorners") and made > 1:
        step = np.float32(size - 1) / np.float32(made - 1)
    at: Any = np.arange(made).astype(np.float32)
    half = np.float32(0.5)
    at = (at + half) * step - half if t.op.option("HalfPixelCenters") else at * step
    first = np.maximum(np.floor(at).astype(np.int64), 0)
    last = np.minimum(np.ceil(at).astype(np.int64), size - 1)
    share = at - first.astype(np.float32)
    return np.minimum(first, size - 1), last, np.float32(1) - share, share
