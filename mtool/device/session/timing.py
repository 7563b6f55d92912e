"""Times from the device's timer, and how it is read."""

import json
import logging
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from mtool.base import checked, files, plural, resources
from mtool.base.errors import DeviceError, UsageError
from mtool.device.rpc import Client

MOST_RUNS = (1 << 32) - 1
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Readings:
    """How often the timer is read, and what happens in between; the same as in microTVM's time evaluator.

    Attributes:
        number: inferences under the timer in each repeat; more if `min_repeat_ms` requires it.
        repeat: how many times to measure.
        min_repeat_ms: the shortest duration of a repeat, so that the timer's granularity is negligible: `number`
            is increased until it is reached.
        zero_time_limit: how often the first repeat may be repeated with a larger `number` while the timer reads
            zero; then `number` stays as it is.
        cooldown_ms: a pause between repeats, for devices that get hot or load their supply.
        repeats_to_cooldown: repeats between two pauses.
        warm_up: inferences before the first that counts, for caches and clocks; None: one, or none if the timer counts
            instructions.

    Raises:
        UsageError: a value is out of range; the message says which.
    """

    number: Annotated[int, checked.Range(1, MOST_RUNS)] = 1
    repeat: checked.Count = 3
    min_repeat_ms: checked.NotNegative = 0.0
    zero_time_limit: checked.Natural = 100
    cooldown_ms: checked.NotNegative = 0.0
    repeats_to_cooldown: checked.Count = 1
    warm_up: checked.Natural | None = None

    def __post_init__(self) -> None:
        checked.fields(self, {})


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of an inference.

    Attributes:
        runs: time of one inference for each repeat, the mean over `number` of them.
        number: inferences that were run under the timer in each repeat.
        unit: "ns", or "instructions" where the timer counts those.
        granularity: the smallest step of the timer, in `unit`; the error of a repeat is this divided by `number`.
        ratio: the factor for the timer's nanoseconds from `mtool calibrate`; 1: not calibrated.
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
        """Return the difference between the largest and the smallest repeat."""
        return max(self.runs) - min(self.runs)

    def __str__(self) -> str:
        what = f"{len(self.runs)} x {plural.count(self.number, 'inference')}"
        calibrated = ", calibrated" if self.ratio != 1.0 else ""
        return f"{self.median:,.0f} {self.unit} (median of {what}, spread {self.spread:,.0f}{calibrated})"


_FILE = "calibration.json"


@dataclass(frozen=True, slots=True)
class Calibration:
    """The length of a second by the device's timer.

    Attributes:
        ratio: seconds of the host's clock per second of the device's timer.
        error: the largest error of `ratio`: the two clocks are read a round trip apart.
        seconds: the duration of the measurement.
    """

    ratio: float
    error: float
    seconds: float

    def __str__(self) -> str:
        off = (1 / self.ratio - 1) * 1e6
        pace = "slow" if off < 0 else "fast"
        return f"the timer is {abs(off):,.0f} ppm {pace}, ±{self.error * 1e6:,.0f} ppm"


def measure(
    client: Client,
    seconds: float,
    *,
    repeat: int = 5,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Calibration:
    """Run the device's timer for about `seconds` in total and compare it with the host's clock.

    The timer is started and stopped by one message each, which takes effect between the message and its reply:
    that is the uncertainty. Of `repeat` measurements the one with the shortest round trips is used.

    Args:
        client: a session with a device.
        seconds: the total duration.
        repeat: the number of measurements.
        clock: the host's, in seconds.
        sleep: waits for a number of the host's seconds.

    Raises:
        UsageError: `seconds` or `repeat` is not positive.
        DeviceError: the timer does not run, or overflowed.
    """
    if seconds <= 0 or repeat < 1:
        raise UsageError("seconds and repeat must be positive", details=[f"found {seconds} and {repeat}"])
    calibrations = []
    for _ in range(repeat):
        before_start = clock()
        client.start_timer()
        started = clock()
        sleep(seconds / repeat)
        before_stop = clock()
        elapsed_s = client.stop_timer() / 1e9
        stopped = clock()
        if elapsed_s <= 0:
            details = [f"it read 0 after {seconds / repeat:.3g} s"]
            raise DeviceError("the device's timer does not run", details=details)
        shortest, longest = before_stop - started, stopped - before_start
        ratio = (shortest + longest) / 2 / elapsed_s
        calibrations.append(Calibration(ratio, (longest - shortest) / 2 / elapsed_s, seconds))
    return min(calibrations, key=lambda calibration: calibration.error)


_CHECKED_S = 0.05
_FAR, _NEAR = 50.0, 2.0


def check_runs(client: Client) -> None:
    """Compare the timer of firmware of the user's own with the host's clock; warn if its rate seems wrong.

    Raises:
        DeviceError: it stands still, counts down, or is far too fast or slow.
    """
    hint = "mt_rpc_time returns a counter that is enabled and counts up; *hz is its rate"
    try:
        calibration = measure(client, _CHECKED_S, repeat=1)
    except DeviceError as stands:
        raise DeviceError(stands.what, details=stands.details, hint=hint) from None
    ratio, error = calibration.ratio, calibration.error
    off = f"{1 / ratio:,.1f} times as fast as this computer's clock" if ratio < 1 else f"{ratio:,.1f} times as slow"
    if not 1 / _FAR <= ratio <= _FAR:
        what = "the device's timer counts down, or at another rate"
        raise DeviceError(what, details=[f"it is {off}"], hint=hint)
    if ratio + error < 1 / _NEAR or ratio - error > _NEAR:
        log.warning("the device's timer is %s: %s", off, hint)


def store(device: str, calibration: Calibration, *, environment: Mapping[str, str] = os.environ) -> Path:
    """Save a calibration for a device, replacing an earlier one; return the file.

    Args:
        device: the device's identity, `Device.identity`.
        calibration: the measured calibration.
        environment: for the folder: XDG_STATE_HOME, else ~/.local/state.

    Raises:
        UsageError: there is no folder for it, or it can't be written.
    """
    state = resources.state_folder(environment)
    if state is None:
        hint = "set XDG_STATE_HOME to an absolute path"
        raise UsageError("there is no folder to save the calibration in", hint=hint)
    path = state / _FILE
    calibrations = _read(path) | {device: asdict(calibration)}
    files.write(path, (json.dumps(calibrations, indent=2, sort_keys=True) + "\n").encode(), follow=True)
    return path


def stored(device: str, *, environment: Mapping[str, str] = os.environ) -> Calibration | None:
    """Return the saved calibration of a device, or None."""
    state = resources.state_folder(environment)
    try:
        return None if state is None else Calibration(**_read(state / _FILE)[device])
    except (KeyError, TypeError):
        return None


def _read(path: Path) -> dict[str, dict[str, float]]:
    try:
        calibrations = json.loads(path.read_text()) if path.is_file() else {}
    except (OSError, ValueError):
        return {}  # missing, or not mtool's
    return calibrations if isinstance(calibrations, dict) else {}
