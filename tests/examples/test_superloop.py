"""examples/superloop: the page's commands, and the program's output."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from mtool.cli import app

ROOT = Path(__file__).parents[2]


def test_the_other_work_gets_a_turn_for_each_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("superloop", "digits"):
        shutil.copytree(ROOT / "examples" / name, tmp_path / name)
    monkeypatch.chdir(tmp_path / "superloop")
    compile_line, *lines = re.findall(r"^    (.+)$", Path("README.md").read_text(), re.MULTILINE)
    assert app.invoke(shlex.split(compile_line)[1:]) == 0
    steps = re.search(r"#define DIGITS_INT8_STEPS (\d+)", Path("model/digits_int8.h").read_text())
    assert steps is not None
    for line in lines:
        done = subprocess.run(shlex.split(line), check=True, capture_output=True, text=True)
    turns = [f"a 7, after {int(steps[1]) * inference} turns of the other work" for inference in (1, 2, 3)]
    assert done.stdout.splitlines() == turns
