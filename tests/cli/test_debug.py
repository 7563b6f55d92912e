"""`mtool debug`: gdb stops where an operator begins, on the host and in an emulator; a fault is found before."""

import json
import shutil
from pathlib import Path

import pytest

from mtool import boards
from mtool.base.errors import UsageError
from mtool.cli import app
from mtool.device.flash import flashing
from mtool.device.flash.runner import Job
from tests.device.session.faulty import after

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
Captured = pytest.CaptureFixture[str]


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


@pytest.mark.slow
def test_a_named_operator_on_the_host(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    need("gdb")
    folder = str(tmp_path / "project")
    arguments = ["debug", str(DIGITS), "-d", folder, "--operator", "conv_2", "--batch", "--ex", "bt 1"]
    assert app.invoke(arguments) == 0
    reported = capfd.readouterr()
    assert "stop at operator 2, " in reported.err
    assert "Breakpoint 1, digits_int8_conv_2 (" in reported.out and "#0  digits_int8_conv_2 (" in reported.out
    assert app.invoke(["debug", folder, "--operator", "conv_22"]) == 2
    assert "did you mean conv_2" in capfd.readouterr().err
    assert app.invoke(["debug", folder, "--gdb", "gdb-missing"]) == 5
    assert app.invoke(["debug", folder, "--dry-run", "--json"]) == 0
    document = json.loads(capfd.readouterr().out)
    assert document["operator"]["index"] == 0 and document["fault"] is None
    assert "break digits_int8_" in document["commands"][0]


@pytest.mark.slow
def test_an_operator_that_faults_in_an_emulator(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    need("gdb-multiarch", "arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")
    folder = tmp_path / "project"
    assert app.invoke(["-q", "generate", str(DIGITS), "-b", "mps2_an386", "-d", str(folder)]) == 0
    source = folder / "model" / "digits_int8.c"
    begins = r"^MT_ALONE void digits_int8_conv_2\([^)]*\)\n\{\n"
    source.write_text(after(source.read_text(), begins, "    *(volatile int *)0xF0000000u = 1;\n"))
    assert app.invoke(["debug", str(folder), "--batch", "--ex", "continue", "--ex", "bt 3"]) == 0
    reported = capfd.readouterr()
    assert "in operator 2, " in reported.err and "stop at operator 2, " in reported.err
    assert "Breakpoint 1, digits_int8_conv_2 (" in reported.out
    assert "platform_fault ()" in reported.out and "<signal handler called>" in reported.out


@pytest.mark.slow
def test_firmware_with_a_link_key(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    need("gdb-multiarch", "arm-none-eabi-gcc", "qemu-system-arm", "cmake", "ninja")
    assert app.invoke(["key", str(tmp_path / "a.key"), "--link"]) == 0
    argv = ["debug", str(DIGITS), "--link-key", str(tmp_path / "a.key"), "--operator", "2", "--batch"]
    assert app.invoke([*argv, "-b", "mps2_an386", "-d", str(tmp_path / "m4")]) == 0
    assert "Breakpoint 1, digits_int8_conv_2 (" in capfd.readouterr().out
    assert app.invoke([*argv, "-b", "host", "-d", str(tmp_path / "host")]) == 2
    assert "which its link key refuses" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("runner", "settings", "argv"),
    [
        ("openocd", {"config": "a.cfg b.cfg"}, ["-f a.cfg -f b.cfg", "-c adapter serial 066B", "-c gdb_port 3333;"]),
        ("pyocd", {"target": "stm32"}, ["gdbserver --no-wait --target stm32 --port 3333", "--uid 066B"]),
        ("jlink", {"device": "nRF"}, ["-device nRF -if SWD -speed 4000 -port 3333", "-select USB=66B"]),
        ("west", {"runner": "pyocd"}, ["debugserver --skip-rebuild -d /p/build/host_driven --runner pyocd", "3333"]),
    ],
)
def test_the_gdb_server_of_a_probe(runner: str, settings: dict[str, str], argv: list[str]) -> None:
    elf = Path("/p/build/host_driven/zephyr/zephyr.elf")
    job = Job(Path("/p"), elf, boards.get("nucleo_l4r5zi"), settings=settings, probe="066B")
    words = " ".join(flashing.gdb_server(runner, job, 3333))
    assert all(piece in words for piece in argv)


def test_a_board_without_a_gdb_server() -> None:
    with pytest.raises(UsageError, match="arduino_uno has no gdb server") as reported:
        flashing.choose_gdb_server(boards.get("arduino_uno"))
    assert "--server HOST:PORT" in reported.value.hint


@pytest.mark.slow
def test_a_dry_run_needs_no_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mtool.device.flash.ports.attached", lambda: [])
    arguments = ["debug", str(DIGITS), "--board", "nucleo_l4r5zi", "--dry-run"]
    assert app.invoke([*arguments, "--operator", "conv_2", "--server", "openocd"]) == 0
    *_, server, gdb = capsys.readouterr().out.splitlines()
    assert server.startswith("openocd ") and "gdb_port" in server
    assert "target remote 127.0.0.1:" in gdb and "break digits_int8_conv_2" in gdb
    assert app.invoke([*arguments, "--operator", "conv_22"]) == 2
    assert app.invoke([*arguments, "--server", "localhost:3333"]) == 0
    assert "target remote localhost:3333" in capsys.readouterr().out and not Path("build").exists()
