"""examples/own_kernel: one operator with your own C file."""

import re
import shutil
from pathlib import Path

import graphs
import numpy as np
import onnx
from onnx import helper

import mtool
from mtool.compiler.backends import BackendSpec
from mtool.stages.deployment import Deployment
from mtool.stages.options import Options

ROOT = Path(__file__).parents[2]
OPTIONS = Options(backends=(BackendSpec(str(ROOT / "examples" / "own_kernel" / "kernel.py")),))


def test_it_computes_the_operator(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("HardSigmoid", ["x"], ["h"], name="gate", alpha=0.3, beta=0.4),
        helper.make_node("Mul", ["h", "x"], ["y"], name="product"),
    ]
    onnx.save(graphs.model(nodes, {"x": (np.float32, (1, 7))}, ["y"]), tmp_path / "net.onnx")
    model = mtool.compile(tmp_path / "net.onnx", board="host", options=OPTIONS)
    assert {claim.kind: claim.backend for claim in model.manifest.claims} == {"HardSigmoid": "own_kernel", "Mul": ""}
    assert re.search(rb"\bhard_sigmoid\(input0, output0, 7, 0\.3\d*f, 0\.4\d*f\)", model.files["net.c"])
    if shutil.which("cc"):
        assert mtool.verify(
            tmp_path / "net.onnx", board="host", deployment=Deployment(tmp_path / "p"), options=OPTIONS, samples=2
        ).ok
