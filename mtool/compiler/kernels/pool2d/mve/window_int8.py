"""Pools of int8 for Helium. See crt/include/mt_mve_window_int8.h."""

from mtool.compiler.kernels.pool2d.window import WindowSchedule
from mtool.compiler.kernels.target import Target


class Window(WindowSchedule):
    """16 channels at a time, 4 of a sum."""

    name = "mve_window"
    stem = "mve"
    header = "mt_mve_window_int8.h"
    lanes = 16

    def fits(self, target: Target) -> bool:
        """Helium."""
        return target.has_mve


SCHEDULE = Window()
