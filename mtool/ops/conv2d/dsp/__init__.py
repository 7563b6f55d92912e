"""Convolutions for SIMD32 (Armv7E-M, Armv8-M with DSP)."""

from mtool.kernels.schedule import Schedule
from mtool.ops.conv2d.dsp import (
    depthwise3x3_int8,
    depthwise_int8,
    depthwise_int16,
    depthwise_sums_int16,
    im2col_int8,
    im2col_int16,
    pointwise_int8,
    pointwise_int16,
)

SCHEDULES: tuple[Schedule, ...] = (
    pointwise_int8.Pointwise(),
    im2col_int8.Im2col(),
    depthwise3x3_int8.Depthwise3x3(),
    depthwise_int8.Depthwise(),
    pointwise_int16.Pointwise(),
    im2col_int16.Im2col(),
    depthwise_int16.Depthwise(),
    depthwise_sums_int16.Depthwise(),
)
