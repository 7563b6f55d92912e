"""Batched products in portable C."""

from mtool.kernels.schedule import Schedule
from mtool.ops.matmul.c99 import gemm

SCHEDULES: tuple[Schedule, ...] = (gemm.Gemm(),)
