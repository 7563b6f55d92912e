"""Times that the device's timer measured, and how it is read for them."""

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from mtool.base import checked, files, resources
from mtool.base.errors import DeviceError, UsageError
from mtool.device.rpc import Client

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


_FILE = "calibration.json"


@dataclass(frozen=True, slots=True)
class Calibration:
    """The length of a second of the device's timer.

    Attributes:
        ratio: seconds of the host's clock for each of the device's timer.
        error: by how much `ratio` may be off, at most: the two clocks are read a round trip apart.
        seconds: how long was measured.
    """

    ratio: float
    error: float
    seconds: float

    def __str__(self) -> str:
        off = (1 / self.ratio - 1) * 1e6
        pace = "slow" if off < 0 else "fast"
        return f"the timer is {abs(off):,.0f} ppm {pace}, give or take {self.error * 1e6:,.0f} ppm"


def measure(
    client: Client,
    seconds: float,
    *,
    repeat: int = 5,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Calibration:
    """Run the device's timer for about `seconds` in all and compare it with the host's clock.

    The timer is started and stopped by a message each, which takes effect somewhere between the message and its reply:
    that much is uncertain. Of `repeat` measurements the one with the shortest round trips counts.

    Args:
        client: a session with a device.
        seconds: to measure in all.
        repeat: the number of measurements.
        clock: the host's, in seconds.
        sleep: waits so many seconds of it.

    Raises:
        UsageError: `seconds` or `repeat` is no positive number.
        DeviceError: the timer stands still, or ran over its range.
    """
    if seconds <= 0 or repeat < 1:
        raise UsageError("seconds and repeat have to be positive", details=[f"found {seconds} and {repeat}"])
    found = []
    for _ in range(repeat):
        before_start = clock()
        client.start_timer()
        started = clock()
        sleep(seconds / repeat)
        before_stop = clock()
        elapsed_s = client.stop_timer() / 1e9
        stopped = clock()
        if elapsed_s <= 0:
            raise DeviceError("the device's timer stands still", details=["it was 0 when it was stopped"])
        shortest, longest = before_stop - started, stopped - before_start
        ratio = (shortest + longest) / 2 / elapsed_s
        found.append(Calibration(ratio, (longest - shortest) / 2 / elapsed_s, seconds))
    return min(found, key=lambda one: one.error)


def store(device: str, calibration: Calibration, *, environment: Mapping[str, str] = os.environ) -> Path:
    """Keep a calibration for a device, in place of an earlier one; return the file it stands in.

    Args:
        device: which, as `Device.identity` names it.
        calibration: what was measured.
        environment: says where: XDG_STATE_HOME, else ~/.local/state.

    Raises:
        UsageError: there is no such place, or it can't be written.
    """
    state = resources.state_folder(environment)
    if state is None:
        hint = "set XDG_STATE_HOME to an absolute path of your own"
        raise UsageError("there is no place to keep the calibration", hint=hint)
    path = state / _FILE
    known = _read(path) | {device: asdict(calibration)}
    files.write(path, (json.dumps(known, indent=2, sort_keys=True) + "\n").encode(), follow=True)
    return path


def stored(device: str, *, environment: Mapping[str, str] = os.environ) -> Calibration | None:
    """Return what was stored for a device, or None."""
    state = resources.state_folder(environment)
    try:
        return None if state is None else Calibration(**_read(state / _FILE)[device])
    except (KeyError, TypeError):
        return None


def _read(path: Path) -> dict[str, dict[str, float]]:
    try:
        known = json.loads(path.read_text()) if path.is_file() else {}
    except (OSError, ValueError):
        return {}  # none yet, or not ours
    return known if isinstance(known, dict) else {}
