"""`mtool flash`: through the emulator's gdb stub, and with missing tools and boards."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mtool import boards
from mtool.base import resources
from mtool.cli import app
from mtool.device.build import toolchains
from mtool.device.flash import ports, runner
from mtool.device.flash.ports import Attached
from mtool.manifest import link_key
from tests.device.flash.jobs import fake

DIGITS = str(resources.path("examples/digits") / "digits_int8.onnx")
UNO = Attached("/dev/ttyACM3", "2341:0043", "55736303331351E0D1A1", "Arduino Uno")
EMULATED = ["mps2_an386", "mps3_an547", "qemu_riscv32"]
DISCO = "stm32f746g_disco"

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ports, "attached", lambda *_: [])
    monkeypatch.setattr(runner, "is_wsl", lambda: False)
    for name in ("MTOOL_PORT", "MTOOL_PROBE"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.product(3)
@pytest.mark.parametrize(
    ("board", "options"), [*((board, ()) for board in EMULATED), ("mps2_an386", ("--link-key", "a.key"))]
)
def test_an_emulated_board_is_flashed_verified_and_runs(board: str, options: Sequence[str], capsys: Captured) -> None:
    entry = boards.get(board)
    assert entry.emulator is not None
    for program in (entry.toolchain, entry.emulator.program, "cmake", "ninja", "gdb-multiarch"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    pytest.importorskip("onnxruntime")
    link_key.make(Path("a.key"))
    assert app.invoke(["flash", DIGITS, "--board", board, "--json", *options]) == 0
    captured = capsys.readouterr()
    document: dict[str, Any] = json.loads(captured.out)
    assert document["runner"] == "gdb" and document["verified"]
    assert document["smoke"]["unit"] == "instructions" and document["smoke"]["time"] > 1000
    assert document["smoke"]["compared_with"] == "onnxruntime"
    stages = [line.split()[0] for line in captured.err.splitlines()]
    assert stages == ["digits_int8", "compile", "build", "flash", "hello", "smoke"]
    assert f"build {document['build_hash'][:8]} model {document['model_hash'][:8]}" in captured.err
    assert "written, verified" in captured.err and "equal to onnxruntime" in captured.err


def test_a_dry_run_prints_the_commands_and_writes_nothing(tmp_path: Path, capsys: Captured) -> None:
    assert app.invoke(["flash", DIGITS, "--board", "mps2_an386", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    programs = [line.split()[0] for line in lines]
    assert programs == ["#", "cd", "cmake", "cmake", "qemu-system-arm", "gdb-multiarch", "#", "#"]
    assert lines[4].endswith("-gdb tcp:127.0.0.1:PORT -S &") and "-kernel" not in lines[4]
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("command", ["flash", "build"])
def test_a_dry_run_reports_what_would_stop_the_real_one(
    command: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert app.invoke([command, DIGITS, "--board", "arduino_uno", "--dry-run"]) == 4
    error = capsys.readouterr().err
    assert "does not fit arduino_uno" in error and "of 32 KB" in error
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **given: None if "arduino" in name else which(name, **given))
    assert app.invoke([command, DIGITS, "--board", "nano_33_ble", "--dry-run"]) == 0
    assert capsys.readouterr().err.count("warning: arduino-cli is missing: ") == 1


@pytest.mark.slow
@pytest.mark.parametrize(("board", "runner"), [("nucleo_l4r5zi", "west"), ("nucleo_l4r5zi", "openocd")])
def test_a_dry_run_says_that_the_tool_beneath_the_runner_is_missing(
    board: str, runner: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **given: None if name == "openocd" else which(name, **given))
    assert app.invoke(["flash", DIGITS, "--board", board, "--runner", runner, "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert "openocd" in shown.out
    assert shown.err.count("warning: openocd is missing: sudo apt-get install openocd") == 1


@pytest.mark.slow
@pytest.mark.skipif(DISCO not in boards.load_all(), reason="the board is not there yet")
def test_the_sequence_of_a_zephyr_board_is_printed(tmp_path: Path, capsys: Captured) -> None:
    assert app.invoke(["flash", "--board", DISCO, DIGITS, "--dry-run", "--runner", "west"]) == 0
    lines = capsys.readouterr().out.splitlines()
    place = tmp_path / "build" / f"digits_int8-{DISCO}"
    assert lines[1] == f"cd build/digits_int8-{DISCO}"
    assert "west build -d build/host_driven -p always -b" in lines[2]
    assert f"west flash --skip-rebuild --build-dir {place}/build/host_driven" in lines[3]
    assert "115200 baud" in lines[4]


@pytest.mark.skipif(DISCO not in boards.load_all(), reason="the board is not there yet")
def test_without_a_board_it_ends_with_6_and_one_hint(capsys: Captured) -> None:
    assert app.invoke(["flash", "--board", DISCO, DIGITS]) == 6
    error = capsys.readouterr().err.splitlines()
    assert error[0] == f"error: no {DISCO} is attached"
    assert error[-2].startswith("connect the board with a USB data cable") and error[-1] == "exit 6"


def test_on_wsl_the_hint_is_usbipd(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(runner, "is_wsl", lambda: True)
    assert app.invoke(["flash", "--board", "arduino_uno", DIGITS]) == 6
    assert "usbipd attach --wsl" in capsys.readouterr().err


def test_several_boards_are_refused_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    second = Attached("/dev/ttyACM4", "2341:0043", "85736303331351E0D1A1", "Arduino Uno")
    monkeypatch.setattr(ports, "attached", lambda *_: [UNO, second])
    assert app.invoke(["flash", "--board", "arduino_uno", DIGITS]) == 6
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "error: 2 boards match arduino_uno",
        f"  {UNO}",
        f"  {second}",
        "choose one with --probe 55736303 (a prefix is enough) or set MTOOL_PROBE",
        "exit 6",
    ]
    assert not [*tmp_path.iterdir()]


def test_a_tool_that_is_missing_is_reported_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr(ports, "attached", lambda *_: [UNO])
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert app.invoke(["flash", "--board", "arduino_uno", DIGITS, "--runner", "avrdude"]) == 7
    error = capsys.readouterr().err
    assert "error: avrdude is not installed" in error and "sudo apt-get install avrdude" in error


@pytest.mark.slow
def test_a_tool_that_fails_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    if toolchains.check(toolchains.load_all()["avr-gcc"]).missing or not Path("/usr/share/arduino/hardware").is_dir():
        pytest.skip("the AVR core is not installed")
    model = _sine(tmp_path)
    tools = tmp_path / "tools"
    fake(tools, "avrdude", says="avrdude: Expected signature for ATmega328P is 1E 95 0F", ends=1)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(ports, "attached", lambda *_: [UNO])
    argv = ["flash", "--board", "arduino_uno", model, "--runner", "avrdude", "--option", "builder=cmake"]
    assert app.invoke(argv) == 7
    error = capsys.readouterr().err
    assert f"found     Arduino Uno R3, ATmega328P   {UNO}" in error
    assert "error: avrdude found a chip that is not arduino_uno's" in error
    hex_file = tmp_path / "build/sine-arduino_uno/build/host_driven/host_driven.ino.hex"
    flags = "-q -p atmega328p -c arduino -P /dev/ttyACM3 -b 115200 -D"
    assert (tools / "log").read_text() == f"avrdude {flags} -U flash:w:{hex_file}:i\n"


def _sine(folder: Path) -> str:
    from tests.arduino import sine

    return str(sine.write(folder / "sine.onnx"))
