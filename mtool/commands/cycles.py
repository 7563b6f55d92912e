"""Tables of estimated cycles: per core, at the clock of real boards, by kind of instruction and by function."""

import re
from collections.abc import Sequence

from mtool import boards
from mtool.base.errors import UsageError
from mtool.boards import Board
from mtool.device.cycles import Clock, Estimate, Part, cores
from mtool.stages.formatting import joules, share
from mtool.stages.latency_estimate import likely_energy

_HZ = 1e6
_LEAST, _MOST = 1e3, 1e10  # hertz: what a core may have


def clocks(names: Sequence[str], target: Board) -> list[Clock]:
    """Return the clocks that estimates are made for.

    Args:
        names: boards, boards at another frequency than theirs ("nucleo_l4r5zi@80MHz"), and frequencies of `target`'s
            own core ("120MHz"), in memory that answers at once.
        target: the board that the code is compiled for.

    Raises:
        BoardError: there is no such board.
        UsageError: its core has no table, or can't run code for `target`'s core; its clock is not known, or none.
    """
    able = [core.cpu for core in cores() if target.cpu in core.runs]
    found = []
    for name in names:
        board, hz = _asked(name)
        if board is None:
            found.append(Clock(f"{hz / _HZ:g} MHz", able[0] if able else target.cpu, hz))
            continue
        if board.cpu not in able:
            raise UsageError(
                f"--clock {name}: no estimate is made for its core",
                details=[f"its core is {board.cpu}; estimates of code for {target.cpu}: {', '.join(able)}"],
                hint="choose a board of such a core: mtool boards",
            )
        memory = board.memory_for("weights")
        found.append(Clock(name, board.cpu, _known(name, board, hz), memory.reads if memory else None, board.draws))
    return found


def standing_for(target: Board, names: Sequence[str]) -> Board:
    """Return the board that code is compiled for and counted on, as it stands for the one that estimates are made for.

    Where one board is named, the model is compiled as for its flash and the room in its RAM, which decide about the
    memory of constants. Else it is `target` as it is.
    """
    (clock,) = clocks(names, target) if len(names) == 1 else (None,)
    weights, data = target.region_for("weights"), target.region_for("data")
    if clock is None or clock.reads is None or weights is None or data is None:
        return target
    ram = boards.get(clock.name.rpartition("@")[0] or clock.name).memory_for("data")
    reads = clock.reads.model_copy(update={"wait_states": {clock.hz // 1_000_000 + 1: clock.waits}})
    memories = dict(target.memories)
    memories[weights] = memories[weights].model_copy(update={"reads": reads})
    if ram is not None:
        memories[data] = memories[data].model_copy(update={"size": min(ram.size, memories[data].size)})
    return target.model_copy(update={"memories": memories})


def hertz(clock: str) -> int:
    """Return the hertz of a frequency ("120MHz"), of a board's clock, or of a board at another ("nucleo_l4r5zi@80MHz").

    Raises:
        BoardError: there is no such board.
        UsageError: it is no frequency, or the board's clock is not known.
    """
    board, hz = _asked(clock)
    return hz if board is None else _known(clock, board, hz)


def _asked(clock: str) -> tuple[Board | None, int]:
    """Return the board and the frequency that are named; None: no board; 0: no frequency.

    Raises:
        BoardError: there is no such board.
        UsageError: what should be a frequency is none.
    """
    name, at, wanted = clock.rpartition("@")
    if at:
        return boards.get(name), _frequency(clock, wanted)
    if clock not in boards.load_all() and re.search(r"(^\W*\d|hz$)", clock.strip(), re.IGNORECASE):
        return None, _frequency(clock, clock)
    return boards.get(clock), 0


def _known(clock: str, board: Board, hz: int) -> int:
    if not (hz or board.clock_hz):
        raise UsageError(f"--clock {clock}: its clock is not known", hint=f"give it: --clock {board.name}@100MHz")
    return hz or board.clock_hz


def _frequency(clock: str, text: str) -> int:
    """Return the hertz of "120MHz", "64e6" or "1.2 GHz".

    Raises:
        UsageError: it is none, or none that a core has.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d{1,2})?)\s*([kmg]?)(hz)?", text.strip(), re.IGNORECASE | re.ASCII)
    if match is None:
        raise UsageError(f"--clock {clock}: {text!r} is no frequency", hint="such as 120MHz, 64000000 or 1.2GHz")
    hz = float(match[1]) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[match[2].lower()]
    if not match[2] and not match[3] and 0 < hz < _LEAST:
        raise UsageError(f"--clock {clock}: {hz:g} Hz: give a unit, {hz:g}MHz")
    if not _LEAST <= hz <= _MOST:
        raise UsageError(f"--clock {clock}: no core has {hz:g} Hz", hint="such as 120MHz, 64000000 or 1.2GHz")
    return round(hz)


def cycle_rows(estimate: Estimate, macs: int, at: Sequence[Clock]) -> list[list[str]]:
    """Return rows of a label and a figure: cycles of each core, and milliseconds at each clock."""
    names = {core.cpu: core.name for core in cores()}
    rows = []
    for cpu, cycles in estimate.cycles.items():
        each = f"{cycles / macs:.2f} per MAC, " if macs else ""
        ratio = f"{cycles / estimate.instructions:.2f} per instruction"
        rows.append([f"{names[cpu]}, estimated", f"{cycles:,} cycles ({each}{ratio})"])
    for clock in at:
        milliseconds = estimate.milliseconds(clock)
        energy = likely_energy(milliseconds, 0, clock.draws, clock.hz)
        volts = f" at {clock.draws.volts:g} V" if clock.draws else ""
        told = f", {joules(energy.microjoules)} ± {energy.error:.0%}{volts}" if energy else ""
        rows.append([clock.name, f"{milliseconds:,.2f} ms at {clock.hz / _HZ:g} MHz, {_waits(estimate, clock)}{told}"])
    return rows


def _waits(estimate: Estimate, clock: Clock) -> str:
    """Return what is known of the flash in words."""
    if clock.reads is None:
        return "in memory that answers at once"
    waits = estimate.waits[clock.name]
    sure = "" if clock.reads.is_sure else "likely "
    part = share(waits, waits + estimate.cycles[clock.cpu])
    return f"{part} of it waiting for the flash ({sure}{clock.waits} wait states)"


def mix_rows(estimate: Estimate) -> list[list[str]]:
    """Return rows of a kind of instructions, how many were executed, and their share."""
    return [[kind, f"{count:,}", share(count, estimate.instructions)] for kind, count in estimate.mix.items() if count]


def part_rows(parts: Sequence[Part], estimate: Estimate) -> list[list[str]]:
    """Return rows of an operator or a function: its instructions, and each core's cycles and their share."""
    rows = []
    for part in parts:
        row = [part.name, f"{part.instructions:,}"]
        for cpu, cycles in part.cycles.items():
            row += [f"{cycles:,}", share(cycles, estimate.cycles[cpu])]
        rows.append(row)
    return rows


def part_headings(what: str, estimate: Estimate) -> list[str]:
    """Return the headings of `part_rows`; `what` is what the parts are."""
    names = {core.cpu: core.name for core in cores()}
    return [what, "instructions", *(text for cpu in estimate.cycles for text in (names[cpu], "share"))]
