"""Convolutions in portable C."""

from mtool.kernels.schedule import Schedule
from mtool.ops.conv2d.c99 import depthwise, im2col

SCHEDULES: tuple[Schedule, ...] = (im2col.Im2col(), depthwise.Depthwise())
