"""How long an inference is likely to take on a board, before anything is built: from the schedules' estimates."""

from dataclasses import dataclass

from mtool.boards import Board, Reads
from mtool.codegen.generation import Emitted
from mtool.session.cycles import cores
from mtool.workflow.software_float import float_operators

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
    if core is None or not clock or float_operators(emitted.manifest.operators):
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
