"""The generated C of a small model under review: `make golden` updates it, and the diff is reviewed."""

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from golden_model import sized_model, small_model
from graphs import HOST, NO_FPU, compiled
from single_pass import DSP
from sized import planned

from mtool.compiler import codegen

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.mark.parametrize(("target", "folder"), [(HOST, "small"), (NO_FPU, "small_no_fpu")])
def test_generated_c_is_what_was_reviewed(target: object, folder: str) -> None:
    files, _ = codegen.generate(compiled(small_model(), target, "small"), "small.onnx", "ab" * 32)  # type: ignore[arg-type]
    place = GOLDEN / folder
    if os.environ.get("MTOOL_UPDATE_GOLDEN"):
        place.mkdir(parents=True, exist_ok=True)
        for name in files:
            (place / name).write_bytes(files[name])
    for name in files:
        assert files.text(name) == (place / name).read_text(), f"{name} has changed: read the diff, then `make golden`"


@pytest.mark.parametrize(
    ("chosen", "folder"),
    [
        (codegen.conventions("packed", "packed"), "small_packed"),
        (codegen.conventions("c", "values"), "small_values"),
        (codegen.conventions("step", "pointers"), "small_step"),
        (codegen.conventions(executor="graph"), "small_graph"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_other_conventions_change_is_what_was_reviewed(chosen: codegen.Conventions, folder: str) -> None:
    plan = compiled(small_model(), HOST, "small")  # type: ignore[arg-type]
    plain, _ = codegen.generate(plan, "small.onnx", "ab" * 32)
    files, _ = codegen.generate(plan, "small.onnx", "ab" * 32, chosen)
    changed = {name: files.text(name) for name in files if name not in plain.files or plain[name] != files[name]}
    place = GOLDEN / folder
    if os.environ.get("MTOOL_UPDATE_GOLDEN"):
        place.mkdir(parents=True, exist_ok=True)
        for name, text in changed.items():
            (place / name).write_text(text)
    assert sorted(path.name for path in place.iterdir()) == sorted(changed)
    for name, text in changed.items():
        assert text == (place / name).read_text(), f"{name} has changed: read the diff, then `make golden`"


def test_generated_c_with_run_time_sizes_is_what_was_reviewed(tmp_path: Path) -> None:
    onnx.save(sized_model(), tmp_path / "sized.onnx")
    files, _ = codegen.generate(planned(tmp_path / "sized.onnx", {"n": 12}, DSP), "sized.onnx", "ab" * 32)
    place = GOLDEN / "sized"
    if os.environ.get("MTOOL_UPDATE_GOLDEN"):
        place.mkdir(parents=True, exist_ok=True)
        for name in files:
            (place / name).write_bytes(files[name])
    for name in files:
        assert files.text(name) == (place / name).read_text(), f"{name} has changed: read the diff, then `make golden`"


def test_the_same_model_gives_the_same_bytes_in_another_process() -> None:
    script = (
        "import sys; sys.path[:0] = ['tests', 'tests/compiler/codegen']\n"
        "from test_golden_c import *\n"
        "print(codegen.generate(compiled(small_model(), HOST, 'small'), 'small.onnx', '')[0].digest())"
    )
    argv = [sys.executable, "-c", script]
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"  # sets have another order there
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    other = subprocess.run(argv, cwd=Path(__file__).parents[3], env=environment, check=True, stdout=subprocess.PIPE)
    here = codegen.generate(compiled(small_model(), HOST, "small"), "small.onnx", "")[0].digest()
    assert other.stdout.decode().strip() == str(here)
