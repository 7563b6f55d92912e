"""Samples over several devices: each once, in order; one after another if that matters."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import model
from onnx import helper

import mtool
from mtool.base.errors import CommunicationError, DeviceError
from mtool.stages import deployment
from mtool.stages.deployment import Deployment

SAMPLES = [{"x": np.array([number])} for number in range(40)]


class Device:
    """Doubles what it gets, and takes a moment for it; has trouble with some."""

    def __init__(self, states: tuple[str, ...] = (), bad: tuple[int, ...] = (), *, is_process: bool = True) -> None:
        self.manifest = self
        self.executor, self.states, self.is_process = "aot", states, is_process
        self.bad, self.served = bad, [0]
        self.is_closed = False

    def run(self, sample: dict[str, Any]) -> dict[str, Any]:
        (number,) = sample["x"].tolist()
        self.served.append(number)
        time.sleep(0.002)
        if number in self.bad:
            raise DeviceError(f"sample {number}")
        return {"y": 2 * sample["x"]}

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closed = True


class Opens(list[Device]):
    """A deployment whose devices are these, one for each time that it is asked."""

    def open(self, prepared: object) -> Device:
        if not self:
            raise CommunicationError("there is no more memory")
        return self.pop()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three processors, for whatever is longer than nothing."""
    monkeypatch.setattr(deployment, "LONG_S", 0.0)
    monkeypatch.setattr(deployment, "TRIED_S", 0.0)
    monkeypatch.setattr(deployment, "processors", lambda: 3)


def outputs(first: Device, others: list[Device]) -> list[int]:
    prepared = SimpleNamespace(folder=Path())
    found = deployment.infer_all(first, prepared, SAMPLES, Opens(others))  # type: ignore[arg-type]
    return [int(sample["y"][0]) for sample in found]


def test_three_devices_serve_each_sample_once_and_the_outputs_are_in_order() -> None:
    first, others = Device(), [Device(), Device()]
    assert outputs(first, list(others)) == [2 * number for number in range(40)]
    served = [number for device in (first, *others) for number in device.served[1:]]
    assert sorted(served) == list(range(40))
    assert all(len(device.served) > 5 and device.is_closed for device in others)


def test_a_device_that_does_not_open_is_left_out() -> None:
    assert outputs(Device(), []) == [2 * number for number in range(40)]


@pytest.mark.parametrize("first", [Device(states=("s",)), Device(is_process=False)], ids=["states", "board"])
def test_a_sequence_and_a_board_stay_with_one_device(first: Device) -> None:
    waiting = [Device(), Device()]
    assert outputs(first, waiting) == [2 * number for number in range(40)]
    assert first.served[1:] == list(range(40)) and len(waiting) == 2


def test_what_fails_on_any_device_is_raised_and_ends_all() -> None:
    bad, before = (20, 21, 22), threading.active_count()
    first, others = Device(bad=bad), [Device(bad=bad), Device(bad=bad)]
    with pytest.raises(DeviceError, match="sample 20"):
        outputs(first, list(others))
    assert sum(len(device.served) - 1 for device in (first, *others)) < 30
    assert all(device.is_closed for device in others) and threading.active_count() == before


@pytest.mark.slow
def test_processes_of_this_computer_share_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sums.onnx"
    onnx.save(model([helper.make_node("Add", ["x", "x"], ["y"])], {"x": (np.float32, (1, 2))}, ["y"]), str(path))
    opened: list[Any] = []
    open_one = Deployment.open
    monkeypatch.setattr(Deployment, "open", lambda *given: opened.append(open_one(*given)) or opened[-1])
    inputs = [{"x": np.full((1, 2), number, np.float32)} for number in range(30)]
    options = mtool.Options(template_options={"opt": "-O0"})
    ran = mtool.run(path, board="host", inputs=inputs, options=options, deployment=Deployment(tmp_path / "p"))
    np.testing.assert_array_equal(ran.stacked()["y"], 2 * np.stack([sample["x"] for sample in inputs]))
    assert len(opened) == 3
