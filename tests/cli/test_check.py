"""mtool check: operators, sizes, where the model fits."""

import json
import re
from pathlib import Path

import pytest

from mtool import boards, compiler
from mtool.cli import app

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"

Captured = pytest.CaptureFixture[str]


def test_it_lists_operators_sizes_and_boards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.chdir(tmp_path)
    assert app.invoke(["check", str(DIGITS), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [fit["board"] for fit in document["boards"]] == list(boards.load_all())
    assert all(fit["fits"] for fit in document["boards"])
    assert document["manifest"]["macs"] == sum(operator["macs"] for operator in document["manifest"]["operators"])
    assert app.invoke(["check", str(DIGITS), "--board", "mps2_an386"]) == 0
    shown = capsys.readouterr().out
    assert "conv2d 3x3" in shown and "231 k MACs" in shown and "of 4 MB" in shown
    assert list(tmp_path.iterdir()) == []


def test_a_board_that_was_named_and_is_too_small_ends_with_4(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr(compiler, "CODE_RESERVE_BYTES", 5 << 20)
    assert app.invoke(["check", str(DIGITS)]) == 0
    assert "DOES NOT FIT" in capsys.readouterr().out
    assert app.invoke(["check", str(DIGITS), "--board", "mps2_an386"]) == 4
    captured = capsys.readouterr()
    first, second = captured.err.splitlines()[:2]
    assert first == "error: digits_int8.onnx does not fit mps2_an386"
    assert re.fullmatch(r"  mps2_an386: flash [\d.]+ KB of 4 MB", second)
