"""Dense layers for SIMD32 (Armv7E-M, Armv8-M with DSP)."""

from mtool.kernels.schedule import Schedule
from mtool.ops.dense.dsp import gemv_int8, gemv_int16, gemv_sums_int16

SCHEDULES: tuple[Schedule, ...] = (gemv_int8.Gemv(), gemv_int16.Gemv(), gemv_sums_int16.Gemv())
