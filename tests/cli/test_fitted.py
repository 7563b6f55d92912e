"""Tables fit the terminal, and are complete without one."""

import io
import re

import pytest
from rich.console import Console

from mtool.cli import app
from mtool.cli.output import table

HEADS = ("board", "what", "bytes", "")
ROWS = [["arduino_mega2560", "int8[1,49,10,1] -> int8[1,25,5,64]", "1,234,567", "█" * 20], ["x", "y", "1", "█" * 10]]


def drawn(width: int, *, folds: bool = False, terminal: bool = True) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=terminal, color_system=None)
    console.print(table(HEADS, ROWS, right=(2,), folds=folds))
    return [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in stream.getvalue().splitlines()]


def test_wide_terminals_show_whole_tables() -> None:
    whole = drawn(1000)
    assert whole == drawn(90) and len(whole) == 3
    assert all(cell in whole[1] for cell in ROWS[0])


@pytest.mark.parametrize("width", [80, 60, 45, 30])
def test_names_and_numbers_stay_whole_the_longest(width: int) -> None:
    lines = drawn(width)
    assert len(lines) == 3 and max(map(len, lines)) <= width
    assert width < 40 or ("arduino_mega2560" in lines[1] and "1,234,567" in lines[1])
    assert ("█" in lines[1]) == (width >= 75)
    folded = drawn(width, folds=True)
    assert folded == drawn(width, terminal=False)
    assert max(map(len, folded)) <= width
    assert width < 40 or "25,5,64]" in "".join("".join(folded).split())


def test_a_list_of_boards_fits_eighty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert app.invoke(["boards"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and any(line.startswith("arduino_mega2560 ") for line in lines)
    monkeypatch.delenv("COLUMNS")
    assert app.invoke(["boards"]) == 0
    assert "…" not in capsys.readouterr().out
