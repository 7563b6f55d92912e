"""Measure candidates: is its output right, how long does it take, and what if it fails."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mtool.base.errors import CommunicationError, DeviceError, NoAnswerError
from mtool.compiler.tuned.record import Status, reason_of
from mtool.tuning.meter import Meter
from mtool.tuning.operators import IDLE, Operators

REPEATS = 3
_LEAST_NS = 2e6  # that a reading takes, where the timer counts time
_STEPS = 1000  # of the timer, that a reading takes at least
_MOST_RUNS = 100_000
_IDLE_RUNS = 50
_TRIES: Mapping[Status, int] = {"wrong": 3, "fault": 3, "timeout": 3}
_BEGIN_TRIES = 4
_SCALE = 1.4826  # of the median absolute deviation: the standard deviation of a normal distribution


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a measurement ended: the times of one call each, the mean over `number` calls; and why there are none."""

    status: Status
    times: tuple[float, ...] = ()
    number: int = 1
    reason: str = ""

    @property
    def median(self) -> float:
        """The median of the times; infinite, if there are none."""
        return statistics.median(self.times) if self.times else math.inf


def spread(times: Sequence[float]) -> float:
    """Return a robust standard deviation of times: the scaled median of their distances from the median."""
    middle = statistics.median(times)
    return _SCALE * statistics.median(abs(one - middle) for one in times)


class Measuring:
    """Measures operators of one trial on one meter.

    Args:
        meter: the board.
        repeats: readings of each candidate; one is enough where the timer counts instructions.
    """

    def __init__(self, meter: Meter, repeats: int = REPEATS) -> None:
        self.meter = meter
        self.repeats = 1 if meter.unit == "instructions" else repeats
        self._begun: Operators | None = None
        self._idle: float | None = None

    def measure(self, names: Operators, place: int, repeats: int | None = None) -> Outcome:
        """Return how the candidate of a task ends whose number is `place`; the board is restarted after a failure.

        A failure counts if it happens again: of a board that was disturbed once, no candidate is the cause.

        Raises:
            MtoolError: the board does not come back, or can't run the reference.
        """
        operator, tries = names.candidates[place], 0
        while True:
            self._begin(names)
            outcome = self._tried(names, operator, repeats or self.repeats)
            tries += 1
            if outcome.status == "ok" or tries >= _TRIES[outcome.status]:
                return outcome

    def _tried(self, names: Operators, operator: str, repeats: int) -> Outcome:
        """Return how one try ends; after a failure the task begins anew, on a board that was restarted if need be."""
        try:
            outcome = self._measured(names, operator, repeats)
            if outcome.status != "ok":
                self._begun = None
            return outcome
        except NoAnswerError as failed:
            outcome = Outcome("timeout", reason=_told(failed))
        except (DeviceError, CommunicationError) as failed:
            outcome = Outcome("fault", reason=_told(failed))
        self._restart()
        return outcome

    def _begin(self, names: Operators) -> None:
        for tries in itertools.count(1):
            try:
                if self._idle is None:
                    self._idle = self.meter.time(IDLE, _IDLE_RUNS) / _IDLE_RUNS
                if self._begun is not names:
                    self.meter.begin(names)
                    self._begun = names
                return
            except (DeviceError, CommunicationError):
                if tries >= _BEGIN_TRIES:
                    raise
                self._restart()

    def _restart(self) -> None:
        self._begun = None
        self.meter.restart()

    def _measured(self, names: Operators, operator: str, repeats: int) -> Outcome:
        meter = self.meter
        for one in names.spoil:
            meter.time(one, 1)
        first = meter.time(operator, 1)
        for one in names.compare:
            meter.time(one, 1)
        wrong = meter.differences(names)
        if wrong:
            return Outcome("wrong", reason=f"{wrong} of {names.elements} elements differ from the reference's")
        number = self._number(first)
        idle = self._idle or 0.0
        readings = (meter.time(operator, number) / number - idle for _ in range(repeats))
        return Outcome("ok", tuple(max(reading, 0.0) for reading in readings), number)

    def _number(self, once: float) -> int:
        """Return how many calls make a reading long enough for the timer's steps, and for what disturbs it."""
        least = _STEPS * self.meter.granularity
        if self.meter.unit == "ns":
            least = max(least, _LEAST_NS)
        return max(1, min(math.ceil(least / max(once, self.meter.granularity)), _MOST_RUNS))


def _told(failed: DeviceError | CommunicationError) -> str:
    return reason_of("; ".join([failed.what, *failed.details]))
