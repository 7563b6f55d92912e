"""The page on state: its code runs as shown, in order."""

import re
import shlex
from pathlib import Path

import pytest

from mtool.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "state.md"


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    text = re.sub(r"<!-- not run: .* -->\n\n    .*\n", "", PAGE.read_text())
    done = []
    for block in re.finditer(r"```(\w+)\n([\s\S]*?)```|^    (mtool .*)$", text, re.MULTILINE):
        language, code, command = block.groups()
        if command is not None:
            assert app.invoke(shlex.split(command)[1:]) == 0, command
            done.append("command")
        else:
            assert language == "python"
            exec(compile(code, str(PAGE), "exec"), {})
            done.append("python")
    assert done == ["python", "command", "command", "command", "python"]
    shown = capsys.readouterr()
    assert "level.onnx on host matches onnxruntime over 20 steps of a sequence" in shown.out
    assert "void level_reset(void);" in (tmp_path / "c" / "level.h").read_text()
