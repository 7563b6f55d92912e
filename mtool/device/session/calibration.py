"""The device's timer against the host's clock: how long its second is, and by how much that can be trusted.

A crystal is off by some ten parts in a million, an RC oscillator by a per cent. What `calibrate` finds is kept for each
board by its USB serial number, and `Device.time` applies it.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from mtool.base import files, resources
from mtool.base.errors import DeviceError, UsageError
from mtool.device.rpc import Client

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
    path = _path(environment)
    if path is None:
        raise UsageError(
            "there is no place to keep the calibration", hint="set XDG_STATE_HOME to an absolute path of your own"
        )
    known = _read(path) | {device: asdict(calibration)}
    files.write(path, (json.dumps(known, indent=2, sort_keys=True) + "\n").encode(), follow=True)
    return path


def stored(device: str, *, environment: Mapping[str, str] = os.environ) -> Calibration | None:
    """Return what was stored for a device, or None."""
    path = _path(environment)
    try:
        return None if path is None else Calibration(**_read(path)[device])
    except (KeyError, TypeError):
        return None


def _path(environment: Mapping[str, str]) -> Path | None:
    state = resources.state_folder(environment)
    return None if state is None else state / _FILE


def _read(path: Path) -> dict[str, dict[str, float]]:
    try:
        known = json.loads(path.read_text()) if path.is_file() else {}
    except (OSError, ValueError):
        return {}  # none yet, or not ours
    return known if isinstance(known, dict) else {}
