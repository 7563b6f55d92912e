"""Pools in portable C."""

from mtool.kernels.schedule import Schedule
from mtool.ops.pool2d.c99 import window

SCHEDULES: tuple[Schedule, ...] = (window.Window(),)
