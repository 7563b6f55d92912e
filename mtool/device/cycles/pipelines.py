"""Cycles of a block of instructions, on a single-issue and on a dual-issue core."""

from collections import Counter
from collections.abc import Sequence

from mtool.device.cycles.cores import Core, Instruction

_FLOAT_RESULTS = frozenset(
    f"float_{kind}" for kind in ("arithmetic", "convert", "multiply_accumulate", "fused", "divide")
)


def cycles(instructions: Sequence[Instruction], core: Core) -> list[int]:
    """Return the cycles that each instruction adds when they run in this order without a jump.

    A block starts with all earlier instructions done. The cost of a jump at its end is not included, see `jump_cycles`.
    """
    time = _single if core.issue == "single" else _dual
    if instructions and instructions[-1].target == instructions[0].address:  # a loop: the cost of a further round
        return time([*instructions, *instructions], core)[len(instructions) :]
    return time(instructions, core)


def jump_cycles(core: Core, *, count: int, jumps: int, last: str = "", straddles: bool = False) -> int:
    """Return the cost of the jumps at the end of a block, in addition to its instructions.

    Args:
        core: the core's table.
        count: how often the block ran.
        jumps: how often the next executed instruction was not the next one in memory.
        last: the group of the block's last instruction, which jumped.
        straddles: whether the jump's target is a four-byte instruction that spans two words.
    """
    if_taken = core.cost(last).taken_cycles
    cycles = core.refill if if_taken is None else if_taken
    cycles += core.refill_straddling if straddles else 0
    return cycles * jumps + core.misprediction * min(jumps, count - jumps)


def _single(instructions: Sequence[Instruction], core: Core) -> list[int]:
    """Time a three-stage pipeline: Cortex-M4 Technical Reference Manual, 3.3.1 to 3.3.2 and 7.2.3.

    What it says about the FPU in words is in figures in GCC's cortex-m4-fpu.md: integer instructions continue during a
    multiply-accumulate or a division, VLDR follow each other as LDR do, an addend is read one cycle later.
    """
    spent = []
    ready: dict[str, int] = {}  # when the next instruction can read what the FPU computes
    now = free = 0  # the FPU's
    before: Instruction | None = None
    for instruction in instructions:
        cost = core.cost(instruction.group)
        cycles = cost.cycles + cost.per_word * instruction.words
        if core.load_overlap and instruction.group == "store" and instruction.indexed:
            cycles += 1
        if before is not None:
            if core.load_overlap and _overlaps(before, instruction):
                cycles -= 1
            if before.kind == "load" and before.writes & (instruction.reads | instruction.early | instruction.late):
                cycles += core.load_stall
            if instruction.kind in ("load", "store") and before.kind not in ("load", "store"):
                cycles += core.address_stall if before.writes & instruction.early else 0
        is_float = instruction.group.startswith("float_")
        needed = [ready[register] for register in instruction.reads if register in ready]
        early = 1 if instruction.kind == "multiply-accumulate" else 0  # the addend is
        needed += [ready[register] - early for register in instruction.late if register in ready]
        start = max([now, *needed, *([free] if is_float else [])])
        if is_float:
            free = start + max(cycles, cost.holds)
        if instruction.group in _FLOAT_RESULTS:
            ready |= dict.fromkeys(instruction.writes, start + max(cycles, cost.holds) + core.float_stall)
        else:
            ready = {register: at for register, at in ready.items() if register not in instruction.writes}
        spent.append(start + cycles - now)
        now = start + cycles
        before = instruction
    if spent and before is not None and before.kind != "branch":  # the refill of a jump is as long
        spent[-1] += max(0, free - now)
    return spent


def _overlaps(before: Instruction, instruction: Instruction) -> bool:
    """Return whether an access shares a cycle with the load before it: LDR, LDR and LDR, STR [Rn, Rm].

    Not if its address was just loaded, nor if either load changes its base register.
    """
    if not _is_load(before) or before.base or before.writes & instruction.early:
        return False
    return (_is_load(instruction) and not instruction.base) or (instruction.group == "store" and instruction.indexed)


def _is_load(instruction: Instruction) -> bool:
    """Return whether it loads one register."""
    return instruction.group == "load" or (instruction.group == "float_load" and instruction.words == 1)


def _dual(instructions: Sequence[Instruction], core: Core) -> list[int]:
    """Issue in order, two in a cycle where units and operands allow."""
    spent = []
    ready: dict[str, int] = {}
    now, issued, closed = -1, 2, True
    used: Counter[str] = Counter()
    held: dict[str, int] = {}
    before: Instruction | None = None
    for instruction in instructions:
        cost = core.cost(instruction.group)
        units = _units(instruction, core)
        needed = [ready[register] for register in instruction.reads if register in ready]
        needed += [ready[register] + 1 for register in instruction.early if register in ready]
        needed += [ready[register] - cost.late for register in instruction.late if register in ready]
        needed += [held[unit] for unit in units if unit in held]
        at = max([now, *needed])
        free = all(used[unit] + count <= core.units[unit] for unit, count in units.items())
        fits = free and (core.pairs == "any" or _narrow_pair(before, instruction, core))
        if not cost.cycles:  # a loop's end whose target is known in advance
            spent.append(0)
            continue
        second = at == now and issued < 2 and not closed and fits and not (cost.first or cost.alone)
        started = now
        if not second:
            now, issued, closed = max(at, now + 1), 0, False
            used.clear()
        issued += 1
        used += units
        before = instruction
        for unit in units if cost.holds > 1 else ():
            held[unit] = now + cost.holds
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


def _narrow_pair(before: Instruction | None, instruction: Instruction, core: Core) -> bool:
    """Return whether two 16-bit instructions, one of them light, can be issued together."""
    pair = [item for item in (before, instruction) if item is not None]
    return len(pair) == 2 and all(item.bytes == 2 for item in pair) and any(_light(item, core) for item in pair)


def _light(instruction: Instruction, core: Core) -> bool:
    light = core.cost(instruction.group).light
    return light and ("#" in instruction.operands or instruction.group != "arithmetic")


def _units(instruction: Instruction, core: Core) -> Counter[str]:
    units = Counter(core.cost(instruction.group).uses)
    if "shift" in core.units and instruction.early and instruction.kind == "arithmetic" and "shift" not in units:
        units["shift"] += 1
    return units
