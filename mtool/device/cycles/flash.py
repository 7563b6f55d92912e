"""Waits for a flash that is slower than the core: which boards' clocks an estimate is made for, and what they cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from mtool.boards import Board, Draw, Reads
from mtool.device.cycles.execution import Block


@dataclass(frozen=True, slots=True)
class Clock:
    """Where an estimate becomes a time: a board's core, clock and flash.

    Attributes:
        name: what it is shown as: the board's name, or a frequency.
        cpu: the core, one of those that there is a table for.
        hz: its clock.
        reads: how the memory of code and weights answers; None: at once, or it is not known.
        draws: the power that its chip draws; None: not known.
    """

    name: str
    cpu: str
    hz: int
    reads: Reads | None = None
    draws: Draw | None = None

    @property
    def waits(self) -> int:
        """Return the cycles that a read of the flash waits."""
        return self.reads.waits(self.hz) if self.reads else 0


def arguments(clocks: Sequence[Clock], counted: Board) -> list[str]:
    """Return what the plugin has to know of the clocks' flashes.

    Args:
        clocks: those with `reads`.
        counted: the board that runs in the emulator, whose memories of code and weights stand for the flash.
    """
    stands = [memory for memory in (counted.memory_for("code"), counted.memory_for("weights")) if memory is not None]
    base = min((memory.base for memory in stands), default=0)
    size = max((memory.base + memory.size for memory in stands), default=0) - base
    found = []
    for reads in (clock.reads for clock in clocks if clock.reads is not None):
        caches = [
            cache
            for one in (reads.code, reads.data)
            for cache in ((one.lines, one.ways or one.lines) if one else (0, 0))
        ]
        found.append("flash=" + ":".join(f"{number:x}" for number in (base, size, reads.width, *caches, reads.line)))
    return found


def waits(block: Block, clock: Clock, index: int, cycles: int) -> int:
    """Return the cycles for which a block waited for a flash.

    Args:
        block: what ran.
        clock: the board.
        index: which of the flashes that were counted is this board's.
        cycles: what the block took without waits, in all.
    """
    if clock.reads is None or not block.reads:
        return 0
    jumped, followed, data = block.reads[index]
    after = clock.waits
    if clock.reads.prefetch:  # begun when the read before has come, and that takes so long to execute:
        length = sum(instruction.bytes for instruction in block.body)
        executing = cycles * clock.reads.width / (block.count * length)
        after = max(0, round(clock.waits + 1 - executing))
    return clock.waits * (jumped + data) + min(after, clock.waits) * followed
