"""A board on a serial port: simavr behind a pseudo-terminal, through mtool's commands."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtool import boards, commands
from mtool.base.errors import BuildError
from mtool.cli import app
from mtool.commands import Options
from mtool.device.flash import ports
from mtool.device.flash.ports import Attached
from mtool.device.transport import emulator
from tests.arduino import simavr, sine
from tests.device.flash.jobs import fake

PROBE = "55736303331351E0D1A1"
OPTIONS = ["--option", "builder=cmake"]


@pytest.fixture
def uno(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """Yield a model's file, and the port of an Uno that runs it."""
    simavr.need()
    monkeypatch.chdir(tmp_path)
    model = sine.write(tmp_path / "sine.onnx")
    options = Options(template_options={"builder": "cmake"})
    prepared = commands.prepare(model, board="arduino_uno", options=options, kinds=commands.ALL_KINDS)
    with simavr.plugged_in(simavr.command(prepared.built, "host_driven")) as port:
        yield str(model), port


def test_a_board_on_a_port_is_verified(uno: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    model, port = uno
    assert app.invoke(["verify", model, "--board", "arduino_uno", "--port", port, *OPTIONS]) == 0
    assert "matches onnxruntime over 4 samples" in capsys.readouterr().out


@pytest.mark.slow
def test_the_single_match_is_found_without_being_named(
    uno: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, port = uno
    monkeypatch.setattr(ports, "attached", lambda *_: [Attached(port, "2341:0043", PROBE, "Arduino Uno")])
    assert app.invoke(["run", model, "--board", "arduino_uno", *OPTIONS]) == 0
    assert capsys.readouterr().out.split()[:2] == ["y", "["]


@pytest.mark.slow
def test_without_a_port_it_is_the_board_that_is_attached_or_simavr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    simavr.need()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ports, "attached", lambda *_: [])
    model = str(sine.write(tmp_path / "sine.onnx"))
    assert app.invoke(["verify", model, "--board", "arduino_uno", *OPTIONS]) == 0
    assert "sine.onnx on arduino_uno matches onnxruntime over 4 samples" in capsys.readouterr().out
    cycles = []
    for number in ("1", "1", "2"):
        argv = ["bench", model, "--board", "arduino_uno", "--number", number, "--repeat", "1", "--json", *OPTIONS]
        assert app.invoke(argv) == 0
        found = json.loads(capsys.readouterr().out)
        cycles.append(found["clock_cycles"])
        assert found["time_ns"] == pytest.approx(found["clock_cycles"] * 62.5, abs=62.5)
    assert cycles[0] == cycles[1] and 5_000 < cycles[2] <= cycles[0] < cycles[2] + 100, "each cycle, at each run"
    # With a board attached it is that one, unless the emulator is named.
    monkeypatch.setattr(ports, "attached", lambda *_: [Attached("/dev/no", "2341:0043", PROBE, "Arduino Uno")])
    argv = ["run", model, "--board", "arduino_uno", *OPTIONS]
    assert app.invoke([*argv, "--port", "emulator"]) == 0
    assert "arduino_uno in simavr" in capsys.readouterr().err
    assert app.invoke(argv) == 8
    assert "/dev/no" in capsys.readouterr().err


def test_a_missing_simavr_is_reported_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uno = boards.get("arduino_uno").emulator
    assert uno is not None
    with pytest.raises(BuildError, match="libnosuch is not installed") as caught:
        emulator.command(uno.model_copy(update={"libraries": ("nosuch",)}), tmp_path / "x.elf", channel="uart")
    assert "libsimavr-dev" in caught.value.hint
    model = str(sine.write(tmp_path / "sine.onnx"))
    assert app.invoke(["run", model, "--board", "host", "--port", "emulator"]) == 2
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="cc is not installed") as caught:
        emulator.command(uno, tmp_path / "x.elf", channel="uart")
    assert "libsimavr-dev" in caught.value.hint


@pytest.mark.slow
def test_flash_does_it_all(
    uno: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    model, port = uno
    fake(tmp_path / "tools", "avrdude")
    monkeypatch.setenv("PATH", f"{tmp_path / 'tools'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(ports, "attached", lambda *_: [Attached(port, "2341:0043", PROBE, "Arduino Uno")])
    argv = ["flash", "--board", "arduino_uno", model, "--probe", PROBE[:6], "--runner", "avrdude", *OPTIONS]
    assert app.invoke(argv) == 0
    captured = capsys.readouterr()
    stages = [line.split()[0] for line in captured.err.splitlines()]
    assert stages == ["found", "sine", "compile", "build", "flash", "hello", "smoke"]
    assert "up to date" in captured.err and "at 115200 baud" in captured.err and "equal to onnxruntime" in captured.err
    assert captured.out == "ready: mtool run, verify, bench --board arduino_uno\n"
    assert f"-P {port} -b 115200" in (tmp_path / "tools" / "log").read_text()


@pytest.mark.slow
def test_another_model_on_the_board_is_reported(uno: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    model, port = uno
    Path(model).write_bytes(Path(model).read_bytes() + b"\x32\x00")  # an empty doc_string: another hash, the same model
    assert app.invoke(["run", model, "--board", "arduino_uno", "--port", port, *OPTIONS]) == 8
    error = capsys.readouterr().err
    assert "runs another model" in error and "device  sine" in error
