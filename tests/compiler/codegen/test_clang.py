"""Clang has no warnings about generated C and the runtime's headers, except those that the house style allows."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from conventions import CONVENTIONS
from golden_model import small_model
from graphs import HOST, NO_FPU, compiled

from mtool.base import resources
from mtool.compiler import codegen
from mtool.compiler.kernels.target import Target

INCLUDE = resources.path("crt") / "include"
ALLOWED = {
    "cast-align": "a place in the arena has the alignment of what lies there",
    "cast-qual": "packed functions take what they only read as void *, as the C API of TVM does",
    "covered-switch-default": "a default is there for what a caller may pass",
    "declaration-after-statement": "C99 has it",
    "disabled-macro-expansion": "of the C library",
    "empty-translation-unit": "of headers that hold macros only",
    "float-equal": "ONNX's Equal, and what NumPy tests too",
    "missing-prototypes": "of operators, where the header of a model is left out",
    "padded": "structures are laid out for their readers",
    "reserved-identifier": "of the toolchain",
    "reserved-macro-identifier": "of the toolchain",
    "switch-default": "a switch over all that there is",
    "unsafe-buffer-usage": "of C++",
    "unused-function": "inline functions of headers",
    "unused-macros": "macros of headers",
    "used-but-marked-unused": "not all models call a function of a header, or of their own",
    "unknown-warning-option": "of newer versions of Clang",
}
FLAGS = ["-std=c99", "-Weverything", *(f"-Wno-{name}" for name in ALLOWED), "-Werror", "-fsyntax-only", f"-I{INCLUDE}"]

pytestmark = pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")


def warnings(sources: Iterable[Path]) -> str:
    return subprocess.run(["clang", *FLAGS, "-x", "c", *sources], stderr=subprocess.PIPE, text=True, check=False).stderr


def test_headers_of_the_runtime(tmp_path: Path) -> None:
    """All in one unit, so that the compiler starts once; tests/crt holds that each stands alone."""
    names = sorted(path.name for path in INCLUDE.glob("*.h"))
    assert len(names) > 50
    (tmp_path / "all.c").write_text("".join(f'#include "{name}"\n' for name in names))
    assert warnings([tmp_path / "all.c"]) == ""


@pytest.mark.parametrize(
    "target",
    [
        HOST,
        NO_FPU,
        Target("cortex-m4", frozenset({"fpu", "dsp"})),
        Target("cortex-m55", frozenset({"fpu", "dsp", "mve"})),
    ],
    ids=["host", "no_fpu", "dsp", "mve"],
)
def test_a_model_by_the_portable_branches_of_each_instruction_set(target: Target, tmp_path: Path) -> None:
    files, _ = codegen.generate(compiled(small_model(), target, "small"), "small.onnx", "ab" * 32)  # type: ignore[arg-type]
    for name in files:
        (tmp_path / name).write_bytes(files[name])
    assert warnings(sorted(tmp_path.glob("*.c"))) == ""


@pytest.mark.parametrize("chosen", CONVENTIONS.values(), ids=CONVENTIONS)
def test_a_model_of_each_convention(chosen: codegen.Conventions, tmp_path: Path) -> None:
    files, _ = codegen.generate(compiled(small_model(), HOST, "small"), "small.onnx", "ab" * 32, chosen)  # type: ignore[arg-type]
    for name in files:
        (tmp_path / name).write_bytes(files[name])
    assert warnings(sorted(tmp_path.glob("*.c"))) == ""
