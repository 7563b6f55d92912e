"""Constant weights and biases, as integers or as the floats that they stand for."""

import numpy as np

from mtool.compiler.ir.blocks import row_blocks
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.lowering import Lowering


def is_constant(ctx: Lowering, value: str) -> bool:
    """Whether a float value is constant, as it is or dequantised."""
    found = ctx.dequantised.get(value)
    return value in ctx.constants or (found is not None and found.value in ctx.constants)


def constant_value(ctx: Lowering, value: str) -> Array | None:
    """Return a constant float value, dequantised if it is stored as integers."""
    if value in ctx.constants:
        return ctx.constants[value]
    found = ctx.dequantised.get(value)
    if found is None or found.value not in ctx.constants:
        return None
    shape = ctx.constants[found.value].shape
    data = ctx.constants[found.value].reshape(shape or 1)
    view = [1] * data.ndim
    if found.axis is not None:
        view[found.axis] = -1
    scale, point = (np.broadcast_to(each.reshape(view), data.shape) for each in (found.scale, found.zero_point))
    made = np.empty(data.shape, np.float32)
    for rows in row_blocks(data):
        made[rows] = (data[rows].astype(np.int32) - point[rows]) * scale[rows]
    return made.reshape(shape)


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
    points = np.broadcast_to(found.zero_point.astype(np.int32), (data.shape[channel_axis],)).reshape(view)
    scale = np.broadcast_to(found.scale, (data.shape[channel_axis],)).astype(np.float32)
    if data.dtype == np.int8 and not points.any():
        return data, scale
    others = tuple(n for n in range(data.ndim) if n != channel_axis)
    ends = [end(axis=others, keepdims=True) - points for end in (data.min, data.max)] if data.size else []
    least, most = (int(end) for end in (np.min(ends, initial=0), np.max(ends, initial=0)))
    if least < -(2**15) or most >= 2**15:
        return None
    centred = np.empty(data.shape, np.int8 if least >= -128 and most <= 127 else np.int16)
    np.subtract(data, points, out=centred, dtype=np.int32, casting="unsafe")
    return centred, scale


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
