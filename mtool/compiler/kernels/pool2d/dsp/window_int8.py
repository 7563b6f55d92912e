"""Pools of int8 for SIMD32. See crt/include/mt_dsp_window_int8.h."""

from mtool.compiler.kernels.pool2d.window import WindowSchedule
from mtool.compiler.kernels.target import Target


class Window(WindowSchedule):
    """Four channels at a time."""

    name = "dsp_window"
    stem = "dsp"
    header = "mt_dsp_window_int8.h"

    def fits(self, target: Target) -> bool:
        """SIMD32."""
        return target.has_dsp


SCHEDULE = Window()
