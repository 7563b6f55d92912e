"""TFLite's integer arithmetic as nodes: sums of integers less their zero points, and their scaling to other grids."""

from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.compiler.frontend.tflite.fixed_point import limits, multipliers
from mtool.compiler.frontend.tflite.schema import Tensor
from mtool.compiler.frontend.tflite.translation import Translate, Translation
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.problems import OWN, Unsupported

INT32 = np.dtype(np.int32)
EIGHT_BITS = (np.dtype(np.int8), np.dtype(np.uint8))


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


def checked(translate: Translate, *operands: int) -> Translate:
    """A translator of 8-bit integers, or of int16 around 0, that checks these inputs and the output first."""

    def with_check(t: Translation) -> None:
        eight_bits(t, *operands, wide=True)
        translate(t)

    return with_check


def rescale(
    t: Translation, value: str, scales: Array, out: Tensor | None = None, *, axis: int = 0, twice: bool = True
) -> str:
    """Append a Rescale, to the grid of `out` behind the fused activation, or to int32."""
    return rescale_by(t, value, *multipliers(scales), out, axis=axis, twice=twice)


def rescale_by(
    t: Translation, value: str, by: Array, shifts: Array, out: Tensor | None, *, axis: int = 0, twice: bool = True
) -> str:
    """Append a Rescale by multipliers and shifts."""
    if out is None:
        return rescale_to(t, value, by, shifts, INT32, axis=axis, twice=twice)
    bounds = limits(out, t.op.option("FusedActivationFunction"))
    point = int(out.zero_point[0])
    return rescale_to(t, value, by, shifts, out.dtype, point, bounds, axis=axis, twice=twice)


def rescale_to(
    t: Translation,
    value: str,
    by: Array,
    shifts: Array,
    dtype: "np.dtype[Any]",
    point: int = 0,
    bounds: tuple[int, int] | None = None,
    *,
    axis: int = 0,
    twice: bool = True,
) -> str:
    """Append a Rescale to integers of a type, all that it has or those between two bounds."""
    names = t.constant("multiplier", by), t.constant("shift", shifts)
    low, high = bounds or (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    return t.node(
        "Rescale",
        [value, *names],
        domain=OWN,
        axis=axis,
        zero_point=point,
        low=low,
        high=max(low, high),
        twice=int(twice),
        to=helper.np_dtype_to_tensor_dtype(dtype),
    )


def kept_of(out: Tensor, activation: int = 0) -> dict[str, Any]:
    """Return the limits and the type of an output behind a fused activation, as attributes."""
    low, high = limits(out, activation)
    return {"low": low, "high": max(low, high), "to": helper.np_dtype_to_tensor_dtype(out.dtype)}


def rescale_long(t: Translation, value: str, scales: Array, out: Tensor, *, axis: int = 0, activation: int = 0) -> str:
    """Append a RescaleLong of sums of 64 bits to the grid of `out`, by multipliers of 15 bits."""
    by, shift = multipliers(scales)
    reduced = np.where(by < 0x7FFF0000, (by.astype(np.int64) + (1 << 15)) >> 16, 0x7FFF)
    shifts = shift.astype(np.int64) + 16
    if (shifts < 1).any():
        raise Unsupported("its sums are scaled up too far")
    names = t.constant("multiplier", reduced, np.int32), t.constant("shift", shifts, np.int8)
    kept = kept_of(out, activation)
    return t.node("RescaleLong", [value, *names], domain=OWN, axis=axis, zero_point=out.zero, **kept)


def rescale_real(t: Translation, value: str, scales: Array, out: Tensor, *, axis: int, activation: int = 0) -> str:
    """Append a RescaleReal of sums to the grid of `out`, by numbers of float64."""
    names, kept = [value, t.constant("scale", scales, np.float64)], kept_of(out, activation)
    return t.node("RescaleReal", names, domain=OWN, axis=axis, zero_point=out.zero, **kept)


def unscaled(t: Translation, name: str, tensor: Tensor, scale: float = 1.0, point: int | None = None) -> str:
    """Return the integers of a tensor, less its zero point or another, as float32; `scale` times that."""
    points = tensor.zero_point if point is None else np.asarray([point])
    return t.dequantise(name, tensor.dtype, np.asarray([scale], np.float32), points)


def plain(t: Translation, name: str, dtype: "np.dtype[Any]") -> str:
    """Return integers as whole numbers of float32."""
    return t.dequantise(name, dtype, np.ones(1, np.float32), np.zeros(1, np.int64))


def centred(t: Translation, index: int) -> str:
    """Return an input's integers less its zero point, as int32."""
    return centred_of(t, t.stored(index), t.tensor(index))


def centred_of(t: Translation, name: str, tensor: Tensor) -> str:
    """Return integers of a tensor's type less its zero point, as int32."""
    wide = widened(t, name)
    return t.node("Sub", [wide, t.constant("zero_point", tensor.zero, np.int32)]) if tensor.zero else wide


def widened(t: Translation, name: str) -> str:
    """Return integers as int32."""
    return t.node("Cast", [name], to=onnx.TensorProto.INT32)


def requantised(t: Translation) -> str:
    """Return an input of one scale on the grid of the output."""
    x, out = t.tensor(0), t.result()
    if x.scale.size != 1 or out.scale.size != 1:
        raise Unsupported(f"it has {x.scale.size} and {out.scale.size} scales")
    by, shifts = multipliers(np.asarray([float(x.scale[0]) / float(out.scale[0])]))
    made = rescale_to(t, centred(t, 0), by, shifts, out.dtype, 0 if out.dtype == np.int32 else out.zero)
    if out.dtype == np.int32 and out.zero:
        made = t.node("Add", [made, t.constant("zero_point", out.zero, np.int32)])
    return made


def clamped(t: Translation, value: str, low: int, high: int) -> str:
    """Return int32 numbers clamped to two bounds."""
    return t.node("Clip", [value, t.constant("low", low, np.int32), t.constant("high", high, np.int32)])


def divided(t: Translation, value: str, count: int) -> str:
    """Return int32 numbers divided by a count, ties away from zero."""
    bounds = np.iinfo(np.int32)
    to = onnx.TensorProto.INT32
    divisor = t.constant("count", count, np.int32)
    return t.node("RoundedMean", [value, divisor], domain=OWN, low=int(bounds.min), high=int(bounds.max), to=to)
