"""Convolutions for cores that have nothing but a multiplier of integers."""

from mtool.kernels.schedule import Schedule
from mtool.ops.conv2d.integer import depthwise_int8, im2col_int8

SCHEDULES: tuple[Schedule, ...] = (im2col_int8.Im2col(), depthwise_int8.Depthwise())
