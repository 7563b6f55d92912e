"""Regions in the tables of operators: compared at their outputs, timed, coloured by backend."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import mtool
from mtool.compiler.backends import BackendSpec
from mtool.stages.options import Options

BACKEND = """
from mtool.compiler.backends import Backend, Pattern, Product

class Npu(Backend):
    name = "npu"
    patterns = (Pattern("Neg"), Pattern("Abs"))
    whole_regions = True

    def compile(self, region, folder):
        kinds = "+".join(one.kind for one in region.operations)
        value = {"Abs+Neg": "-(input0[i] < 0 ? -input0[i] : input0[i])", "Neg": "-input0[i] + (i == 3)"}[kinds]
        return Product(body=f"    for (int32_t i = 0; i < 8; ++i)\\n        output0[i] = {value};", cycles=1234)
"""


@pytest.mark.slow
def test_a_region_among_the_operators(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], "the amount"),
        helper.make_node("Neg", ["a"], ["n"], "the negation"),
        helper.make_node("Softmax", ["n"], ["p"], "the softmax"),
        helper.make_node("Neg", ["p"], ["y"], "the wrong one"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in "xy")
    model = helper.make_model(
        helper.make_graph(nodes, "net", [x], [y]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    onnx.save(model, tmp_path / "net.onnx")
    (tmp_path / "npu.py").write_text(BACKEND)
    options = Options(backends=(BackendSpec(str(tmp_path / "npu.py")),))
    deployment = mtool.Deployment(tmp_path / "project")
    found = mtool.report(tmp_path / "net.onnx", board="host", options=options, deployment=deployment)
    assert found.layers is not None
    regions = [layer for layer in found.layers.layers if layer.operator.backend == "npu"]
    assert [layer.tensor for layer in regions] == ["n", "y"]
    good, bad = (layer.difference for layer in regions)
    assert good is not None and good.differing == 0
    assert bad is not None and bad.differing and not bad.within, "the device's own result is judged"
    rows = {row.name: row for row in found.profile.operators}
    assert (
        rows["npu_0"].by == "npu"
        and "1,234 cycles" in rows["npu_0"].title
        and rows["npu_0"].origins == ("the amount", "the negation")
    )
    assert "1,234 cycles" in str(found.profile) and found.profile.as_json()["operators"][0]["device_cycles"] == 1234
    source = mtool.compile(tmp_path / "net.onnx", board="host", options=options).files.text("net.c")
    assert "backend npu" in source and "c99_call" not in source + str(found.profile) + str(found.layers.as_json())
    assert regions[0].describe().endswith("(backend npu)")
    page = found.as_html()
    assert 'class="bar who1"' in page and '<i class="who0"></i>mtool\'s C<i class="who1"></i>npu' in page
    assert np.isfinite(found.profile.total)
