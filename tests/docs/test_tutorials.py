"""The tutorials' commands print what the pages show, but for numbers: each page in a folder with the example's model.

What needs a compiler or an emulator runs with `make test-all`; what needs a model that is not here, a board or a
network is parsed alone (test_docs.py).
"""

import re
import shutil
from pathlib import Path

import amount
import pages
import pytest

from mtool.cli import app

HERE = ("host", "mps2_an386", "arduino_mega2560")  # boards that run without hardware, and without Zephyr
QUICK = ("check", "compile")  # that need no compiler: a quarter of them runs always
NOT_HERE = ("doctor", "flash", "debug", "monitor")  # depend on what is installed, or wait
DIGITS = pages.ROOT / "examples" / "digits"
TUTORIALS = [pages.ROOT / "README.md", *sorted((pages.ROOT / "docs" / "tutorials").glob("*.md"))]


def runs_here(command: pages.Command) -> bool:
    """Return whether a command can be run in this folder, in the time that there is."""
    board = dict(zip(command.words, command.words[1:], strict=False)).get("--board", "host")
    files = [word for word in command.words if Path(word).suffix in (".onnx", ".tflite", ".npz", ".toml")]
    is_quick = command.name in QUICK and amount.takes(command.line.encode())
    return (
        any(line.strip() for line in command.output)
        and command.name not in NOT_HERE
        and (is_quick or (board in HERE and amount.IS_ALL))
        and all(Path(file).exists() for file in files)
        and (command.name != "test" or Path("mtool.toml").exists())
    )


def masked(line: str) -> str:
    """Return a line without its numbers, which a compiler's version or a computer's speed decides, and its spaces."""
    return re.sub(r"[\s.]+", " ", re.sub(r"\d[\d,.]*( [kM]?B\b| µs| k\b| M\b)?", "#", line)).strip()


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_each_command_prints_what_the_page_shows(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("digits_int8.onnx", "test_data.npz"):
        shutil.copy(DIGITS / name, tmp_path)
    shutil.copytree(DIGITS, tmp_path / "examples" / "digits")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    for command in pages.commands(page.read_text()):
        if not runs_here(command):
            continue
        code = app.invoke(command.words)
        said = {masked(line) for line in "".join(capfd.readouterr()).splitlines()}
        shown = [line for line in command.output if line.strip() not in ("", "...") and not line.startswith("exit ")]
        told = next((int(line.split()[1]) for line in command.output if line.startswith("exit ")), 0)
        assert code == told, command.line
        for line in shown:
            assert masked(line) in said, f"{command.line}: {line!r} is not in {sorted(said)}"
