"""--guard: a run reports changed constants, bytes beside the arena, and operators that did not run; and its limits."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from mtool import commands
from mtool.base.errors import DeviceError
from mtool.cli import app
from mtool.device import session
from mtool.device.rpc.protocol import Status

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"
RUNS = 500  # more than all constants take


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guard")
    assert app.invoke(["compile", str(DIGITS), "--guard", "--name", "d", "-d", str(folder), "-q"]) == 0
    return folder


def library(folder: Path, name: str) -> ctypes.CDLL:
    """Return the model as a library whose constants can be written."""
    sources = [path.name for path in folder.glob("*.c")]
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-Dconst=", *sources, "-o", name], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / name))


@pytest.fixture(scope="module")
def model(folder: Path) -> ctypes.CDLL:
    return library(folder, "d.so")


def run(model: ctypes.CDLL) -> Status:
    inputs, outputs = (ctypes.c_char.in_dll(model, f"d_arena_{kind}") for kind in ("inputs", "outputs"))
    return Status(model.d_run(ctypes.byref(inputs), ctypes.byref(outputs)))


def bytes_of(model: ctypes.CDLL, symbol: str, count: int) -> ctypes.Array[ctypes.c_uint8]:
    return (ctypes.c_uint8 * count).in_dll(model, symbol)


def outer_byte(model: ctypes.CDLL) -> ctypes.Array[ctypes.c_uint8]:
    arena = int(next(line.split()[2] for line in model.header if "ARENA_BYTES " in line))
    return bytes_of(model, "d_guarded", 16 + arena + 1)


@pytest.mark.parametrize(
    ("of", "at", "status"),
    [
        (lambda model: bytes_of(model, "d_conv_2_weights", 64), 63, Status.MT_BAD_CONSTANT),
        (lambda model: bytes_of(model, "d_dense_5_bias", 40), 0, Status.MT_BAD_CONSTANT),
        (lambda model: bytes_of(model, "d_guarded", 16), 15, Status.MT_BAD_ARENA),
        (outer_byte, -1, Status.MT_BAD_ARENA),
    ],
)
def test_damage_is_reported_until_it_is_mended(
    of: Callable[[ctypes.CDLL], ctypes.Array[ctypes.c_uint8]], at: int, status: Status, model: ctypes.CDLL, folder: Path
) -> None:
    model.header = (folder / "d.h").read_text().splitlines()
    assert {run(model) for _ in range(RUNS)} == {Status.MT_OK} and model.d_check() == 0
    of(model)[at] ^= 1
    assert model.d_check() == status and run(model) == status
    of(model)[at] ^= 1
    assert run(model) == Status.MT_OK
    of(model)[at] ^= 1
    found = [run(model) for _ in range(RUNS)]
    of(model)[at] ^= 1
    first = found.index(status)
    assert {*found[first:]} == {status} and (first == 0) == (status == Status.MT_BAD_ARENA)


def test_an_operator_that_is_left_out_is_reported(folder: Path) -> None:
    source = folder / "d.c"
    text = source.read_text()
    source.write_text(text.replace("OPERATOR(2) d_", "if (only) d_", 1))
    found = run(library(folder, "without.so"))
    source.write_text(text)
    assert found == Status.MT_BAD_FLOW


@pytest.mark.parametrize(
    "options",
    [
        "--interface-api step", "--stream image", "--executor graph", "--arena caller", "--board arduino_uno",
        "--protect", "--board stm32f746g_disco --pool dtcm", f"{DIGITS} --name one --name two",
    ],
)  # fmt: skip
def test_what_it_can_not_check_is_refused(options: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = "build" if options == "--protect" else "compile"
    board = [] if "--board" in options else ["--board", "mps2_an386"]
    argv = [command, str(DIGITS), "--guard", "-d", str(tmp_path / "made"), *board, *options.split()]
    assert app.invoke(argv) == 2
    error = capsys.readouterr().err
    assert "error: --guard can't be combined with" in error and ("leave one of" in error) == ("with --" in error)


def test_the_host_prints_what_was_found(tmp_path: Path) -> None:
    built = commands.prepare(DIGITS, board="host", folder=tmp_path / "p", options=commands.Options(guard=True))
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.stat().st_mode & 0o100 and path.read_bytes()[:4] == b"\x7fELF":
            with path.open("r+b") as file:
                elf = ELFFile(file)
                (symbol,) = elf.get_section_by_name(".symtab").get_symbol_by_name("digits_int8_dense_5_weights")
                file.seek(next(iter(elf.address_offsets(symbol["st_value"]))))
                file.write(b"\x7f\x80")
    with session.open(built.folder) as device, pytest.raises(DeviceError) as caught:
        device.run({"image": np.zeros((1, 1, 8, 8), np.int8)})
    assert "MT_BAD_CONSTANT: the model's constants have changed in memory" in str(caught.value)
    assert "flash it again" in caught.value.hint


def test_what_varies_with_the_guard_is_not_said_to_vary_with_the_input(tmp_path: Path) -> None:
    deployment = commands.Deployment(folder=tmp_path / "p")
    cost = commands.bench(DIGITS, board="mps2_an386", options=commands.Options(guard=True), deployment=deployment)
    assert cost.instructions and cost.by_input() == ""


def test_firmware_with_modules_and_a_guard_is_not_protected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--board", "mps2_an386", "--guard", "--modules", "--unsigned-modules"]
    assert app.invoke(["build", str(DIGITS), *options, "-d", str(tmp_path / "d"), "--dry-run"]) == 0
    assert "without memory protection: it can't be combined with --guard" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [["--board", "mps2_an386"], ["--bytecode"]])
def test_modules_have_none(
    kind: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mtool.toml").write_text("[options]\nguard = true\n")
    argv = ["module", str(DIGITS), *kind, "-o", "d.mtm"]
    assert app.invoke([*argv, "--guard"]) == 2
    assert "error: --guard is not for modules" in capsys.readouterr().err
    assert app.invoke(argv) == 0
    assert "warning: the module has no guard" in capsys.readouterr().err
