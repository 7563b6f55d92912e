"""How long an inference is likely to take on a board, before anything is built: from the schedules' estimates."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mtool.boards import Board, Reads
from mtool.codegen.generation import Emitted
from mtool.plan.interleaved import costs_of, longest_stretch
from mtool.session.cycles import cores

_SMALL_CACHE = 1024  # bytes
# Bytes read from flash an instruction, in spite of the caches: of int8 MLPerf Tiny models, by the size of the cache of
# data (docs/cycles.md). What uses each weight once (dense layers) is the upper end.
_BYTES_WITH_SMALL_CACHE = (0.33, 0.98)
_BYTES_WITH_LARGE_CACHE = (0.03, 0.98)


@dataclass(frozen=True, slots=True)
class LikelyTime:
    """Milliseconds of an inference.

    Attributes:
        milliseconds: the middle of what is likely.
        error: how far they may be off, as a share of them.
        flash_is_known: waits for the memory of weights are in it, or there are none; else they come on top.
    """

    milliseconds: float
    error: float
    flash_is_known: bool


@dataclass(frozen=True, slots=True)
class LongestOperator:
    """The operator of a model that takes the longest: what everything else waits for, where one runs at a time.

    Attributes:
        model: the model's name.
        operator: its own.
        share: of the instructions of an inference, by the schedules' estimates.
        time: how long it is likely to take; None: not known.
        stretch: the longest stretch in which no more urgent model may run: of a model that is no task, all of it.
        stretch_share: that of the instructions of an inference.
    """

    model: str
    operator: str
    share: float
    time: LikelyTime | None
    stretch: LikelyTime | None = None
    stretch_share: float = 1.0


def longest_operator(emitted: Emitted, board: Board, hz: int = 0, pauses: Sequence[int] = ()) -> LongestOperator:
    """Return the longest operator of a model.

    Args:
        emitted: as of `likely_time`.
        board: as of `likely_time`.
        hz: as of `likely_time`.
        pauses: the operators before which a more urgent model may run.
    """
    plan = emitted.plan
    costs = costs_of(plan)
    longest = max(range(len(costs)), key=costs.__getitem__, default=None)
    share = costs[longest] / plan.cost if longest is not None and plan.cost else 0.0
    time = likely_time(emitted, board, hz)
    stretch = longest_stretch(costs, pauses) / plan.cost if plan.cost else 0.0

    def part(of: float) -> LikelyTime | None:
        return None if time is None else replace(time, milliseconds=of * time.milliseconds)

    title = "" if longest is None else plan.steps[longest].node.title
    return LongestOperator(plan.graph.name, title, share, part(share), part(stretch), stretch)


def likely_time(emitted: Emitted, board: Board, hz: int = 0) -> LikelyTime | None:
    """Return how long an inference is likely to take.

    Args:
        emitted: the model, compiled for the board.
        board: the board.
        hz: another clock than the board's.

    Returns:
        None: it isn't known: there is no table for the core or no clock, or the model computes in floating point, which
        the figures don't hold for.
    """
    core = next((core for core in cores() if core.cpu == board.cpu and core.per_instruction), None)
    clock = hz or board.clock_hz
    if core is None or not clock or _is_float(emitted):
        return None
    weights = board.memory_for("weights")
    waits = _waits(weights.reads, clock) if weights and weights.reads else (0.0, 0.0)
    low, high = (cycles + wait for cycles, wait in zip(core.per_instruction, waits, strict=True))
    middle = (low + high) / 2
    error = (1 + (high - low) / (high + low)) * (1 + core.schedules_error) - 1
    answers_at_once = weights is None or "data" in weights.holds or board.emulator is not None
    known = answers_at_once or (weights is not None and weights.reads is not None)
    return LikelyTime(emitted.plan.cost * middle / clock * 1e3, error, known)


def _waits(reads: Reads, hz: int) -> tuple[float, float]:
    """Return the cycles for which an instruction waits for the flash, at least and at most."""
    bytes_of_data = (reads.data or reads.code).lines * reads.line
    low, high = _BYTES_WITH_SMALL_CACHE if bytes_of_data < _SMALL_CACHE else _BYTES_WITH_LARGE_CACHE
    each = reads.waits(hz) / reads.width
    return low * each, high * each


def _is_float(emitted: Emitted) -> bool:
    """Return whether any operator multiplies floating-point numbers."""
    return any(
        operator.macs and any(operand.dtype.startswith("float") for operand in operator.reads)
        for operator in emitted.manifest.operators
    )
