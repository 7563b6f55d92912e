"""Pools for SIMD32 (Armv7E-M, Armv8-M with DSP)."""

from mtool.kernels.schedule import Schedule
from mtool.ops.pool2d.dsp import window_int8

SCHEDULES: tuple[Schedule, ...] = (window_int8.Window(),)
