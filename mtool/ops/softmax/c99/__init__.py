"""Softmax in portable C."""

from mtool.kernels.schedule import Schedule
from mtool.ops.softmax.c99 import softmax, softmax_fixed

SCHEDULES: tuple[Schedule, ...] = (softmax.Softmax(), softmax_fixed.SoftmaxFixed())
