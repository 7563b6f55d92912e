"""Dense layers in portable C."""

from mtool.kernels.schedule import Schedule
from mtool.ops.dense.c99 import gemv

SCHEDULES: tuple[Schedule, ...] = (gemv.Gemv(),)
