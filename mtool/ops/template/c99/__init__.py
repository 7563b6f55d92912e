"""Templates in portable C."""

from mtool.kernels.schedule import Schedule
from mtool.ops.template.c99 import template

SCHEDULES: tuple[Schedule, ...] = (template.Template(),)
