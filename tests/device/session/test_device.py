"""A session with the test firmware as a process: inputs, outputs, errors."""

import itertools
import math
import os
import signal
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtool.base.errors import CommunicationError, DeviceError, UsageError
from mtool.device import session
from mtool.device.session import Device, Timing
from mtool.device.transport import ProcessTransport
from tests.crt import firmware
from tests.device.session import projects

Arrays = dict[str, Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return projects.write(tmp_path_factory.mktemp("session") / "project")


@pytest.fixture
def device(folder: Path) -> Iterator[Device]:
    with session.open(folder) as opened:
        yield opened


def inputs(seed: int = 0, **changes: Any) -> Arrays:
    random = np.random.default_rng(seed)
    drawn = {
        "x0": random.integers(-128, 100, (3, 100)).astype(np.int8),
        "x1": random.standard_normal(5).astype(np.float32),
        "x2": random.integers(0, 256, (200, 200)).astype(np.uint8),
    }
    return {**drawn, **changes}


def expected(given: Arrays, *, run: int) -> Arrays:
    return {
        "y0": (3 * given["x0"].astype(np.int32) + np.arange(300, dtype=np.int32).reshape(3, 100)),
        "y1": given["x1"] * np.float32(2),
        "y2": np.array([run], np.uint32),
        "y3": given["x2"] ^ np.uint8(0x5A),
    }


def first(value: int) -> Arrays:
    """Return inputs whose first element makes the test model do something else."""
    x0 = np.zeros((3, 100), np.int8)
    x0[0, 0] = value
    return inputs(x0=x0)


def check(found: Arrays, wanted: Arrays) -> None:
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array), name


def test_the_time_of_an_inference_can_be_given(folder: Path) -> None:
    with session.open(folder, work_s=2.5) as device:
        assert device.work_s == 2.5


def test_samples_run_in_one_process(device: Device) -> None:
    for run in range(1, 11):
        given = inputs(run)
        check(device.run(given), expected(given, run=run))


def test_the_memory_order_of_an_input_does_not_matter(device: Device) -> None:
    given = inputs(x2=np.asfortranarray(inputs()["x2"]))
    check(device.run(given), expected(given, run=1))


def test_outputs_can_be_written_to(device: Device) -> None:
    outputs = device.run(inputs())
    outputs["y0"][0, 0] = 1


@pytest.mark.parametrize(
    ("given", "what", "details"),
    [
        (
            {"x0": inputs()["x0"], "x9": 1},
            "the names are not those of the model's inputs",
            ("expected  x0 (int8[3,100]), x1 (float32[5]), x2 (uint8[200,200])", "found     x0, x9"),
        ),
        ({}, "the names are not those of the model's inputs", None),
        (
            inputs(x1=np.zeros(5)),
            "input x1 has the wrong type",
            ("expected  float32[5]", "found     float64[5]"),
        ),
        (
            inputs(x0=np.zeros(300, np.int8)),
            "input x0 has the wrong shape",
            ("expected  int8[3,100]", "found     int8[300]"),
        ),
    ],
)
def test_a_wrong_input_is_reported(device: Device, given: Arrays, what: str, details: tuple[str, str] | None) -> None:
    with pytest.raises(UsageError) as caught:
        device.run(given)
    assert caught.value.what == what
    assert details is None or caught.value.details == details
    check(device.run(inputs()), expected(inputs(), run=1))


@pytest.mark.parametrize("seconds", [1e-5, 0, -1, math.nan, math.inf, "1"])
def test_a_time_that_no_watchdog_counts_is_refused(device: Device, seconds: Any) -> None:
    for use in (device.run, device.run_timed, lambda given, timeout_s: device.time(inputs=given, timeout_s=timeout_s)):
        with pytest.raises(UsageError, match="timeout_s is"):
            use(inputs(), timeout_s=seconds)
    check(device.run(inputs(), timeout_s=1), expected(inputs(), run=1))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("number", {"number": "x"}),
        ("number", {"number": 1.5}),
        ("repeat", {"repeat": "2"}),
        ("repeat", {"repeat": True}),
        ("min_repeat_ms", {"min_repeat_ms": "1"}),
        ("function", {"function": 3}),
    ],
)
def test_an_argument_of_another_type_is_reported(device: Device, name: str, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"^{name} is"):
        device.time(**given)


def test_what_a_method_does_not_take_is_reported(device: Device) -> None:
    uses: list[tuple[str, Any]] = [
        ("seconds is", lambda: device.calibrate("x")),  # type: ignore[arg-type]
        ("inputs is", lambda: device.run(np.zeros(5))),  # type: ignore[arg-type]
        ("module is", lambda: device.load(3)),  # type: ignore[arg-type]
        ("module is", lambda: device.load("a\0")),
        ("ram is", lambda: device.load(b"", ram="yes")),  # type: ignore[arg-type]
        ("in_steps is", lambda: device.run(inputs(), in_steps="no")),  # type: ignore[arg-type]
        ("repeat is", lambda: device.profile(inputs(), repeat="2")),  # type: ignore[arg-type]
        ("name is", lambda: device.set_input(3, np.zeros(5))),  # type: ignore[arg-type]
        ("name is", lambda: device.call(3)),  # type: ignore[arg-type]
        ("timeout_s is", lambda: device.is_alive(timeout_s=-1)),
        ("time has no argument repeats", lambda: device.time(repeats=2)),  # type: ignore[call-arg]
    ]
    for what, use in uses:
        with pytest.raises(UsageError, match=f"^{what}"):
            use()
    check(device.run(inputs()), expected(inputs(), run=1))


def test_threads_take_turns(device: Device) -> None:
    def runs(seed: int) -> list[int]:
        given, found = inputs(seed), []
        for _ in range(20):
            outputs = device.run(given)
            found.append(int(outputs["y2"][0]))
            check(outputs, expected(given, run=found[-1]))
            device.time(number=1, repeat=1, warm_up=0, inputs=given)  # several requests, one inference
        return found

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(runs, range(3)))
    assert len({*itertools.chain(*found)}) == 60 and max(itertools.chain(*found)) <= 120


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_is_refused_and_leaves_the_device_to_the_first(device: Device) -> None:
    check(device.run(inputs(1)), expected(inputs(1), run=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the threads that the test runner may have
        child = os.fork()
    if child == 0:
        refused = 0
        for use in (lambda: device.run(inputs(2)), lambda: device.session.ping(1), device.reconnect, device.is_alive):
            try:
                use()
            except UsageError as error:
                refused += "belongs to another process" in error.what
        device.close()
        device.connection.transport.close()  # as the interpreter's exit does
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    check(device.run(inputs(3)), expected(inputs(3), run=2))


def test_time(device: Device) -> None:
    timing = device.time(number=10, repeat=3, warm_up=0, inputs=inputs())
    assert timing == Timing(runs=(100.0, 200.0, 300.0), number=10, unit="ns", granularity=7)
    assert (timing.median, timing.spread) == (200.0, 200.0)
    assert str(timing) == "200 ns (median of 3 x 10 inferences, spread 200)"
    check(device.run(inputs()), expected(inputs(), run=31))


def test_each_repeat_starts_with_the_inputs(device: Device) -> None:
    """The model overwrites its inputs; the outputs after a repeat are those of the last run's inputs."""
    device.run(inputs(3))
    device.time(number=1, repeat=3)
    y3 = device.client.read(1, [0, 0, 0, 40_000])[3]
    assert np.array_equal(np.frombuffer(y3, np.uint8).reshape(200, 200), expected(inputs(3), run=0)["y3"])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"number": 0}, "number is 0"),
        ({"number": 1 << 32}, "1 to 4,294,967,295"),
        ({"repeat": 0}, "repeat is 0"),
        ({"cooldown_ms": float("inf")}, "cooldown_ms is inf"),
        ({"warm_up": -1}, "warm_up is -1"),
    ],
)
def test_time_needs_positive_numbers(device: Device, wrong: dict[str, float], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        device.time(**wrong)  # type: ignore[arg-type]
    assert said in str(caught.value)


def test_pauses_come_after_so_many_repeats(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("mtool.device.session.device.time.sleep", pauses.append)
    device.time(number=1, repeat=7, cooldown_ms=20, repeats_to_cooldown=3)
    assert pauses == [0.02, 0.02]
    device.time(number=1, repeat=3)
    assert len(pauses) == 2


@pytest.mark.parametrize(("limit", "tries"), [(0, 1), (2, 3)])
def test_a_timer_that_reads_zero_does_not_go_on_for_ever(
    device: Device, limit: int, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers: list[int] = []
    monkeypatch.setattr(device.client, "time", lambda number, **_: numbers.append(number) or 0)
    timing = device.time(number=1, repeat=1, min_repeat_ms=5, zero_time_limit=limit, warm_up=0)
    assert len(numbers) == tries and numbers == sorted(set(numbers))
    assert timing.runs == (0.0,) and timing.number == numbers[-1]


def test_inputs_are_set_one_by_one(device: Device) -> None:
    given = inputs(4)
    for name, array in given.items():
        device.set_input(name, array)
    check(device.run(), expected(given, run=1))
    other = inputs(5)["x1"]
    check(device.run({"x1": other}), expected({**given, "x1": other}, run=2))
    check(device.run(), expected(given, run=3))
    device.client.write([given["x0"].tobytes()])
    assert np.array_equal(device.get_input("x0"), given["x0"])
    with pytest.raises(UsageError, match="no input 'x9'"):
        device.set_input("x9", other)
    with pytest.raises(UsageError, match="wrong type"):
        device.set_input("x1", other.astype(np.float64))


def test_info(device: Device) -> None:
    info = device.info()
    assert (info.model, info.model_hash, info.build_hash) == (
        "test_model",
        firmware.MODEL_HASH[:16],
        firmware.BUILD_HASH[:16],
    )
    assert (info.protocol_version, info.packet_bytes, info.window_bytes, info.timer_granularity_ns) == (1, 2037, 0, 7)
    assert device.stack_bytes() is None


def test_a_model_that_fails(device: Device) -> None:
    with pytest.raises(DeviceError, match="with code 42"):
        device.run(first(firmware.FAIL))
    check(device.run(inputs()), expected(inputs(), run=2))


def test_a_killed_process(device: Device) -> None:
    transport = device.connection.transport
    assert isinstance(transport, ProcessTransport)
    os.kill(transport.pid, signal.SIGKILL)
    with pytest.raises(CommunicationError, match="the process host_driven was killed by signal 9"):
        device.run(inputs())


def test_a_closed_device(device: Device) -> None:
    device.close()
    device.close()
    with pytest.raises(CommunicationError, match="was closed"):
        device.run(inputs())


def test_reset_ends_the_session(device: Device) -> None:
    device.reset()
    with pytest.raises(CommunicationError):
        device.run(inputs())
