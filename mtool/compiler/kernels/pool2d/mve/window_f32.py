"""Pools of float32 for Helium. See crt/include/mt_mve_window_f32.h."""

from mtool.compiler.ir import DType
from mtool.compiler.kernels.pool2d.window import WindowSchedule
from mtool.compiler.kernels.target import Target


class Window(WindowSchedule):
    """Four channels at a time."""

    name = "mve_f32_window"
    stem = "mve_f32"
    header = "mt_mve_window_f32.h"
    dtype = DType.FLOAT32

    def fits(self, target: Target) -> bool:
        """Helium."""
        return target.has_mve


SCHEDULE = Window()
