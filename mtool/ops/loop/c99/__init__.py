"""Loops in portable C."""

from mtool.kernels.schedule import Schedule
from mtool.ops.loop.c99 import loop_nest, move

SCHEDULES: tuple[Schedule, ...] = (loop_nest.LoopNest(), move.Move())
