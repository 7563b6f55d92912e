"""Dense layers for Cortex-M with a float32 FPU."""

from mtool.kernels.schedule import Schedule
from mtool.ops.dense.f32 import gemv_f32

SCHEDULES: tuple[Schedule, ...] = (gemv_f32.Gemv(),)
