"""Dense layers for Helium."""

from mtool.kernels.schedule import Schedule
from mtool.ops.dense.mve import gemv_f32, gemv_int8, gemv_int16, gemv_sums_int16

SCHEDULES: tuple[Schedule, ...] = (gemv_int8.Gemv(), gemv_int16.Gemv(), gemv_sums_int16.Gemv(), gemv_f32.Gemv())
