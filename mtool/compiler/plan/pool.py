"""A pool: memory for a model's tensors, for copies of its constants, or for the constants themselves."""

import re

from mtool.base import checked
from mtool.base.errors import UsageError
from mtool.base.escaping import short_name
from mtool.base.frozen import frozen
from mtool.base.option_values import PoolUse

SECTION = re.compile(r"[.A-Za-z_][.\w]{0,62}", re.ASCII)
"""A valid name of a linker section."""

_READ_ONLY = re.compile(r"\.?(text|rodata|init|fini|init_array|fini_array|(isr_)?vectors?|progmem)(\..*)?", re.ASCII)


def section_fault(section: str) -> str:
    """Return why an arena, or a pool of it, can't be placed in a section; empty: it can, or none is requested."""
    if section and not SECTION.fullmatch(section):
        return "not a valid section name: use letters, digits, _ and ."
    return "a section of code or constants, which lie in flash" if _READ_ONLY.fullmatch(section) else ""


LEAST_ALIGNMENT = 16
"""The alignment of a pool's start, in bytes, as in MT_ARENA (crt/include/mt_place.h)."""


@frozen
class Pool:
    """Memory of a board that a model may use, or any memory of the caller.

    Attributes:
        name: the board's name of the memory, or any name where `section` says where it lies or the board has no
            memories: letters, digits and _.
        bytes: the size of the pool; 0: all of the board's memory that is not known to be needed otherwise.
        use: its contents: "tensors", "weights" (copies of constants, or in read-only memory the constants themselves),
            "all" for both, or "constants": the constants themselves, whatever the memory.
        waits: wait cycles of an access, about; the pool with the fewest holds what is used most often; None: the
            board's value, or 0.
        alignment: the alignment of its start, a power of two, at least 16.
        section: its linker section, for your own linker script; empty: that of the board's memory.
        is_arena: it lies where the board's arena would be, which is cleared before `main`.
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
            UsageError: one has the wrong type or is not allowed.
        """
        checked.fields(self, {})
        if fault := self._fault:
            raise UsageError(f"pool {short_name(self.name)}: {fault}")

    @property
    def _fault(self) -> str:
        """The error in its values, whatever the board; empty: none."""
        if not 0 <= self.bytes < 1 << 32:
            return f"bytes={self.bytes} is out of range: 0 to 4294967295"
        if self.alignment < 1 or self.alignment & (self.alignment - 1):
            return f"alignment={self.alignment} is not a power of two"
        if self.waits is not None and not 0 <= self.waits < 1000:
            return f"waits={self.waits} is out of range: from 0 to less than 1000 cycles"
        return f"section={self.section!r} is {fault}" if (fault := section_fault(self.section)) else ""

    @property
    def speed(self) -> float:
        """The cycles that an access waits."""
        return self.waits or 0.0


@frozen
class PlacedPool:
    """A pool of a plan: its memory, its start among the plan's offsets, and its used bytes.

    alignment: the required alignment of its address, in bytes.
    constant_bytes: the part of `bytes`, after the tensors, that holds copies of constants.
    """

    pool: Pool
    begin: int
    bytes: int
    alignment: int
    constant_bytes: int = 0


@frozen
class ConstantReads:
    """The cost of reading an operator's constants: bytes read and cycles waited per inference."""

    operator: str
    bytes: float
    cycles: float
