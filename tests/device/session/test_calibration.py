"""The device's timer against the host's clock, with a known clock error, and on the host."""

import math
from pathlib import Path

import pytest

from mtool.base.errors import DeviceError, UsageError
from mtool.cli import app
from mtool.device import session
from mtool.device.rpc import Client
from mtool.device.session import timing
from mtool.device.session.timing import Calibration
from tests.device.session import projects


class World:
    """A clock that moves when someone sleeps or sends a message, and a device with a clock of another pace."""

    def __init__(self, pace: float, latency_s: float) -> None:
        self.now = 100.0
        self.pace = pace
        self.latency_s = latency_s
        self.started = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def start_timer(self) -> None:
        self.now += self.latency_s
        self.started = self.now
        self.now += self.latency_s / 3

    def stop_timer(self) -> int:
        self.now += self.latency_s / 2
        elapsed = (self.now - self.started) * self.pace
        self.now += self.latency_s
        return round(elapsed * 1e9)


def measured(world: World, seconds: float) -> Calibration:
    client: Client = world  # type: ignore[assignment]
    return timing.measure(client, seconds, clock=lambda: world.now, sleep=world.sleep)


@pytest.mark.parametrize("pace", [1.0, 1.02, 0.9995])
@pytest.mark.parametrize("latency_s", [0.0, 0.003])
def test_the_ratio_is_within_the_stated_error(pace: float, latency_s: float) -> None:
    found = measured(World(pace, latency_s), 10.0)
    assert abs(found.ratio - 1 / pace) <= found.error + 1e-12
    assert found.error < 0.003
    assert measured(World(pace, latency_s), 100.0).error <= found.error


def test_a_timer_that_stands_still() -> None:
    with pytest.raises(DeviceError, match="does not run"):
        measured(World(0.0, 0.001), 1.0)


def test_what_is_stored_is_found_again_for_that_device_alone(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    first, second = Calibration(1.01, 1e-4, 10.0), Calibration(0.99, 1e-5, 20.0)
    timing.store("board 066BFF51", first, environment=environment)
    path = timing.store("board 11111111", second, environment=environment)
    assert timing.stored("board 066BFF51", environment=environment) == first
    assert timing.stored("board 11111111", environment=environment) == second
    assert timing.stored("board", environment=environment) is None
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    path.write_text("not ours")
    assert timing.stored("board 066BFF51", environment=environment) is None


def test_times_are_corrected_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = projects.write(tmp_path / "project")
    with session.open(folder) as device:
        plain = device.time(1, 1, warm_up=0)  # the first measurement takes 1 us, by the test port's timer
        timing.store(device.identity, Calibration(1.5, 1e-3, 1.0))
        corrected = device.time(1, 1, warm_up=0)
    assert (plain.runs, plain.ratio) == ((1000.0,), 1.0)
    assert (corrected.runs, corrected.ratio) == ((3000.0,), 1.5) and "calibrated" in str(corrected)


def test_a_repeat_takes_as_long_as_it_should(tmp_path: Path) -> None:
    with session.open(projects.write(tmp_path / "project")) as device:
        timing = device.time(1, 2, min_repeat_ms=0.004, warm_up=0)
        assert timing.number > 1 and min(timing.runs) * timing.number >= 4000
        for wrong in (-1, math.inf, math.nan):
            with pytest.raises(UsageError, match="min_repeat_ms"):
                device.time(min_repeat_ms=wrong)


def test_no_place_for_a_calibration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for environment in ({"HOME": ""}, {"HOME": "home"}, {"HOME": "home", "XDG_STATE_HOME": "state"}):
        assert timing.stored("board", environment=environment) is None
        with pytest.raises(UsageError, match="no folder to save the calibration in"):
            timing.store("board", Calibration(1.0, 1e-4, 1.0), environment=environment)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    digits = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"
    assert app.invoke(["build", str(digits), "-d", str(tmp_path / "host")]) == 0
    assert app.invoke(["calibrate", str(tmp_path / "host"), "--seconds", "0.5"]) == 0
    assert "ppm" in capsys.readouterr().out
    found = timing.stored("host")
    assert found is not None and abs(found.ratio - 1) < max(found.error, 0.05)
