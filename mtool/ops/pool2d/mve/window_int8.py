"""Schedule of pool2d of int8 for Helium. See crt/include/mt_mve_pool.h."""

from mtool.kernels.target import Target
from mtool.ops.pool2d.window import WindowSchedule


class Window(WindowSchedule):
    """16 channels at a time, 4 of a sum."""

    name = "mve_window"
    stem = "mve"
    lanes = 16

    def fits(self, target: Target) -> bool:
        """Helium."""
        return target.has_mve
