"""Pools for Helium."""

from mtool.kernels.schedule import Schedule
from mtool.ops.pool2d.mve import window_f32, window_int8

SCHEDULES: tuple[Schedule, ...] = (window_int8.Window(), window_f32.Window())
