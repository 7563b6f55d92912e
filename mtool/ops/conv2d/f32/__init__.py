"""Convolutions for Cortex-M with a float32 FPU."""

from mtool.kernels.schedule import Schedule
from mtool.ops.conv2d.f32 import depthwise_f32, im2col_f32

SCHEDULES: tuple[Schedule, ...] = (im2col_f32.Im2col(), depthwise_f32.Depthwise())
