"""An estimate of cycles from the instructions that an inference executes."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from mtool import manifest
from mtool.base.errors import UsageError
from mtool.boards import Board, Draw, Reads, load_all
from mtool.device.cycles import pipelines
from mtool.device.cycles.cores import Core, cores
from mtool.device.cycles.execution import Block, Executed, Listing, execute
from mtool.device.transport import unicorn
from mtool.manifest import Manifest, Operator

log = logging.getLogger(__name__)

_INSTRUCTIONS = "instructions"
_CALLERS = ("operator", "calls", "head_call")  # functions through which steps and rows call operators
KINDS = ("load", "store", "multiply-accumulate", "arithmetic", "branch", "other")


@dataclass(frozen=True, slots=True)
class Clock:
    """What turns an estimate into a time: a board's core, clock and flash.

    Attributes:
        name: its name in the output: the board's name, or a frequency.
        cpu: the core; there is a table for it.
        hz: its clock.
        reads: the timing of the memory for code and weights; None: no wait states, or unknown.
        draws: the chip's power consumption; None: unknown.
    """

    name: str
    cpu: str
    hz: int
    reads: Reads | None = None
    draws: Draw | None = None

    @property
    def waits(self) -> int:
        """Return the wait cycles of a flash read."""
        return self.reads.waits(self.hz) if self.reads else 0


def flash_arguments(clocks: Sequence[Clock], counted: Board) -> list[str]:
    """Return the plugin's arguments for the clocks' flashes.

    Args:
        clocks: the ones with `reads`.
        counted: the board in the emulator, whose memories of code and weights stand for the flash.
    """
    stands = [memory for memory in (counted.memory_for("code"), counted.memory_for("weights")) if memory is not None]
    base = min((memory.base for memory in stands), default=0)
    size = max((memory.base + memory.size for memory in stands), default=0) - base
    args = []
    for reads in (clock.reads for clock in clocks if clock.reads is not None):
        caches = [
            cache
            for flash in (reads.code, reads.data)
            for cache in ((flash.lines, flash.ways or flash.lines) if flash else (0, 0))
        ]
        args.append("flash=" + ":".join(f"{number:x}" for number in (base, size, reads.width, *caches, reads.line)))
    return args


def flash_waits(block: Block, clock: Clock, index: int, cycles: int) -> int:
    """Return the cycles for which a block waited for a flash.

    Args:
        block: the executed block.
        clock: the board.
        index: the board's index among the counted flashes.
        cycles: the block's total cycles without waits.
    """
    if clock.reads is None or not block.reads:
        return 0
    jumped, followed, data = block.reads[index]
    after = clock.waits
    if clock.reads.prefetch:  # a read starts when the previous one ends, and overlaps its execution:
        length = sum(instruction.bytes for instruction in block.body)
        executing = cycles * clock.reads.width / (block.count * length)
        after = max(0, round(clock.waits + 1 - executing))
    return clock.waits * (jumped + data) + min(after, clock.waits) * followed


@dataclass(frozen=True, slots=True)
class Part:
    """The cost of a part of the inference: its instructions, and its cycles by core ("cortex-m4")."""

    name: str
    instructions: int
    cycles: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cycles of one inference.

    Attributes:
        instructions: the number executed.
        jumps: taken branches, including calls and returns.
        cycles: by core ("cortex-m4").
        mix: instructions by kind, one of KINDS.
        operators: the model's operators in order, each with all the functions that it calls; then the entry point's own
            cost and its other calls. If operators and calls do not match (the compiler has inlined one),
            the functions that the entry point called.
        waits: additional cycles for which a board's core waits for its flash, by the clock's name.
        functions: each function without those that it calls; most cycles on the first core first.
    """

    instructions: int
    jumps: int
    cycles: Mapping[str, int]
    mix: Mapping[str, int]
    operators: tuple[Part, ...]
    functions: tuple[Part, ...]
    waits: Mapping[str, int] = field(default_factory=dict)

    def milliseconds(self, clock: Clock) -> float:
        """Return the duration of an inference on a board."""
        return (self.cycles[clock.cpu] + self.waits.get(clock.name, 0)) / clock.hz * 1e3

    def as_json(self) -> dict[str, Any]:
        """Return the figures by name."""
        return asdict(self)


def cores_for(board: Board) -> tuple[Core, ...]:
    """Return the cores that run a board's code and have a table.

    Raises:
        UsageError: there is none, or the board has no emulator that can count.
    """
    able_cores = tuple(core for core in cores() if board.cpu in core.runs)
    if not able_cores:
        raise UsageError(
            f"can't estimate cycles for {board.name}: there is no table for {board.cpu}",
            details=[f"available tables: {', '.join(core.cpu for core in cores())}"],
            hint=f"supported boards: {', '.join(_countable())}",
        )
    if not _is_counted(board):
        raise UsageError(
            f"can't estimate cycles for {board.name}: it has no emulator that can list instructions",
            details=["its emulator counts instructions but does not report which ones ran"] if board.emulator else [],
            hint=f"supported boards: {', '.join(_countable())}; use --clock {board.name} there for its milliseconds",
        )
    return able_cores


def _countable() -> list[str]:
    cpus = {cpu for core in cores() for cpu in core.runs}
    return [board.name for board in load_all().values() if board.cpu in cpus and _is_counted(board)]


def _is_counted(board: Board) -> bool:
    """Return whether the board's emulator supports the plugin that reports executed instructions: QEMU does."""
    return board.emulator is not None and board.emulator.program != unicorn.PROGRAM


def estimate(
    folder: Path, inputs: Mapping[str, ArrayLike], clocks: Sequence[Clock] = (), *, model: str = ""
) -> Estimate:
    """Run one inference of a built project in its board's emulator and estimate its cycles.

    Args:
        folder: the project.
        inputs: an array for each input of the model.
        clocks: the boards whose flash is modelled.
        model: one of the project's models; empty: the only one.

    Raises:
        UsageError: the board's core has no table, or the board has no emulator.
        BuildError: a tool is missing: a compiler for this computer, the toolchain's disassembler, or the emulator.
    """
    described = manifest.load(folder, model)
    board = described.in_project.board
    able = cores_for(board)
    firmware = folder / described.in_project.firmware["host_driven"]
    listing = Listing(firmware, board.toolchain, helium="mve" in board.features)
    flashes = flash_arguments(clocks, board)
    functions = entry_points(described)
    through = [f"{described.model}_{name}" for name in _CALLERS] if len(functions) > 1 else []
    executed = execute(folder, listing, functions, inputs, flashes, through=through, model=described.model)
    return summarise(executed, listing, able, described.operators, clocks)


def entry_points(described: Manifest) -> tuple[str, ...]:
    """Return the functions that an inference calls; the first one starts it."""
    name = described.model
    if described.interface_api == "feed":
        return f"{name}_begin", f"{name}_feed", f"{name}_finish"
    if described.interface_api == "step":
        return f"{name}_begin", f"{name}_step", f"{name}_done"
    return (described.symbols["run"],)


def summarise(
    executed: Executed,
    listing: Listing,
    able: Sequence[Core],
    operators: Sequence[Operator],
    clocks: Sequence[Clock] = (),
) -> Estimate:
    """Return the estimate for executed code.

    Args:
        executed: the executed code.
        listing: the firmware's code, for the functions' names.
        able: the cores to estimate for.
        operators: the model's, in their order.
        clocks: the boards whose flash was counted.
    """
    slow = [clock for clock in clocks if clock.reads is not None]
    waits: Counter[str] = Counter()
    mix: Counter[str] = Counter()
    by_call: dict[str, Counter[str]] = {}
    by_function: dict[str, Counter[str]] = {}
    unknown: set[str] = set()
    names = _names(executed, operators)
    for block in executed.blocks:
        for instruction in block.body:
            mix[instruction.kind] += block.count
            if not instruction.group:
                unknown.add(instruction.mnemonic)
        straddles = _straddles(block.body[-1].target, listing)
        cycles = {
            core.cpu: block.count * sum(pipelines.cycles(block.body, core))
            + pipelines.jump_cycles(
                core, count=block.count, jumps=block.jumps, last=block.body[-1].group, straddles=straddles
            )
            + block.unaligned * core.unaligned
            for core in able
        }
        for index, clock in enumerate(slow):
            waits[clock.name] += flash_waits(block, clock, index, cycles[clock.cpu])
        spent = {_INSTRUCTIONS: block.count * len(block.body), **cycles}
        by_call.setdefault(names[block.call], Counter()).update(spent)
        by_function.setdefault(listing.function_at(block.body[0].address), Counter()).update(spent)
    if unknown:
        log.warning("not in the table, counted as one cycle: %s", ", ".join(sorted(unknown)))
    functions = _parts(by_function, able)
    main = able[0].cpu
    order = {name: index for index, name in enumerate([*names[1:], names[0]])}
    return Estimate(
        instructions=mix.total(),
        jumps=sum(block.jumps for block in executed.blocks),
        cycles={core.cpu: sum(part.cycles[core.cpu] for part in functions) for core in able},
        mix={kind: mix[kind] for kind in KINDS},
        operators=tuple(sorted(_parts(by_call, able), key=lambda part: order[part.name])),
        functions=tuple(sorted(functions, key=lambda part: (-part.cycles[main], part.name))),
        waits=dict(waits),
    )


def _parts(sums: Mapping[str, Counter[str]], able: Sequence[Core]) -> list[Part]:
    return [Part(name, row[_INSTRUCTIONS], {core.cpu: row[core.cpu] for core in able}) for name, row in sums.items()]


def _straddles(target: int | None, listing: Listing) -> bool:
    """Return whether the instruction at an address spans two words."""
    if target is None or target % 4 == 0:
        return False
    return any(instruction.bytes == 4 for instruction in listing.between(target, target + 1))


def _names(executed: Executed, operators: Sequence[Operator]) -> list[str]:
    """Return the names of the functions themselves and of each of their calls: an operator's name, or the callee's."""
    itself = ", ".join(executed.functions)
    callees = {operator.function for operator in operators}
    called = [name for name in executed.calls if name in callees]
    if called != [operator.function for operator in operators]:
        return [itself, *executed.calls]
    inner = iter(operators)
    return [itself, *(next(inner).name if name in callees else name for name in executed.calls)]
