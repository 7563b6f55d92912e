"""Pools of int8 for RISC-V vectors. See crt/include/mt_rvv_window_int8.h."""

from mtool.compiler.kernels.pool2d.window import WindowSchedule
from mtool.compiler.kernels.target import Target


class Window(WindowSchedule):
    """As many channels at a time as a vector has."""

    name = "rvv_window"
    stem = "rvv"
    header = "mt_rvv_window_int8.h"
    lanes = 32

    def fits(self, target: Target) -> bool:
        """Vectors."""
        return target.has_rvv


SCHEDULE = Window()
