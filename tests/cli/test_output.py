"""The command line's output: exit codes, errors, JSON, stdout and stderr."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mtool.base import errors
from mtool.cli import app
from mtool.cli.output import Output, table

ERRORS = [
    errors.MtoolError,
    errors.UsageError,
    errors.ModelError,
    errors.FitError,
    errors.BuildError,
    errors.BoardError,
    errors.FlashError,
    errors.CommunicationError,
    errors.MismatchError,
    errors.DeviceError,
]

Captured = pytest.CaptureFixture[str]


def failing(error: BaseException) -> Callable[[Output], None]:
    def boards(out: Output) -> None:
        out.note("working")
        raise error

    return boards


def with_command(monkeypatch: pytest.MonkeyPatch, command: Callable[..., None]) -> None:
    monkeypatch.setattr(app, "load", lambda name: command)


@pytest.mark.parametrize("error", ERRORS)
def test_each_error_has_its_exit_code_and_form(
    error: type[errors.MtoolError], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    with_command(monkeypatch, failing(error("it broke", details=["expected  1", "found     2"], hint="try again")))
    assert app.invoke(["boards"]) == error.exit_code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == (
        f"working\nerror: it broke\n  expected  1\n  found     2\ntry again\nexit {error.exit_code}\n"
    )


def test_an_error_is_json_too(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    with_command(monkeypatch, failing(errors.FitError("too large", details=["by 3 B"])))
    assert app.invoke(["boards", "--json"]) == 4
    described = {"what": "too large", "details": ["by 3 B"], "hint": "", "exit_code": 4}
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "command": "boards", "error": described}


def test_a_bug_ends_with_1_and_shows_its_traceback_when_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    with_command(monkeypatch, failing(KeyError("oops")))
    assert app.invoke(["boards"]) == 1
    brief = capsys.readouterr().err
    assert "internal error: KeyError: 'oops'" in brief and "-vv" in brief and "Traceback" not in brief
    assert app.invoke(["boards", "-vv"]) == 1
    assert "Traceback" in capsys.readouterr().err
    assert app.invoke(["-vv", "boards"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    with_command(monkeypatch, failing(KeyboardInterrupt()))
    assert app.invoke(["boards"]) == 130


def test_quiet_leaves_the_error(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    with_command(monkeypatch, failing(errors.BoardError("no board")))
    assert app.invoke(["boards", "-q"]) == 6
    assert capsys.readouterr().err == "error: no board\nexit 6\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frobnicate"], "no such command 'frobnicate'"),
        (["run"], "missing argument 'MODEL...|PROJECT'"),
        (["run", "m.onnx", "--frob"], "no such option: --frob"),
        (["run", "m.onnx", "--io", "nowhere"], "invalid value for '--io'"),
        (["verify", "m.onnx", "--samples", "0"], "invalid value for '--samples'"),
        (["run", "m.onnx", "--dim", "batch"], "--dim batch: expected NAME=VALUE"),
        (["run", "m.onnx", "--dim", "batch=0"], "expected a whole number of at least 1, found '0'"),
        (["run", "m.onnx", "--max", "selected=none"], "expected a whole number of at least 1, found 'none'"),
        (["run", "m.onnx", "--option", "opt"], "--option opt: expected NAME=VALUE"),
    ],
)
def test_usage_errors_end_with_2(arguments: list[str], message: str, capsys: Captured) -> None:
    assert app.invoke(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.endswith("exit 2\n")
    assert message in captured.err


def test_no_command_shows_the_help(capsys: Captured) -> None:
    assert app.invoke([]) == 2
    assert "Exit codes" in capsys.readouterr().err


def test_the_version_is_one_line(capsys: Captured) -> None:
    assert app.invoke(["--version"]) == 0
    assert capsys.readouterr().out.startswith("mtool ")


@pytest.mark.slow
def test_as_a_process(tmp_path: Path) -> None:
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    argv = [sys.executable, "-c", "from mtool.cli import main; main()"]
    done = subprocess.run([*argv, "boards"], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mps2_an386" in done.stdout and "\x1b" not in done.stdout
    wrong = subprocess.run([*argv, "run"], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert (wrong.returncode, wrong.stdout) == (2, "")


def test_importing_mtool_is_light() -> None:
    code = "import sys, mtool; sys.exit(any(name in sys.modules for name in ('numpy', 'onnx', 'pydantic', 'typer')))"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


HOSTILE = "a\x1b]0;evil\x07\x1b[2J\x9b31m\u202eevil\u2066[red]x[/red]\x00\rerror: evil\nerror: evil"


def telling(text: str) -> Callable[[Output], None]:
    def boards(out: Output) -> None:
        out.note(f"note {text}")
        logging.getLogger("mtool.commands.x").info("log %s", text)
        logging.getLogger("mtool.firmware").info("board %s", text)
        logging.getLogger("mtool.firmware").warning("warned %s", text)
        out.text(f"result {text}", table((text, "other"), [[text, text]]))
        raise errors.ModelError(f"what {text}", details=[f"detail {text}"], hint=f"hint {text}")

    return boards


@pytest.mark.parametrize("arguments", [[], ["-v"], ["-vv"], ["--json"]])
def test_text_of_a_model_or_a_board_is_escaped(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    with_command(monkeypatch, telling(HOSTILE))
    assert app.invoke(["boards", *arguments]) == 3
    captured = capsys.readouterr()
    for stream in captured:
        assert stream.replace("\n", "").isprintable()
        assert not [line for line in stream.splitlines() if line.startswith("error: evil")]
    if arguments == ["--json"]:
        assert json.loads(captured.out)["error"]["details"] == [f"detail {HOSTILE}"]
    else:
        assert "\\x1b]0;evil\\x07" in captured.out and "[red]x[/red]" in captured.out
        assert captured.err.count("error: ") - captured.err.count("error: evil") == 1


def test_names_of_any_length_leave_an_error_readable(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    with_command(monkeypatch, telling("x" * 100_000))
    assert app.invoke(["boards", "-q"]) == 3
    captured = capsys.readouterr()
    assert "…" in captured.err and len(captured.err) < 5_000
    assert all(len(line) < 2_500 for line in captured.out.splitlines()[1:])


def test_an_error_as_text_is_printable() -> None:
    assert str(errors.ModelError(HOSTILE, details=[HOSTILE], hint=HOSTILE)).replace("\n", "").isprintable()


def test_a_cmake_package_for_this_computer_says_how_to_name_a_board(tmp_path: Path, capsys: Captured) -> None:
    model = str(Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx")
    for board, is_named in (("host", False), ("mps2_an386", True)):
        folder = str(tmp_path / board)
        assert app.invoke(["compile", model, "--emit", "cmake", "--board", board, "-d", folder]) == 0
        assert ("name its board: --board NAME" in capsys.readouterr().out) != is_named
