"""How long an inference is likely to take on a board, before anything is built: from the schedules' estimates."""

from dataclasses import dataclass

from mtool.boards import Board, Draw, Reads
from mtool.codegen.generation import Emitted
from mtool.option_values import IN_RAM
from mtool.session.cycles import cores

# Bytes read from flash a product, in spite of a cache that does not hold an operator's constants: the kernels use a
# weight for one to three pixels at a time. No less than all constants once, of which dense layers are the case.
_BYTES_A_PRODUCT = (0.3, 1.0)
_HELD = 2  # times an operator's constants, that a cache has to have to hold them beside what else is read
_UNSURE = 2  # times: how far waits may be off where their figures are only likely


@dataclass(frozen=True, slots=True)
class LikelyTime:
    """Milliseconds of an inference.

    Attributes:
        milliseconds: the middle of what is likely.
        error: how far they may be off, as a share of them.
        flash_is_known: waits for the memory of weights are in it, or there are none; else they come on top.
        flash_is_sure: the figures of that memory were looked up, or there are none.
        energy: of an inference; None: the power that the chip draws at this clock is not known.
    """

    milliseconds: float
    error: float
    flash_is_known: bool
    flash_is_sure: bool = True
    energy: "LikelyEnergy | None" = None


@dataclass(frozen=True, slots=True)
class LikelyEnergy:
    """Microjoules of an inference: the middle of what is likely, and how far they may be off, as a share of them."""

    microjoules: float
    error: float


def likely_energy(milliseconds: float, error: float, draws: Draw | None, hz: int) -> LikelyEnergy | None:
    """Return what a time takes of a chip that draws its power at a clock; None: that is not known at this clock."""
    if draws is None or hz != draws.mhz * 1_000_000:
        return None
    low, high = draws.milliwatts
    middle = (low + high) / 2
    return LikelyEnergy(milliseconds * middle, (1 + error) * high / middle - 1)


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
    instructions = emitted.cost * core.schedules_factor
    waits = _waits(emitted, weights.reads, clock) if weights and weights.reads else (0.0, 0.0)
    low, high = (instructions * each + wait for each, wait in zip(core.per_instruction, waits, strict=True))
    error = (1 + (high - low) / (high + low)) * (1 + core.schedules_error) - 1
    answers_at_once = weights is None or "data" in weights.holds or board.emulator is not None
    known = answers_at_once or (weights is not None and weights.reads is not None)
    milliseconds = (low + high) / 2 / clock * 1e3
    energy = likely_energy(milliseconds, error, board.draws, clock) if known else None
    sure = weights is None or weights.reads is None or weights.reads.is_sure
    return LikelyTime(milliseconds, error, known, sure, energy)


def _waits(emitted: Emitted, reads: Reads, hz: int) -> tuple[float, float]:
    """Return the cycles for which an inference waits for the flash, at least and at most."""
    cache_bytes = (reads.data or reads.code).lines * reads.line
    low = high = 0.0
    for operator in emitted.manifest.operators:
        if IN_RAM in operator.schedule.partition(":")[2].split(","):
            continue
        once = operator.constant_bytes
        is_held = _HELD * once <= cache_bytes
        low += once if is_held else max(once, _BYTES_A_PRODUCT[0] * operator.macs)
        high += once if is_held else max(once, _BYTES_A_PRODUCT[1] * operator.macs)
    each = reads.waits(hz) / reads.width
    unsure = 1 if reads.is_sure else _UNSURE
    return low * each / unsure, high * each * unsure


def _is_float(emitted: Emitted) -> bool:
    """Return whether any operator multiplies floating-point numbers."""
    return any(
        operator.macs and any(operand.dtype.startswith("float") for operand in operator.reads)
        for operator in emitted.manifest.operators
    )
