"""Wrong options are reported before the model is read, and nothing is left behind."""

from pathlib import Path

import numpy as np
import pytest

from mtool.cli import app
from mtool.compiler import frontend
from mtool.quantization import quantizing

DIGITS = str(Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx")

FOLDER = [
    (["-d", "a_file"], "a_file is a file, not a folder"),
    (["-d", "a_file/below"], "a_file/below can't be written"),
    (["-d", "theirs"], "theirs is not empty and was not made by mtool"),
]
C = [
    (["--board", "nope"], "unknown board 'nope'"),
]
TUNED = [(["--tuned", "nope"], "there is no tuning log nope")]
TEMPLATE = [
    (["--template", "nope"], "there is no template 'nope'"),
    (["--template", "zephyr"], "host has no template zephyr"),
    (["--option", "typo=1"], "the template host has no option 'typo'"),
    (["--option", "opt=-O9"], "invalid value '-O9' for option opt of the template host"),
]
DEVICE = [(["--port", "/dev/nope"], "/dev/nope"), (["--probe", "nope"], "nope")]
DATA = ["--data", "x.npz"]
WRONG = {
    "compile": [*FOLDER, *C, *TUNED],
    "check": [
        *C, *TEMPLATE, (["-d", "a_file"], "a_file is a file, not a folder"), (["-d", "nope"], "nope does not exist"),
    ],
    "tune": [*FOLDER, *C, *TEMPLATE],
    "build": [*FOLDER, *C, *TUNED, *TEMPLATE],
    "run": [
        *FOLDER, *C, *TUNED, *TEMPLATE, *DEVICE,
        (["--input", "nope.npz"], "nope.npz does not exist"),
        (["--input", "a_file"], "a_file"),
    ],
    "verify": [
        *FOLDER, *C, *TUNED, *TEMPLATE, *DEVICE,
        (["--golden", "nope.npz"], "nope.npz does not exist"),
        (["--layers", "--golden", "theirs"], "theirs is a folder"),
    ],
    "bench": [*FOLDER, *C, *TUNED, *TEMPLATE, *DEVICE, (["--layers", "-d", "a_file"], "a_file is a file")],
    "report": [*FOLDER, *C, *TUNED, *TEMPLATE, *DEVICE, (["-o", "a_file/page.html"], "a_file can't be written")],
    "evaluate": [
        *(([*DATA, *options], reported) for options, reported in [*FOLDER, *C, *TUNED, *TEMPLATE, *DEVICE]),
        (["--data", "nope"], "nope does not exist"),
        ([*DATA, "--labels", "nope.npy"], "nope.npy does not exist"),
        ([*DATA, "--metrics", "top1,au"], "unknown metric 'au'"),
    ],
    "quantize": [
        (["--data", "nope"], "nope does not exist"),
        (["--data", "a_file"], "a_file"),
        (["--data", "theirs"], "theirs has no samples"),
        ([*DATA, "--evaluate", "nope.npz"], "nope.npz does not exist"),
        ([*DATA, "--labels", "nope.npy"], "nope.npy does not exist"),
        ([*DATA, "--board", "nope"], "unknown board 'nope'"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("command", WRONG)
def test_a_wrong_option_is_reported_before_the_model_is_read(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: object) -> None:
        pytest.fail("the model is read")

    monkeypatch.setattr(frontend, "load", refuse, raising=False)
    monkeypatch.setattr(quantizing, "read_bound", refuse)
    monkeypatch.chdir(tmp_path)
    Path("a_file").touch()
    Path("theirs").mkdir()
    Path("theirs/notes.txt").touch()
    np.savez("x.npz", x0=np.zeros(4, np.float32))
    before = sorted(tmp_path.rglob("*"))
    for options, reported in WRONG[command]:
        code = app.invoke([command, DIGITS, *options])
        error = capsys.readouterr().err
        assert code in (2, 6) and reported in error, (options, error)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_version_goes_with_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--version", "extra"], ["--version", "boards"]):
        assert app.invoke(arguments) == 2
        assert "mtool 0" not in capsys.readouterr().out
