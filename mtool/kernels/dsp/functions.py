"""The runtime's functions that schedules for SIMD32 share: their names, and the lines that define those of MT_EXACT."""

from dataclasses import dataclass
from typing import Self

from mtool.kernels.epilogues.integer import Int8Epilogue
from mtool.kernels.exact_scaling import ExactScaling
from mtool.kernels.scaling import Scaling

LIMITS = (-128, 127)


@dataclass(frozen=True, slots=True)
class SharedFunction:
    """A function of crt/include/mt_dsp_*_int8.h.

    name: in C. shared: the lines that define it where the header does not.
    """

    name: str
    shared: tuple[str, ...] = ()

    @classmethod
    def of(cls, macro: str, stem: str, scaling: Scaling, epilogue: Int8Epilogue, *numbers: int) -> Self:
        """Name it.

        Args:
            macro: what defines it, but for _PLAIN or _RANGE.
            stem: what its name begins with.
            scaling: of the sums.
            epilogue: whose limits it has.
            numbers: what the macro takes behind the name; the first is the unrolling.
        """
        name = f"{stem}{scaling.kind}_{numbers[0]}"
        if not isinstance(scaling, ExactScaling):
            return cls(name if epilogue.is_plain else f"{name}_range")
        arguments = ", ".join([*map(str, numbers), f"MT_EXACT_{scaling.places}"])
        if epilogue.is_plain:
            return cls(name, (f"{macro}_PLAIN({name}, {arguments})",))
        clamped = (epilogue.how.low, epilogue.how.high) != LIMITS
        name += "_range" if clamped else "_zero"
        return cls(name, (f"{macro}_RANGE({name}, {arguments}, {int(clamped)})",))
