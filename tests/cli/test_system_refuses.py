"""Errors of the operating system are reported with the path and exit code 2; no file is half-written."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mtool import commands
from mtool.base.errors import CommunicationError, UsageError, of_os_error
from mtool.cli import app
from mtool.cli.output import Output

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"
FULL = Path("/dev/full")

Captured = pytest.CaptureFixture[str]


def run(arguments: str) -> tuple[int, str]:
    """Run mtool by a shell, which redirects it; return its exit code and what it said on stderr."""
    source = "import sys; from mtool.cli import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(Path(app.__file__).parents[2])}
    command = f"\"{sys.executable}\" -c '{source}' {arguments}"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, env=environment)
    return done.returncode, done.stderr


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("arguments", ["boards --json", "--version"])
def test_a_full_disk_behind_standard_output(arguments: str) -> None:
    code, said = run(f"{arguments} >/dev/full")
    assert code == 2 and "standard output can't be written" in said and "o space left on device" in said
    assert "Traceback" not in said and "Exception ignored" not in said


@pytest.mark.slow
def test_standard_streams_that_are_closed() -> None:
    code, said = run("boards >&-")
    assert code == 2 and "standard output is closed" in said and "Traceback" not in said
    assert run("run nowhere.onnx 2>&-")[0] == 2
    assert run("boards <&- 2>&- >/dev/null")[0] == 0


def test_a_working_folder_that_was_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert app.invoke(["build", str(DIGITS)]) == 2
    assert "the working folder no longer exists" in capsys.readouterr().err


def test_a_reader_that_has_enough() -> None:
    assert run("boards | true") == (0, "")
    assert run("compile --help-all | true") == (0, "")


def test_a_reader_that_has_enough_of_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def write(*_: object, **__: object) -> int:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    (tmp_path / "mtool.toml").write_text(f'[project]\nmodel = "{DIGITS}"\nboard = "host"\ntest_board = "host"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pytest, "main", write)
    assert app.invoke(["test"]) == 0 and capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_disk_that_is_full_behind_standard_error_stops_no_work(tmp_path: Path) -> None:
    assert run(f"check {DIGITS} 2>/dev/full >{tmp_path}/out")[0] == 0
    assert (tmp_path / "out").stat().st_size > 0


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.ENAMETOOLONG, errno.EMFILE, errno.EIO]
)
def test_whatever_is_refused_is_not_an_internal_error(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def boards(out: Output) -> None:
        raise OSError(number, os.strerror(number), "/somewhere/file")

    monkeypatch.setattr(app, "load", lambda name: boards)
    assert app.invoke(["boards"]) == 2
    said = capsys.readouterr().err
    words = os.strerror(number)
    assert f"/somewhere/file: {words[0].lower()}{words[1:]}" in said and "internal" not in said
    assert len(said.splitlines()) == 3  # what, what to try, the exit code


def test_errors_of_connections_are_the_devices() -> None:
    assert isinstance(of_os_error(BrokenPipeError(errno.EPIPE, "Broken pipe")), CommunicationError)
    assert isinstance(of_os_error(TimeoutError("timed out")), CommunicationError)
    assert "set TMPDIR" in of_os_error(FileNotFoundError(2, "No usable temporary directory found in ['/x']")).hint
    assert of_os_error(OSError("could not configure port")).what == "could not configure port"


@pytest.mark.parametrize(
    ("folder", "says"),
    [
        ("n" * 300, "file name too long"),
        ("dangling", "is a broken link"),
        ("file", "is a file, not a folder"),
        ("file/below", "not a directory"),
        ("loop", "is a broken link"),
    ],
)
def test_a_folder_that_can_not_be_made(
    folder: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dangling").symlink_to("/nowhere/at/all")
    Path("loop").symlink_to("loop")
    Path("file").write_text("mine")
    before = sorted(Path().iterdir())
    for command in ("build", "compile"):
        assert app.invoke([command, str(DIGITS), "-q", "-d", folder]) == 2
        said = capsys.readouterr().err
        assert says in said.lower() and folder in said and "Traceback" not in said
    assert sorted(Path().iterdir()) == before and Path("file").read_text() == "mine"


@pytest.mark.slow
def test_edits_stop_a_command_without_force_or_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.invoke(["compile", str(DIGITS), "-d", "c"]) == 0
    (tmp_path / "c/digits_int8.h").write_text("mine")
    (tmp_path / "c/.git").mkdir()
    capsys.readouterr()
    for command in ("compile", "build", "run"):
        assert app.invoke([command, str(DIGITS), "-d", "c", "-q"]) == 2
        said = capsys.readouterr().err
        assert "digits_int8.h   edited" in said and "--force" in said and "--keep" in said
    assert app.invoke(["compile", str(DIGITS), "-d", "c", "--keep", "--force"]) == 2
    assert app.invoke(["compile", str(DIGITS), "-d", "c", "--keep"]) == 0
    assert (tmp_path / "c/digits_int8.h").read_text() == "mine"
    assert app.invoke(["compile", str(DIGITS), "-d", "c", "--force"]) == 0
    assert (tmp_path / "c/digits_int8.h").read_text() != "mine" and (tmp_path / "c/.git").is_dir()


def test_a_default_output_replaces_only_mtools_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("report.html").write_text("mine")
    assert app.invoke(["report", str(DIGITS), "-q"]) == 2
    Path("net_int8.onnx").write_text("mine")
    with pytest.raises(UsageError, match=r"net_int8\.onnx exists and was not written by mtool"):
        commands.quantize("net.onnx", [], board="host")
    assert Path("report.html").read_text() == Path("net_int8.onnx").read_text() == "mine"


def test_data_is_never_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "ran"),)

    evil = np.array([Evil()], dtype=object)
    np.save("x.npy", evil)
    np.savez("x.npz", x0=evil)
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1152921504606846976,), }".ljust(117) + b"\n"
    Path("huge.npy").write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + header)
    for name in ("x.npy", "x.npz", "huge.npy"):
        assert app.invoke(["run", str(DIGITS), "-q", "--input", name]) == 2
        assert app.invoke(["run", str(DIGITS), "-q", "--const", f"input={name}"]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said and not Path("ran").exists()


def test_an_image_that_would_fill_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mtool.quantization import dataset

    tensor = commands.compile(DIGITS, board="host").manifest.inputs[0]
    Image.new("L", (64, 64)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(UsageError, match="can't be read as an image"):
        dataset.read(tmp_path, [tensor])


def test_too_little_memory_is_not_a_bug_of_mtool(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("mtool.boards.load_all", full)
    assert app.invoke(["check", str(DIGITS)]) == 2
    said = capsys.readouterr().err
    assert "out of memory" in said and "internal" not in said
