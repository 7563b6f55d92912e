"""A model's function with an operator's name: ONNX leaves the choice to the runtime."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import compiled, reference, run_c
from onnx import TensorProto, helper

pytest.importorskip("onnxruntime")

X = np.float32([-1, 2])


def negating(domain: str, name: str, opset: int, called_by: str = "") -> onnx.ModelProto:
    """Call a function that negates; by another function, if that is named."""
    imports = {"": opset} | ({domain: 1} if domain not in ("", "ai.onnx") else {})
    ids = [helper.make_opsetid(one, version) for one, version in imports.items()]
    functions = [helper.make_function(domain, name, ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])], ids[:1])]
    if called_by:
        inner = helper.make_node(name, ["a"], ["b"], domain=domain)
        functions.append(helper.make_function("own", called_by, ["a"], ["b"], [inner], ids))
        ids.append(helper.make_opsetid("own", 1))
    node = helper.make_node(called_by or name, ["x"], ["y"], domain="own" if called_by else domain)
    x, y = (helper.make_tensor_value_info(one, TensorProto.FLOAT, [2]) for one in "xy")
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, opset_imports=ids, functions=functions, ir_version=8)


@pytest.mark.parametrize("called_by", ["", "outer"])
@pytest.mark.parametrize(
    ("domain", "name", "opset"),
    [
        ("", "Relu", 17),
        ("ai.onnx", "Relu", 17),
        ("", "Mish", 18),  # itself a function of ONNX
        ("", "HardSwish", 14),
        ("ai.onnx.ml", "Binarizer", 17),
        ("com.microsoft", "Gelu", 17),
        ("own", "Relu", 17),
    ],
)
def test_the_operator_goes_first_as_in_onnxruntime(
    domain: str, name: str, opset: int, called_by: str, tmp_path: Path
) -> None:
    proto = negating(domain, name, opset, called_by)
    if domain == "ai.onnx":  # another name of "", which onnxruntime does not know everywhere
        expected = np.float32([0, 2])
    else:
        (expected,) = reference(proto, {"x": X})
    (found,) = run_c(compiled(proto), {"x": X}, tmp_path)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert (found == -X).all() == (domain == "own")


@pytest.mark.parametrize("opset", [17])
@pytest.mark.parametrize("name", ["Mish", "Gelu", "NoSuchOperator"])
def test_a_function_stands_in_for_what_its_opset_has_not(name: str, opset: int, tmp_path: Path) -> None:
    """Mish is there from opset 18 on, Gelu from 20; onnxruntime refuses such a model."""
    (found,) = run_c(compiled(negating("", name, opset)), {"x": X}, tmp_path)
    assert (found == -X).all()
