"""Times of inferences by the device's timer, corrected by its calibration."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from mtool.device.rpc import Client
from mtool.device.session import calibration
from mtool.device.session.stepping import Stepping
from mtool.device.session.timing import MOST_RUNS, Readings, Timing
from mtool.manifest import Manifest

_MOST_GROWTH = 100  # of the inferences in a repeat, from one try to the next


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """The timer of the device at the other end of a session.

    manifest: of the project.
    unit: "ns", or "instructions" where it counts those.
    identity: which device of all, whose calibration counts.
    granularity_ns: its smallest step.
    """

    client: Client
    manifest: Manifest
    unit: str
    identity: str
    granularity_ns: int

    def once(self, inputs: Sequence[bytes], *, work_s: float) -> Timing:
        """Time one inference on some inputs, with nothing before it."""
        return self._timing([self._elapsed_ns(inputs, 1, work_s)], 1)

    def time(
        self, inputs: Sequence[bytes], readings: Readings, *, work_s: float, operator: int | None = None
    ) -> Timing:
        """Time inferences, or one operator by its number, as `Device.time` says.

        Raises:
            DeviceError: the timer ran over its range, or the model failed.
        """
        number = readings.number
        before = (0 if self.unit == "instructions" else 1) if readings.warm_up is None else readings.warm_up

        def elapsed_ns() -> int:
            return self._elapsed_ns(inputs, number, work_s, operator)

        if before:
            self._elapsed_ns(inputs, before, work_s, operator)
        zeros_left = readings.zero_time_limit
        first_ns = elapsed_ns()
        while first_ns < readings.min_repeat_ms * 1e6 and number < MOST_RUNS:
            if first_ns == 0:
                zeros_left -= 1
                if zeros_left < 0:
                    break
            enough = 1.1 * number * readings.min_repeat_ms * 1e6 / max(first_ns, self.granularity_ns)
            number = min(max(number + 1, min(int(enough) + 1, _MOST_GROWTH * number)), MOST_RUNS)
            first_ns = elapsed_ns()
        found = [first_ns]
        for done in range(1, readings.repeat):
            if readings.cooldown_ms and done % readings.repeats_to_cooldown == 0:
                time.sleep(readings.cooldown_ms / 1000)
            found.append(elapsed_ns())
        return self._timing(found, number)

    def _elapsed_ns(self, inputs: Sequence[bytes], number: int, work_s: float, operator: int | None = None) -> int:
        """Return the timer's nanoseconds of `number` inferences, or calls of an operator after those before it."""
        if operator is None:
            self.client.write(inputs)
            return self.client.time(number, work_s=number * work_s)
        stepping = Stepping(self.client, self.manifest, inputs)
        stepping.begin()
        for before in self.manifest.operators[:operator]:
            stepping.run(before, work_s=work_s)
        stepping.prepare(self.manifest.operators[operator])
        idle = self.client.time(0, work_s=work_s, operator=operator)
        return max(self.client.time(number, work_s=number * work_s, operator=operator) - idle, 0)

    def _timing(self, elapsed_ns: Sequence[int], number: int) -> Timing:
        known = calibration.stored(self.identity) if self.unit == "ns" else None
        ratio = 1.0 if known is None else known.ratio  # that the timer's nanoseconds are multiplied by
        return Timing(tuple(run * ratio / number for run in elapsed_ns), number, self.unit, self.granularity_ns, ratio)
