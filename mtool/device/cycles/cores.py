"""The cycles of each instruction on a core: the tables in `tables/` beside this file."""

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
        cycles: during which a single-issue core issues nothing else.
        per_word: additional cycles for each word that is loaded or stored.
        words_per_cycle: words that a core with wide paths moves per cycle; 0: the words do not count.
        latency: cycles until its result can be read.
        late: cycles by which an accumulator, or the stored value, may come after the other operands.
        uses: the units that it occupies for a cycle.
        alone: nothing else can be issued in the same cycle.
        first: it can only be the first of a pair.
        light: on a core that pairs only light instructions, it can be issued beside another one.
        holds: cycles for which it occupies its units: 2 for a vector that takes two beats.
        taken_cycles: its cycles when it jumps, instead of the core's `refill`.
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
    taken_cycles: int | None = None


class Core(Strict):
    """A core's table.

    Attributes:
        name: the core's usual name.
        cpu: its name in boards.yaml; any other name if no board has it.
        source: where the figures come from.
        runs: the cores whose code it can run, by their names in boards.yaml.
        issue: one instruction after the other; or as soon as operands and units are ready, up to two per cycle.
        pairs: for dual issue: any two instructions, or two 16-bit ones, one of them `light`.
        load_overlap: a load shares a cycle with the load before it, as on a Cortex-M4.
        unaligned: an unaligned access is split, a cycle for each part, as on a Cortex-M4.
        load_stall: cycles by which the next instruction waits for a loaded value.
        refill: cycles of a jump in addition to its own, for a core without branch prediction.
        refill_straddling: additional cycles if the target has to be fetched as two words.
        misprediction: cycles of a mispredicted jump.
        address_stall: cycles by which an address waits for the instruction before it.
        float_stall: cycles by which the next instruction waits for a floating-point result.
        units: the number of each execution unit.
        per_instruction: the least and the most cycles per instruction that this table gives for the int8 models of
            MLPerf Tiny in memory without wait states; empty: not counted.
        schedules_factor: the ratio of counted to estimated instructions for those models.
        schedules_error: the largest error of the estimates times that factor.
        small_models_factor: the ratio of the actual time to that estimate for models with under a million products.
        small_models_error: the least error of that.
        groups: costs by instruction group; a group that is not listed has the default cost.
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
        """Return the cost of an instruction in a group."""
        return self.groups.get(group, _DEFAULT)


_DEFAULT = Cost()


class Group(Strict):
    """Instructions with the same timing; see `groups/`."""

    kind: Literal["load", "store", "multiply-accumulate", "arithmetic", "branch", "other"]
    mnemonics: str
    results: Literal[0, 1, 2, "list"] = 1
    accumulates: bool = False
    isa: Literal["thumb", "riscv"] = "thumb"


@functools.cache
def cores() -> tuple[Core, ...]:
    """Return the cores that have tables: Cortex-M first, smaller before larger."""
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
    """One instruction, with everything that its timing depends on.

    Attributes:
        address: of its first byte.
        bytes: 2 or 4.
        mnemonic: without condition, "s" and data type; an unknown one is as the disassembler wrote it.
        group: see `groups/`.
        operands: as the disassembler wrote them.
        reads: registers that it reads, except `early` and `late`; a double-precision register counts as two.
        early: registers in its address, or in a shifted operand.
        late: its accumulator, or the stored registers.
        writes: registers that it changes, except the base of an address.
        base: the address's base register if that is changed too; else empty.
        words: 32-bit words that it loads or stores.
        indexed: the address has a register offset.
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
        """Return its kind in the instruction mix."""
        return groups()[self.group].kind if self.group else "other"

    @property
    def target(self) -> int | None:
        """Return its jump target, if that is an immediate."""
        last = self.operands.rpartition(",")[2].strip()
        return int(last, 16) if self.kind == "branch" and _ADDRESS.fullmatch(last) else None

    @property
    def returns(self) -> bool:
        """Return whether it returns from a function."""
        return "pc" in self.writes or self.mnemonic == "ret" or (self.mnemonic == "bx" and self.operands == "lr")
