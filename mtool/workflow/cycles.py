"""Tables of estimated cycles: per core, at the clock of real boards, by kind of instruction and by function."""

from collections.abc import Sequence
from dataclasses import dataclass

from mtool import boards
from mtool.boards import Board
from mtool.errors import UsageError
from mtool.session.cycles import Estimate, Part, cores
from mtool.workflow.formatting import share

_HZ = 1e6


@dataclass(frozen=True, slots=True)
class Clock:
    """A real board, for its clock: `cpu` is its core, one of those that there is an estimate for."""

    board: str
    cpu: str
    hz: int

    def milliseconds(self, estimate: Estimate) -> float:
        """Return how long an inference takes there, in memory without wait states."""
        return estimate.cycles[self.cpu] / self.hz * 1e3


def clocks(names: Sequence[str], target: Board) -> list[Clock]:
    """Return the clocks of boards.

    Args:
        names: of the boards.
        target: the board that the code is compiled for.

    Raises:
        BoardError: there is no such board.
        UsageError: its core has no table, or can't run code for `target`'s core.
    """
    able = [core.cpu for core in cores() if target.cpu in core.runs]
    found = []
    for name in names:
        board = boards.get(name)
        if board.cpu not in able:
            raise UsageError(
                f"--clock {name}: no estimate is made for its core",
                details=[f"its core is {board.cpu}; estimates of code for {target.cpu}: {', '.join(able)}"],
                hint="choose a board of such a core: mtool boards",
            )
        found.append(Clock(name, board.cpu, board.clock_hz))
    return found


def cycle_rows(estimate: Estimate, macs: int, at: Sequence[Clock]) -> list[list[str]]:
    """Return rows of a label and a figure: cycles of each core, and milliseconds at each clock."""
    names = {core.cpu: core.name for core in cores()}
    rows = []
    for cpu, cycles in estimate.cycles.items():
        each = f"{cycles / macs:.2f} per MAC, " if macs else ""
        ratio = f"{cycles / estimate.instructions:.2f} per instruction"
        rows.append([f"{names[cpu]}, estimated", f"{cycles:,} cycles ({each}{ratio})"])
    for clock in at:
        rows.append([clock.board, f"{clock.milliseconds(estimate):,.2f} ms at {clock.hz / _HZ:g} MHz"])
    return rows


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
