"""The runtime's functions that schedules for SIMD32 share: their names, and the lines that define them."""

from dataclasses import dataclass
from typing import Self

from mtool.compiler.kernels.epilogues.integer import Int8Epilogue
from mtool.compiler.kernels.exact_scaling import ExactScaling
from mtool.compiler.kernels.scaling import Scaling

LIMITS = (-128, 127)
KINDS = {"": "MT_BY_FLOAT", "_twice": "MT_TWICE", "_once": "MT_ONCE"}  # of mt_math.h


@dataclass(frozen=True, slots=True)
class SharedFunction:
    """A function of crt/include/mt_dsp_*_int8.h.

    name: in C.
    shared: the lines that define it where the header does not.
    ranged: whether its last argument is the output's range.
    """

    name: str
    shared: tuple[str, ...] = ()
    ranged: bool = False

    @classmethod
    def of(cls, macro: str, stem: str, scaling: Scaling, epilogue: Int8Epilogue, loop: str, *numbers: int) -> Self:
        """Name it.

        Args:
            macro: what defines it, but for _PLAIN or _RANGE.
            stem: what its name begins with.
            scaling: of the sums.
            epilogue: whose limits it has.
            loop: its loop, as the name has it.
            numbers: what the macro takes behind the name.
        """
        name = f"{stem}{scaling.kind}_{loop}"
        kind = f"MT_EXACT_{scaling.places}" if isinstance(scaling, ExactScaling) else KINDS[scaling.kind]
        arguments = ", ".join([*map(str, numbers), kind])
        clamped = (epilogue.how.low, epilogue.how.high) != LIMITS
        if epilogue.is_plain or (isinstance(scaling, ExactScaling) and not clamped):
            return cls(name, (f"{macro}_PLAIN({name}, {arguments})",), ranged=False)
        name += "_range" if clamped else "_zero"
        return cls(name, (f"{macro}_RANGE({name}, {arguments}, {int(clamped)})",), ranged=True)
