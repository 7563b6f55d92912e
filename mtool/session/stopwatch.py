"""Times of inferences by the device's timer, corrected by its calibration."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mtool.errors import UsageError
from mtool.rpc import Client
from mtool.session import calibration
from mtool.session.timing import Timing

_MOST_RUNS = (1 << 32) - 1
_MOST_GROWTH = 100  # of the inferences in a repeat, from one try to the next


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """The timer of the device at the other end of a session.

    unit: "ns", or "instructions" where it counts those.
    identity: which device of all, whose calibration counts.
    granularity_ns: its smallest step.
    """

    client: Client
    unit: str
    identity: str
    granularity_ns: int

    def once(self, inputs: Sequence[bytes], *, work_s: float) -> Timing:
        """Time one inference on some inputs, with nothing before it."""
        return self._timing([self._elapsed_ns(inputs, 1, work_s)], 1)

    def time(
        self,
        inputs: Sequence[bytes],
        number: int,
        repeat: int,
        *,
        min_repeat_ms: float,
        warm_up: int | None,
        work_s: float,
    ) -> Timing:
        """Time inferences, as `Device.time` says.

        Raises:
            UsageError: `number` or `repeat` is no positive number, `min_repeat_ms` or `warm_up` is negative.
            DeviceError: the timer ran over its range, or the model failed.
        """
        if not 1 <= number <= _MOST_RUNS or repeat < 1:
            raise UsageError(
                f"number has to be 1 to {_MOST_RUNS:,}, and repeat at least 1",
                details=[f"found number={number}, repeat={repeat}"],
            )
        if not 0 <= min_repeat_ms < math.inf or (warm_up or 0) < 0:
            raise UsageError(
                "min_repeat_ms and warm_up have to be 0 or more, and finite",
                details=[f"found {min_repeat_ms} and {warm_up}"],
            )
        before = (0 if self.unit == "instructions" else 1) if warm_up is None else warm_up
        if before:
            self._elapsed_ns(inputs, before, work_s)
        while (elapsed_ns := self._elapsed_ns(inputs, number, work_s)) < min_repeat_ms * 1e6 and number < _MOST_RUNS:
            enough = 1.1 * number * min_repeat_ms * 1e6 / max(elapsed_ns, self.granularity_ns)
            number = min(max(number + 1, min(int(enough) + 1, _MOST_GROWTH * number)), _MOST_RUNS)
        others = (self._elapsed_ns(inputs, number, work_s) for _ in range(repeat - 1))
        return self._timing([elapsed_ns, *others], number)

    def _elapsed_ns(self, inputs: Sequence[bytes], number: int, work_s: float) -> int:
        """Return the timer's nanoseconds of `number` inferences."""
        self.client.write(inputs)
        return self.client.time(number, work_s=number * work_s)

    def _timing(self, elapsed_ns: Sequence[int], number: int) -> Timing:
        known = calibration.stored(self.identity) if self.unit == "ns" else None
        ratio = 1.0 if known is None else known.ratio  # that the timer's nanoseconds are multiplied by
        return Timing(tuple(run * ratio / number for run in elapsed_ns), number, self.unit, self.granularity_ns, ratio)
