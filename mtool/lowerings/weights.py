"""Constant weights and biases, as integers or as the floats that they stand for."""

import numpy as np

from mtool.ir.types import Array
from mtool.lowerings.lowering import Lowering


def constant_value(ctx: Lowering, value: str) -> Array | None:
    """Return a constant float value, dequantised if it is stored as integers."""
    if value in ctx.constants:
        return ctx.constants[value]
    found = ctx.dequantised.get(value)
    if found is None or found.value not in ctx.constants:
        return None
    data = ctx.constants[found.value]
    view = [1] * data.ndim
    if found.axis is not None:
        view[found.axis] = -1
    scale, point = found.scale.reshape(view or -1), found.zero_point.reshape(view or -1)
    return ((data.astype(np.int32) - point) * scale).astype(np.float32).reshape(data.shape)


def integer_weights(ctx: Lowering, value: str, channel_axis: int) -> tuple[Array, Array] | None:
    """Return constant integer weights with their zero point taken out, and their scale a channel.

    None: the weights are not quantised, not along `channel_axis`, or leave int16 without their zero point.
    """
    found = ctx.dequantised.get(value)
    if found is None or found.value not in ctx.constants or found.axis not in (None, channel_axis):
        return None
    data = ctx.constants[found.value]
    if data.dtype.itemsize > 2:
        return None
    view = [1] * data.ndim
    view[channel_axis] = -1
    points = np.broadcast_to(found.zero_point, (data.shape[channel_axis],)).reshape(view)
    centred = data.astype(np.int32) - points
    if centred.min(initial=0) < -(2**15) or centred.max(initial=0) >= 2**15:
        return None
    fits = centred.min(initial=0) >= -128 and centred.max(initial=0) <= 127
    scale = np.broadcast_to(found.scale, (data.shape[channel_axis],)).astype(np.float32)
    return centred.astype(np.int8 if fits else np.int16), scale


def float_bias(ctx: Lowering, value: str, channels: int) -> Array | None:
    """Return a constant bias as float64 (exact for dequantised int32), zeros if there is none; None: not constant."""
    if not value:
        return np.zeros(channels, np.float64)
    if value in ctx.constants:
        return ctx.constants[value].astype(np.float64).reshape(-1)
    found = ctx.dequantised.get(value)
    if found is None or found.value not in ctx.constants:
        return None
    integers = ctx.constants[found.value].astype(np.float64).reshape(-1)
    return (integers - found.zero_point) * found.scale.astype(np.float64)
