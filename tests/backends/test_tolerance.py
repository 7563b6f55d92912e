"""What a backend may differ by is what `verify` allows, and no more."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import model
from onnx import helper

import mtool
from mtool.backends import BackendSpec
from mtool.errors import MismatchError
from mtool.workflow.stages import Options

pytest.importorskip("onnxruntime")

BACKEND = """
from mtool.backends import Backend, Pattern, Product

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


@pytest.mark.parametrize("layers", [False, True])
def test_verify_allows_the_steps_that_a_backend_may_be_off(tmp_path: Path, layers: bool) -> None:
    (tmp_path / "near.py").write_text(BACKEND)
    grid = {"scale": np.array(0.5, np.float32), "zero": np.array(0, np.int8)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["f"]),
        helper.make_node("Relu", ["f"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "scale", "zero"], ["y"]),
    ]
    onnx.save(model(nodes, {"x": (np.int8, (8,))}, ["y"], grid), tmp_path / "relu.onnx")
    compare = mtool.verify_layers if layers else mtool.verify

    def check(tolerance: int) -> None:
        options = Options(backends=(BackendSpec(str(tmp_path / "near.py")),), tolerance=tolerance)
        folder = mtool.Deployment(tmp_path / "project")
        compare(tmp_path / "relu.onnx", board="host", samples=2, options=options, deployment=folder).check()

    check(1)
    with pytest.raises(MismatchError):
        check(0)
