"""examples/cascade: the page's commands, the program's output, and the savings."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mtool.cli import app

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_large_model_runs_where_the_gate_is_not_sure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cascade", "digits"):
        shutil.copytree(ROOT / "examples" / name, tmp_path / name)
    monkeypatch.chdir(tmp_path / "cascade")
    page = Path("README.md").read_text()
    compile_line, build_line, _, said, _ = re.findall(r"^    (.+)$", page, re.MULTILINE)
    assert app.invoke(shlex.split(compile_line)[1:]) == 0
    images = subprocess.run([sys.executable, "images.py"], check=True, capture_output=True).stdout
    source = Path("main.c").read_text()
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| ([\d,]+) \| (\d+)% \|$", page, re.MULTILINE)
    assert len(rows) == 3 and "#define SURE 25" in source
    own, whole = (int(found.replace(",", "")) for found in re.findall(r"alone \|.*\| ([\d,]+) \| (?:98%)? ?\|", page))
    for sure, right, passed, instructions, saved in rows:
        Path("main.c").write_text(source.replace("SURE 25", f"SURE {sure}"))
        subprocess.run(shlex.split(build_line), check=True)
        done = subprocess.run(["./cascade"], input=images, check=True, capture_output=True).stdout.decode().strip()
        assert done == f"225 images, {right} right; the large model ran for {passed}"
        if sure == "25":
            assert done == said
        taken = own + whole * int(passed) / 225
        assert abs(taken - int(instructions.replace(",", ""))) < 1 and round(100 * (1 - taken / whole)) == int(saved)
