"""EEMBC's commands: the firmware as a process, against mlcommons/tiny's api; and the host that drives it."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import amount
import numpy as np
import pytest
from own import begin, line

import mtool
from mtool import boards
from mtool.base.errors import DeviceError, UsageError
from mtool.cli import app
from mtool.commands import flashing, user_project
from mtool.manifest import Tensor
from mtool.plugins import mlperf
from mtool.plugins.mlperf import DeviceUnderTest
from mtool.stages.latency_estimate import emulated_time

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"
WIDTH = 12
# Ties at the third digit, both signs, what printf rounds up to the next whole, zeros of both signs.
NUMBERS = np.float32([0.0625, 0.1875, -0.0625, 0.9996, -0.9996, 0.0005, 1e-9, -0.0, 1234.5678, 3.9e6, 0.1, 255 / 256])


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mlperf") / "kws"
    assert begin(folder, line(folder.parent / "line.onnx", slope=1.0, flat=True), "--type", "mlperftiny") == 0
    return folder


@pytest.fixture(scope="module")
def device(project: Path) -> Iterator[DeviceUnderTest]:
    with flashing.open_program(user_project.require(project).job_for("host")) as (_, transport):
        device = DeviceUnderTest(transport, lambda who, text: None)
        device.begin()
        yield device


def test_a_sample_goes_in_and_results_come_out(device: DeviceUnderTest) -> None:
    assert device.identity() == {
        "name": "unspecified",
        "profile": "ULPMark for tinyML Firmware V0.0.1",
        "model": "kws01",
    }
    device.load(NUMBERS.tobytes())
    inferred = device.infer(3, 2, timeout_s=10)
    assert inferred.results == tuple(float(f"{float(value):.3f}") for value in NUMBERS)
    printed = [f"{float(value):.3f}".replace("-0.000", "0.000") for value in NUMBERS]
    assert device.ask("results") == [f"m-results-[{','.join(printed)}]"]
    lines = device.ask("infer 2 1")
    words = [
        "m-warmup-start-1",
        "m-warmup-done",
        "m-infer-start-2",
        "m-lap-us",
        "m-lap-us",
        "m-infer-done",
        "m-results",
    ]
    assert [line.startswith(word) for line, word in zip(lines, words, strict=True)] == [True] * len(words)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("", ["e-[Unknown command: ]"]),
        ("setbaud 9600", ["e-[Unknown command: setbaud]"]),
        ("db", ["e-[Command 'db' requires a subcommand]"]),
        ("db load", ["e-[Command 'db load' requires the # of bytes]"]),
        ("db load 0", ["e-[Command 'db load' must be >0 bytes]"]),
        ("db load -1", ["e-[Command 'db load' must be >0 bytes]"]),
        ("db load 99999999999999999999", ["Supplied buffer size 999999999 exceeds maximum of 48"]),
        ("db 00", ["e-[More bytes than 'db load' announced]"]),
        ("db load 10", ["m-[Expecting 10 bytes]"]),
        ("db 000102030405fff", ["e-[Insufficent number of hex digits]"]),
        ("db 0001g2", ["e-[Invalid hex digit 'g2']"]),
        ("db 02030405060708FF09AA", ["m-load-done"]),
        ("db 00", ["e-[More bytes than 'db load' announced]"]),
        ("db print", ["m-buffer-00-01-02-03-04-05-06-07", "m-buffer-08-ff"]),
        ("infer 0", ["e-[Inference iterations must be >0]"]),
        ("infer 1 -1", ["e-[Inference warmup must be >=0]"]),
        ("x" * 500, [f"e-[Unknown command: {'x' * 80}]"]),
        ("\r\n  name \r\n", ["m-name-dut-[unspecified]"]),
    ],
)
def test_commands_are_answered_as_in_the_api(device: DeviceUnderTest, command: str, answer: list[str]) -> None:
    assert device.ask(command) == answer


def test_a_sample_of_another_size_is_an_error(device: DeviceUnderTest) -> None:
    device.load(bytes(4))
    with pytest.raises(DeviceError, match="Input db has 1 elemented, expected 12"):
        device.infer(1, 0, timeout_s=10)


@pytest.mark.slow
def test_the_runner(project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(project)
    samples = np.eye(WIDTH, dtype=np.float32) + 0.25
    np.savez("x.npz", x0=samples, labels=[*range(WIDTH - 1), 0])
    assert app.invoke(["mlperf", "--data", "x.npz", "--mode", "accuracy", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert (
        reported["accuracy_percent"] == pytest.approx(100 * 11 / 12)
        and reported["samples"] == WIDTH
        and not reported["auc"]
    )
    assert app.invoke(["mlperf", "--data", "x.npz", "--count", "5", "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert len(reported["windows_s"]) == 5 and reported["objections"] == ["a window took less than 10 s"]
    log = Path("build/mlperf/log.txt").read_text()
    assert log.count("[host]: infer 5 10%") == 5 and log.count("# Inferences :             5") == 5
    assert "ulp-mlperf: Median throughput is" in log and "[dut]: m-init-done" in log
    assert app.invoke(["mlperf", "--data", "nothing.npz"]) == 2


@pytest.mark.slow
def test_a_rate_of_an_emulator_is_labelled(
    project: Path, device: DeviceUnderTest, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An instruction is a nanosecond there: 1.43 cycles of it on a Cortex-M4 (docs/cycles.md), 25 MHz."""
    lines: list[str] = []
    samples = [mlperf.Item("a", 0, (bytes(4 * WIDTH),))]
    found = mlperf.run(
        device, lambda _: samples, "performance", on_line=lines.append, count=1, emulated="seconds of QEMU"
    )
    assert found.objections[0] == "the device is emulated: seconds of QEMU" and found.objections[0] in lines[0]
    if amount.IS_ALL and shutil.which("qemu-system-arm"):
        monkeypatch.chdir(project)
        np.savez("x.npz", x0=np.eye(WIDTH, dtype=np.float32), labels=range(WIDTH))
        assert app.invoke(["mlperf", "--data", "x.npz", "--count", "5", "--board", "mps2_an386"]) == 0
        shown = capsys.readouterr().out
        assert "inferences a second by the emulator's clock" in shown and "on the board" in shown


@pytest.mark.parametrize(
    ("board", "milliseconds"), [("mps2_an386", 2.573e6 * 1.43 / 25e3), ("mps3_an547", 2.573e6 * 1.34 / 32e3)]
)
def test_an_emulated_inference_takes_its_time_at_the_boards_clock(board: str, milliseconds: float) -> None:
    time = emulated_time(1e9 / 388.595, boards.get(board), mtool.compile(DIGITS, board="host").manifest)
    assert time is not None and abs(time.milliseconds - milliseconds) < time.error * milliseconds


def test_samples_are_sent_as_the_runner_sends_them(tmp_path: Path) -> None:
    values = np.int8([[-128, 0, 127, 5]])
    tensor = Tensor(
        name="x", c_name="x", dtype="int8", shape=(1, 4), bytes=4, arena_offset=None, scale=(0.5,), zero_point=(2,)
    )
    assert mlperf.wire(values, "vww01", tensor) == bytes([0, 128, 255, 133])
    assert mlperf.wire(values, "kws01", tensor) == values.tobytes()
    assert np.frombuffer(mlperf.wire(values, "ad01", tensor), np.float32).tolist() == [-65.0, -1.0, 62.5, 1.5]
    (tmp_path / "a.bin").write_bytes(bytes(range(10)))
    (tmp_path / "y_labels.csv").write_text("a.bin,2,1,4,3\n")
    (item,) = mlperf.read(tmp_path, "ad01", tensor)
    assert item.label == 1 and item.windows == (bytes(range(4)), bytes(range(3, 7)), bytes(range(6, 10)))
    (tmp_path / "y_labels.csv").write_text("a.bin,2\n")
    with pytest.raises(UsageError, match="does not have the format of EEMBC's runner"):
        mlperf.read(tmp_path, "kws01", tensor)
