"""A model's names that are not UTF-8 are model errors, wherever they occur."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import model
from onnx import helper, numpy_helper

from mtool.base.errors import ModelError
from mtool.compiler import frontend
from mtool.compiler.frontend.options import ModelOptions

PLACES = ["input", "output", "node", "graph", "domain", "weight", "attribute", "dim", "document", "producer", "inner"]


def network() -> onnx.ModelProto:
    inner = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["inner_"])], "branch", [], [helper.make_tensor_value_info("inner_", 1, None)]
    )
    branches = {"then_branch": inner, "else_branch": inner}
    nodes = [
        helper.make_node("Add", ["input_", "weight_"], ["x"], name="node_", doc_string="document_"),
        helper.make_node("If", ["which"], ["z"], **branches),
        helper.make_node("LeakyRelu", ["x"], ["output_"], alpha=0.5),
    ]
    made = model([nodes[0], nodes[2]], {"input_": (np.float32, (2,))}, ["output_"], {"weight_": np.ones(2, np.float32)})
    made.graph.name, made.producer_name = "graph_", "producer_"
    made.graph.node.insert(1, nodes[1])
    made.graph.initializer.append(numpy_helper.from_array(np.asarray(True), "which"))
    made.graph.node[2].attribute.append(helper.make_attribute("attribute_", 1))
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "dim_"
    made.opset_import.append(helper.make_opsetid("domain_", 1))
    return made


@pytest.mark.parametrize("place", PLACES)
def test_a_name_that_is_not_utf_8_is_reported(place: str, tmp_path: Path) -> None:
    data = network().SerializeToString()
    assert f"{place}_".encode() in data
    path = tmp_path / "m.onnx"
    path.write_bytes(data.replace(f"{place}_".encode(), b"\xff" * len(place) + b"_"))
    with pytest.raises(ModelError, match="contains a name that is not UTF-8"):
        frontend.load(path, ModelOptions(dims={"dim_": 2}))


def test_options_that_an_error_suggests_are_quoted_for_a_shell(tmp_path: Path) -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (np.float32, (2,))}, ["y"])
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "$(touch evil)"
    onnx.save(made, tmp_path / "m.onnx")
    with pytest.raises(ModelError) as caught:
        frontend.load(tmp_path / "m.onnx")
    assert caught.value.hint == "give --dim '$(touch evil)'=1"
