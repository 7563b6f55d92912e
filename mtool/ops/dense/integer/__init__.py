"""Dense layers for cores that have nothing but a multiplier of integers."""

from mtool.kernels.schedule import Schedule
from mtool.ops.dense.integer import gemv_int8

SCHEDULES: tuple[Schedule, ...] = (gemv_int8.Gemv(),)
