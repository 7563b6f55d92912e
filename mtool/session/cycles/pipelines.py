"""Cycles of a block of instructions, on a single-issue and on a dual-issue core."""

from collections import Counter
from collections.abc import Sequence

from mtool.session.cycles.cores import Core
from mtool.session.cycles.listing import Instruction


def cycles(instructions: Sequence[Instruction], core: Core) -> list[int]:
    """Return the cycles that each instruction adds to those before it, when they run in this order without a jump.

    A block starts with everything before it done. What a jump at its end costs is not in it, see `jump_cycles`.
    """
    return _single(instructions, core) if core.issue == "single" else _dual(instructions, core)


def jump_cycles(core: Core, *, count: int, jumps: int) -> int:
    """Return what the jumps at the end of a block cost beyond its instructions.

    Args:
        core: the core's table.
        count: how often the block ran.
        jumps: after how many of them the next instruction was not the following one.
    """
    return core.refill * jumps + core.misprediction * min(jumps, count - jumps)


def _single(instructions: Sequence[Instruction], core: Core) -> list[int]:
    """Time a three-stage pipeline: Cortex-M4 Technical Reference Manual, 3.3.1 to 3.3.2 and 7.2.3."""
    spent = []
    before: Instruction | None = None
    for instruction in instructions:
        cost = core.cost(instruction.group)
        own = cost.cycles + cost.per_word * instruction.words
        if instruction.group == "store" and instruction.indexed:
            own += 1
        if before is not None:
            if _overlaps(before, instruction):
                own -= 1
            if instruction.kind in ("load", "store") and before.kind not in ("load", "store"):
                own += core.address_stall if before.writes & instruction.early else 0
            if _float_result(before) and before.writes & (instruction.reads | instruction.late):
                own += core.float_stall
        spent.append(own)
        before = instruction
    return spent


def _overlaps(before: Instruction, instruction: Instruction) -> bool:
    """Return whether an access shares a cycle with the load before it: LDR, LDR and LDR, STR [Rn, Rm].

    Not if its address is what was loaded, nor if either load changes its base register.
    """
    if before.group != "load" or before.base or before.writes & instruction.early:
        return False
    return (instruction.group == "load" and not instruction.base) or (
        instruction.group == "store" and instruction.indexed
    )


def _float_result(instruction: Instruction) -> bool:
    return instruction.group in (
        "float_arithmetic",
        "float_convert",
        "float_multiply_accumulate",
        "float_fused",
        "float_divide",
    )


def _dual(instructions: Sequence[Instruction], core: Core) -> list[int]:
    """Issue in order, two in a cycle where units and operands allow."""
    spent = []
    ready: dict[str, int] = {}
    now, issued, closed = -1, 2, True
    used: Counter[str] = Counter()
    for instruction in instructions:
        cost = core.cost(instruction.group)
        wanted = _units(instruction, core)
        needed = [ready[register] for register in instruction.reads if register in ready]
        needed += [ready[register] + 1 for register in instruction.early if register in ready]
        needed += [ready[register] - cost.late for register in instruction.late if register in ready]
        at = max([now, *needed])
        free = all(used[unit] + count <= core.units[unit] for unit, count in wanted.items())
        second = at == now and issued < 2 and not closed and free and not (cost.first or cost.alone)
        started = now
        if not second:
            now, issued, closed = max(at, now + 1), 0, False
            used.clear()
        issued += 1
        used += wanted
        for register in instruction.writes:
            ready[register] = now + cost.latency
        for register in instruction.base:
            ready[register] = now
        if cost.alone:
            moved = -(-instruction.words // cost.words_per_cycle) if cost.words_per_cycle else 1
            now += max(cost.cycles, moved) - 1
            closed = True
        if instruction.double:
            closed = True
        spent.append(now - started)
    return spent


def _units(instruction: Instruction, core: Core) -> Counter[str]:
    wanted = Counter(core.cost(instruction.group).uses)
    if instruction.early and instruction.kind == "arithmetic" and "shift" not in wanted:
        wanted["shift"] += 1
    return wanted
