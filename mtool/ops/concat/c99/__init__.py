"""Concatenation in portable C."""

from mtool.kernels.schedule import Schedule
from mtool.ops.concat.c99 import copies

SCHEDULES: tuple[Schedule, ...] = (copies.Copies(),)
