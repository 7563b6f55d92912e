"""Times that the device's timer measured."""

import statistics
from dataclasses import dataclass


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
