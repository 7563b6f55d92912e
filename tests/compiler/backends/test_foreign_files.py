"""Backends' C: errors in it name the backend and the user's node, and packages keep its folder complete."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import packages
import pytest
from graphs import model
from onnx import helper

import mtool
from mtool.base.errors import BuildError, UsageError
from mtool.base.option_values import Format
from mtool.commands import CompiledModel, build_model
from mtool.compiler.backends import BackendSpec
from mtool.project import CORES
from mtool.project.package import FORMATS
from mtool.stages.options import Options

BACKEND = """
from mtool.compiler.backends import Backend, Pattern, Product

class Npu(Backend):
    name = "npu"
    patterns = (Pattern("Relu"),)
    options = {"wrong": "where"}

    def compile(self, region, folder):
        wrong = self.values.get("wrong")
        return Product(
            body="    npu_relu(input0, output0);" + ("\\n    nowhere();" if wrong == "body" else ""),
            headers=("npu/npu.h",),
            files={
                "npu/npu.h": b"void npu_relu(const float *x, float *y);\\n",
                "npu/inner.h": b"#define COUNT 8\\n",
                "npu/npu.c": b'''#include "npu.h"
#include "inner.h"

void npu_relu(const float *x, float *y)
{
    for (int i = 0; i < COUNT; ++i) {
        y[i] = x[i] > 0 ? x[i] : %s;
    }
}
''' % (b"nothing" if wrong == "file" else b"0"),
            },
        )
"""


def compiled(folder: Path, board: str = "host", **values: str) -> CompiledModel:
    nodes = [helper.make_node("Relu", ["x"], ["y"], "the user's relu")]
    onnx.save(model(nodes, {"x": (np.float32, (8,))}, ["y"]), folder / "net.onnx")
    (folder / "npu.py").write_text(BACKEND)
    options = Options(backends=(BackendSpec(str(folder / "npu.py"), options=values),))
    return mtool.compile(folder / "net.onnx", board=board, options=options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "reported"),
    [("body", "is C from the backend npu, for the user's relu"), ("file", "npu/npu.c is a file of")],
)
def test_errors_name_the_backend(wrong: str, reported: str, tmp_path: Path) -> None:
    with pytest.raises(BuildError) as failed:
        build_model(compiled(tmp_path, wrong=wrong), tmp_path / "project")
    assert any(reported in line for line in failed.value.details)


@pytest.mark.parametrize("form", FORMATS)
def test_a_folder_of_a_backend_stays_whole(form: Format, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path / "package"
    if CORES.get(form):
        with pytest.raises(UsageError, match="a backend compiles for one"):
            packages.write(compiled(tmp_path), folder, form=form)
        assert not folder.exists()
    packages.write(compiled(tmp_path, board="mps2_an385"), folder, form=form)
    for archive in [*folder.glob("*.tar"), *folder.glob("*.pack")]:
        shutil.unpack_archive(archive, folder, "tar" if archive.suffix == ".tar" else "zip")
    sources = [path for path in folder.rglob("*.c") if path.name in ("net.c", "npu.c")]
    assert len(sources) == 2
    places = {f"-I{path.parent}" for path in folder.rglob("net.h")}
    subprocess.run([compiler, "-std=c99", "-fsyntax-only", "-Werror", *places, *map(str, sources)], check=True)
