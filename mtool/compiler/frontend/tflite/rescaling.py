"""TFLite's integer arithmetic as nodes: sums of integers less their zero points, and requantization."""

from typing import Any

import numpy as np

from mtool.base import plural
from mtool.compiler.frontend.tflite.fixed_point import limits, multipliers, narrowed
from mtool.compiler.frontend.tflite.schema import Tensor
from mtool.compiler.frontend.tflite.translation import Translate, Translation
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.problems import Unsupported

EIGHT_BITS = (np.dtype(np.int8), np.dtype(np.uint8))
Scales = float | Array | tuple[Array, Array]
"""A scale, one per channel, or multipliers and shifts."""


def eight_bits(t: Translation, *operands: int, wide: bool = False) -> None:
    """Check that these inputs and the output are 8-bit integers with one scale; `wide`: or int16 with zero point 0.

    Raises:
        Unsupported: one is not.
    """
    tensors = [*(t.tensor(number) for number in operands), t.result()]
    if wide and all(tensor.dtype == np.int16 and tensor.scale.size == 1 and not tensor.zero for tensor in tensors):
        return
    for tensor in tensors:
        if tensor.dtype not in EIGHT_BITS or tensor.scale.size != 1:
            raise Unsupported(f"{tensor.name!r} is {tensor.dtype}; --rounding tflite needs 8 bits with one scale")


def checked(translate: Translate, *operands: int) -> Translate:
    """A translator of 8-bit integers, or int16 with zero point 0, that checks these inputs and the output first."""

    def with_check(t: Translation) -> None:
        eight_bits(t, *operands, wide=True)
        translate(t)

    return with_check


def rescale(t: Translation, value: str, by: Scales, out: Tensor, *, axis: int = 0, twice: bool = True) -> str:
    """Append a Rescale to the quantization of `out`, with the fused activation."""
    return rescale_to(t, value, by, out.dtype, out.zero, limits(out, t.activation), axis=axis, twice=twice)


def rescale_to(
    t: Translation, value: str, by: Scales, dtype: Any = np.int32, point: int = 0, bounds: tuple[int, ...] = (),
    *, axis: int = 0, twice: bool = True,
) -> str:  # fmt: skip
    """Append a Rescale to integers of a type, clamped to its range or to two bounds."""
    multiplier, shift = by if isinstance(by, tuple) else multipliers(by)
    low, high = bounds or (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    return t(
        "Rescale", value, t.constant("multiplier", multiplier), t.constant("shift", shift), axis=axis,
        zero_point=point, low=low, high=max(low, high), twice=int(twice), to=dtype,
    )  # fmt: skip


def clamp_to(out: Tensor, activation: int = 0) -> dict[str, Any]:
    """Return the limits and the type of an output with a fused activation, as attributes."""
    low, high = limits(out, activation)
    return {"low": low, "high": max(low, high), "to": out.dtype}


def rescale_long(t: Translation, value: str, scales: Array, out: Tensor, *, axis: int = 0, activation: int = 0) -> str:
    """Append a RescaleLong of 64-bit sums to the quantization of `out`, by 15-bit multipliers."""
    by, shift = multipliers(scales)
    shifts = shift.astype(np.int64) + 16
    if (shifts < 1).any():
        raise Unsupported("the scale of its sums is too large for its output")
    names = t.constant("multiplier", narrowed(by), np.int32), t.constant("shift", shifts, np.int8)
    return t("RescaleLong", value, *names, axis=axis, zero_point=out.zero, **clamp_to(out, activation))


def unscaled(t: Translation, name: str, tensor: Tensor, scale: float = 1.0, point: int | None = None) -> str:
    """Return `scale` times the integers of a tensor, less its zero point or `point`, as float32."""
    points = tensor.zero_point if point is None else np.asarray([point])
    return t.dequantize(name, tensor.dtype, np.asarray([scale], np.float32), points)


def whole(t: Translation, name: str, dtype: "np.dtype[Any]") -> str:
    """Return integers as float32 numbers of the same value."""
    return t.dequantize(name, dtype, np.ones(1, np.float32), np.zeros(1, np.int64))


def centred(t: Translation, index: int) -> str:
    """Return an input's integers less its zero point, as int32."""
    return centred_of(t, t.stored(index), t.tensor(index))


def centred_of(t: Translation, name: str, tensor: Tensor) -> str:
    """Return integers of a tensor's type less its zero point, as int32."""
    wide = t.cast(name, np.int32)
    return t("Sub", wide, tensor.zero) if tensor.zero else wide


def requantized(t: Translation) -> str:
    """Return a per-tensor quantized input with the output's quantization."""
    x, out = t.tensor(0), t.result()
    if x.scale.size != 1 or out.scale.size != 1:
        raise Unsupported(
            f"its input has {plural.count(x.scale.size, 'scale')}, its output {out.scale.size}; expected one each"
        )
    wide = out.dtype == np.int32
    scale = float(x.scale[0]) / float(out.scale[0])
    result = rescale_to(t, centred(t, 0), scale, out.dtype, 0 if wide else out.zero)
    return t("Add", result, out.zero) if wide and out.zero else result


def mean_of(t: Translation, value: str, count: int) -> str:
    """Return int32 numbers divided by a count, ties away from zero."""
    bounds = np.iinfo(np.int32)
    return t("RoundedMean", value, count, low=int(bounds.min), high=int(bounds.max), to=np.int32)
