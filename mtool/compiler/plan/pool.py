"""A pool: memory that tensors of a model may lie in, copies of its constants, or constants themselves."""

import re
from dataclasses import dataclass

from mtool.base import checked
from mtool.base.errors import UsageError
from mtool.base.escaping import short_name
from mtool.base.option_values import PoolUse

SECTION = re.compile(r"[.A-Za-z_][.\w]{0,62}", re.ASCII)
"""The name of a section that linkers take."""

_READ_ONLY = re.compile(r"\.?(text|rodata|init|fini|init_array|fini_array|(isr_)?vectors?|progmem)(\..*)?", re.ASCII)


def section_fault(section: str) -> str:
    """Return why an arena, or a pool of it, can't lie in a section; empty: it can, or none is given."""
    if section and not SECTION.fullmatch(section):
        return "no name of a section: letters, digits, _ and ."
    return "a section of code or constants, which lie in flash" if _READ_ONLY.fullmatch(section) else ""


LEAST_ALIGNMENT = 16
"""Of a pool's beginning, in bytes, as MT_ARENA (crt/include/mt_math.h) has it."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Memory of a board that a model may use, or any memory of a caller's.

    Attributes:
        name: the board's name of the memory, or any name where `section` says where it lies or the board has no
            memories: letters, digits and _.
        bytes: how many may be used; 0: all of the board's memory that nothing else is known to need.
        use: who may use it: "tensors", "weights" (copies of them, and in a memory that is only read they themselves),
            "all" for both, or "constants": they themselves, whatever the memory.
        waits: cycles that an access waits, about: the fewer, the more often used is what lies there; None: as the board
            has it, or 0.
        alignment: of its beginning, a power of two; 16 at least.
        section: the section of the object file that it lies in, for a linker script of one's own; empty: that of the
            board's memory.
        is_arena: it is where the board's arena would be, which is cleared before `main`.
    """

    name: str
    bytes: int = 0
    use: PoolUse = "all"
    waits: float | None = None
    alignment: int = LEAST_ALIGNMENT
    section: str = ""
    is_arena: bool = False

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: one is of another type, or none of those that there are.
        """
        checked.fields(self, {})
        if fault := self._fault:
            raise UsageError(f"the pool {short_name(self.name)}: {fault}")

    @property
    def _fault(self) -> str:
        """What is wrong with its values, whatever the board; empty: nothing."""
        if not 0 <= self.bytes < 1 << 32:
            return f"bytes={self.bytes} is no size"
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            return f"alignment={self.alignment} is no power of two"
        if self.waits is not None and not 0 <= self.waits < 1000:
            return f"waits={self.waits} is no number of cycles"
        return f"section={self.section!r} is {fault}" if (fault := section_fault(self.section)) else ""

    @property
    def speed(self) -> float:
        """The cycles that an access waits."""
        return self.waits or 0.0


@dataclass(frozen=True, slots=True)
class PlacedPool:
    """A pool of a plan: its memory, where it begins among the plan's offsets, and the bytes that are used of it.

    alignment: what its address has to be a multiple of, for all that lies there.
    constant_bytes: those of `bytes` behind the tensors, where copies of constants lie.
    """

    pool: Pool
    begin: int
    bytes: int
    alignment: int
    constant_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ConstantReads:
    """What an operator's constants cost where they are: bytes that an inference reads, and cycles that it waits."""

    operator: str
    bytes: float
    cycles: float
