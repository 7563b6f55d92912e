"""Batched products for SIMD32 (Armv7E-M, Armv8-M with DSP)."""

from mtool.kernels.schedule import Schedule
from mtool.ops.matmul.dsp import gemm_int8

SCHEDULES: tuple[Schedule, ...] = (gemm_int8.Gemm(),)
