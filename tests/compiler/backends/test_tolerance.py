"""`verify` accepts exactly the tolerance of a backend."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import model
from onnx import helper

import mtool
from mtool.base.errors import MismatchError
from mtool.commands import build_model
from mtool.compiler.backends import BackendSpec
from mtool.stages.options import Options
from mtool.verification.layers import compare_layers

pytest.importorskip("onnxruntime")

BACKEND = """
from mtool.compiler.backends import Backend, Pattern, Product

class Near(Backend):
    name = "nearly"
    patterns = (Pattern("Relu"),)

    def compile(self, region, folder):
        return Product(body='''
    for (int i = 0; i < 8; ++i) {
        output0[i] = input0[i] > 0 ? input0[i] : 0;
    }
    output0[3] = (int8_t)(output0[3] ^ 1);
''')
"""


def relu(folder: Path) -> Path:
    """Write a Relu of int8, and the backend that is off by one in an element."""
    (folder / "near.py").write_text(BACKEND)
    grid = {"scale": np.array(0.5, np.float32), "zero": np.array(0, np.int8)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["f"]),
        helper.make_node("Relu", ["f"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "scale", "zero"], ["y"]),
    ]
    onnx.save(model(nodes, {"x": (np.int8, (8,))}, ["y"], grid), folder / "relu.onnx")
    return folder / "relu.onnx"


@pytest.mark.parametrize("layers", [False, True])
def test_verify_allows_the_steps_that_a_backend_may_be_off(tmp_path: Path, layers: bool) -> None:
    path = relu(tmp_path)
    compare = mtool.verify_layers if layers else mtool.verify

    def check(tolerance: int) -> None:
        options = Options(backends=(BackendSpec(str(tmp_path / "near.py")),), tolerance=tolerance)
        folder = mtool.Deployment(tmp_path / "project")
        compare(path, board="host", samples=2, options=options, deployment=folder).check()

    check(1)
    with pytest.raises(MismatchError):
        check(0)


def test_operators_that_no_backend_computes_are_held_to_what_they_are(tmp_path: Path) -> None:
    path = relu(tmp_path)
    options = Options(backends=(BackendSpec(str(tmp_path / "near.py")),), tolerance=1)
    made = mtool.compile(path, board="host", options=options)
    inputs = [{"x": np.arange(8, dtype=np.int8)}]
    prepared = build_model(made, tmp_path / "project")
    with mtool.open(prepared) as device:
        compare_layers(device, made, inputs).check()
    described = tmp_path / "project" / "mtool.json"
    described.write_text(described.read_text().replace('"backend": "nearly"', '"backend": ""'))
    with mtool.open(tmp_path / "project") as device, pytest.raises(MismatchError):
        compare_layers(device, made, inputs).check()
