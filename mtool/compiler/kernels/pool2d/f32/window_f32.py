"""Pools of float32 for a Cortex-M's FPU. See crt/include/mt_f32_window.h."""

from mtool.compiler.ir import DType
from mtool.compiler.kernels.pool2d.window import WindowSchedule
from mtool.compiler.kernels.target import Target


class Window(WindowSchedule):
    """One channel at a time."""

    name = "f32_window"
    stem = "f32"
    header = "mt_f32_window.h"
    lanes = 1
    dtype = DType.FLOAT32

    def fits(self, target: Target) -> bool:
        """A Cortex-M with a float32 FPU."""
        return target.has_float_tiles


SCHEDULE = Window()
