"""Times that the device's timer measured, and how it is read for them."""

import math
import statistics
from dataclasses import dataclass

from mtool.base.errors import UsageError

MOST_RUNS = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Readings:
    """How often the timer is read, and what happens in between; microTVM's time evaluator has the same.

    Attributes:
        number: inferences under the timer in each repeat; more, if `min_repeat_ms` asks for more.
        repeat: how many times to measure.
        min_repeat_ms: how long a repeat should take at least, so that the timer's granularity does not show: `number`
            grows until it does.
        zero_time_limit: how often the first repeat may be tried again with a larger `number` while the timer reads
            zero; then `number` stays as it is.
        cooldown_ms: a pause between repeats, for what grows hot or draws on a supply.
        repeats_to_cooldown: repeats between two pauses.
        warm_up: inferences before the first that counts, for caches and clocks; None: one, none where the timer counts
            instructions.

    Raises:
        UsageError: a value is out of its range; the message says which.
    """

    number: int = 1
    repeat: int = 3
    min_repeat_ms: float = 0.0
    zero_time_limit: int = 100
    cooldown_ms: float = 0.0
    repeats_to_cooldown: int = 1
    warm_up: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.number <= MOST_RUNS or self.repeat < 1 or self.repeats_to_cooldown < 1:
            raise UsageError(
                f"number has to be 1 to {MOST_RUNS:,}, repeat and repeats_to_cooldown at least 1",
                details=[
                    f"found number={self.number}, repeat={self.repeat}, repeats_to_cooldown={self.repeats_to_cooldown}"
                ],
            )
        times = (self.min_repeat_ms, self.cooldown_ms)
        if not all(0 <= time_ms < math.inf for time_ms in times) or min(self.warm_up or 0, self.zero_time_limit) < 0:
            raise UsageError(
                "min_repeat_ms, cooldown_ms, zero_time_limit and warm_up have to be 0 or more, and finite",
                details=[f"found {times[0]}, {times[1]}, {self.zero_time_limit} and {self.warm_up}"],
            )


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of an inference.

    Attributes:
        runs: time of one inference for each repeat, the mean over `number` of them.
        number: inferences that were run under the timer in each repeat.
        unit: "ns", or "instructions" where the timer counts those.
        granularity: smallest step of the timer, in `unit`; the error of a repeat is this divided by `number`.
        ratio: what the timer's nanoseconds were multiplied by, as `mtool calibrate` found; 1: not calibrated.
    """

    runs: tuple[float, ...]
    number: int
    unit: str
    granularity: int
    ratio: float = 1.0

    @property
    def median(self) -> float:
        """Return the median over the repeats."""
        return statistics.median(self.runs)

    @property
    def spread(self) -> float:
        """Return the largest less the smallest of the repeats."""
        return max(self.runs) - min(self.runs)

    def __str__(self) -> str:
        what = f"{len(self.runs)} x {self.number} inferences"
        calibrated = ", calibrated" if self.ratio != 1.0 else ""
        return f"{self.median:,.0f} {self.unit} (median of {what}, spread {self.spread:,.0f}{calibrated})"
