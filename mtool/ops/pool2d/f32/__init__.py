"""Pools for Cortex-M with a float32 FPU."""

from mtool.kernels.schedule import Schedule
from mtool.ops.pool2d.f32 import window_f32

SCHEDULES: tuple[Schedule, ...] = (window_f32.Window(),)
