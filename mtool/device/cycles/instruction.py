"""An instruction, as far as its time depends on it."""

import re
from dataclasses import dataclass

from mtool.device.cycles.cores import groups

_ADDRESS = re.compile(r"[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, as far as its time depends on it.

    Attributes:
        address: of its first byte.
        bytes: 2 or 4.
        mnemonic: without condition, "s" and data type; one that is not known stays as the disassembler wrote it.
        group: see `groups/`.
        operands: as the disassembler wrote them.
        reads: registers that it needs, but for `early` and `late`; a double-precision one counts as two.
        early: registers of its address, or of a shifted operand.
        late: its accumulator, or what it stores.
        writes: registers that it changes, but for the base of an address.
        base: the base of the address, if that is changed too; else empty.
        words: 32-bit words that it loads or stores.
        indexed: the address has a register as its offset.
        double: it works in double precision.
    """

    address: int
    bytes: int
    mnemonic: str
    group: str
    operands: str
    reads: frozenset[str]
    early: frozenset[str]
    late: frozenset[str]
    writes: frozenset[str]
    base: frozenset[str]
    words: int
    indexed: bool
    double: bool

    @property
    def kind(self) -> str:
        """Return what the instruction mix counts it as."""
        return groups()[self.group].kind if self.group else "other"

    @property
    def target(self) -> int | None:
        """Return the address that it jumps to, if that is written in it."""
        last = self.operands.rpartition(",")[2].strip()
        return int(last, 16) if self.kind == "branch" and _ADDRESS.fullmatch(last) else None

    @property
    def returns(self) -> bool:
        """Return whether it leaves a function for its caller."""
        return "pc" in self.writes or self.mnemonic == "ret" or (self.mnemonic == "bx" and self.operands == "lr")
