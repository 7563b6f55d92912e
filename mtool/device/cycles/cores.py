"""Cycles of each instruction on a core: the tables in `tables/` beside this file."""

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from mtool.base import resources
from mtool.base.records import Strict

_FOLDER = Path(__file__).parent
_CORES = _FOLDER / "tables"


class Cost(Strict):
    """The cost of an instruction.

    Attributes:
        cycles: in which nothing else is issued by a core that issues one at a time.
        per_word: further cycles for each word that is loaded or stored.
        words_per_cycle: how many words a core with wide paths moves in a cycle; 0: the words do not count.
        latency: cycles until its result can be read.
        late: cycles that an accumulator, or what is stored, may come after the other operands.
        uses: the units that it takes for a cycle.
        alone: nothing is issued beside it.
        first: it is issued only as the first of a pair.
        light: it can be issued beside another one, on a core that pairs only with such.
        holds: cycles for which it takes its units: 2 for a vector that goes through them in two beats.
        taken: cycles that it costs when it jumps, in place of the core's `refill`.
    """

    cycles: int = 1
    per_word: int = 0
    words_per_cycle: int = 0
    latency: int = 1
    late: int = 0
    uses: tuple[str, ...] = ()
    alone: bool = False
    first: bool = False
    light: bool = False
    holds: int = 1
    taken: int | None = None


class Core(Strict):
    """A core's table.

    Attributes:
        name: what people call it.
        cpu: its name in boards.yaml; another one if no board has it.
        source: where the figures come from.
        runs: the cores, by their names in boards.yaml, whose code it can run.
        issue: one instruction after the other; or as soon as operands and units are there, up to two in a cycle.
        pairs: of the latter: any two instructions, or two of 16 bits, one of them `light`.
        load_overlap: a load shares a cycle with the load before it, as on a Cortex-M4.
        unaligned: an access to an unaligned address is made in pieces, a cycle each, as on a Cortex-M4.
        load_stall: cycles by which the next instruction waits for a loaded value.
        refill: cycles that a jump costs beyond its own, for a core that does not foresee it.
        refill_straddling: further ones, if the target has to be fetched as two words.
        misprediction: cycles of a jump that was foreseen wrongly.
        address_stall: cycles by which an address waits for the instruction before it.
        float_stall: cycles by which the next instruction waits for a floating-point result.
        units: how many of each execution unit there are.
        per_instruction: cycles of an instruction, at least and at most, as this table gives them for the int8 models of
            MLPerf Tiny in memory without wait states; empty: not counted.
        schedules_factor: times as many instructions are counted for those models as the schedules estimate.
        schedules_error: how far their estimates, times that factor, are off at most.
        small_models_factor: times as long as that makes it takes a model with fewer than a million products.
        small_models_error: how far that is off at least.
        groups: costs by group of instructions; a group that is not named has the default.
    """

    name: str
    cpu: str
    source: str
    runs: tuple[str, ...]
    issue: Literal["single", "dual"]
    pairs: Literal["any", "narrow"] = "any"
    load_overlap: bool = False
    unaligned: bool = False
    load_stall: int = 0
    refill: int = 0
    refill_straddling: int = 0
    misprediction: int = 0
    address_stall: int = 0
    float_stall: int = 0
    units: dict[str, int] = Field(default={})
    per_instruction: tuple[()] | tuple[float, float] = ()
    schedules_factor: float = 1.0
    schedules_error: float = 0.05
    small_models_factor: float = 1.0
    small_models_error: float = 0.35
    groups: dict[str, Cost]

    def cost(self, group: str) -> Cost:
        """Return what an instruction of a group costs."""
        return self.groups.get(group, _DEFAULT)


_DEFAULT = Cost()


class Group(Strict):
    """Instructions that cores time alike; see `groups/`."""

    kind: Literal["load", "store", "multiply-accumulate", "arithmetic", "branch", "other"]
    mnemonics: str
    results: Literal[0, 1, 2, "list"] = 1
    accumulates: bool = False
    isa: Literal["thumb", "riscv"] = "thumb"


@functools.cache
def cores() -> tuple[Core, ...]:
    """Return the cores that there are tables for: Cortex-M first, the smaller before the larger."""
    tables = [Core.model_validate(resources.read_yaml(path)) for path in sorted(_CORES.glob("*.yaml"))]
    return tuple(sorted(tables, key=lambda core: (not core.cpu.startswith("cortex-m"), _order(core.cpu))))


def _order(cpu: str) -> tuple[int, str]:
    return (int("".join(filter(str.isdigit, cpu)) or 0), cpu)


@functools.cache
def groups() -> dict[str, Group]:
    """Return the groups of instructions by name."""
    files = sorted((_FOLDER / "groups").glob("*.yaml"))
    entries = {name: entry for path in files for name, entry in resources.read_yaml(path).items()}
    return {name: Group.model_validate(entry) for name, entry in entries.items()}


@functools.cache
def group_of(isa: str = "thumb") -> dict[str, str]:
    """Return each mnemonic's group, of Thumb's instructions or of RISC-V's."""
    return {
        mnemonic: name for name, group in groups().items() if group.isa == isa for mnemonic in group.mnemonics.split()
    }


_ADDRESS = re.compile(r"[0-9a-f]+")
_NONE: frozenset[str] = frozenset()


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
    reads: frozenset[str] = _NONE
    early: frozenset[str] = _NONE
    late: frozenset[str] = _NONE
    writes: frozenset[str] = _NONE
    base: frozenset[str] = _NONE
    words: int = 1
    indexed: bool = False
    double: bool = False

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
