"""Symbolic dimensions: which count as such, and the sizes that an error suggests."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mtool.base.errors import ModelError
from mtool.compiler.frontend import ModelOptions, load

F = TensorProto.FLOAT


def save(folder: Path, nodes: Sequence[onnx.NodeProto], shape: Sequence[object], kernel: int = 0) -> Path:
    values = [helper.make_tensor_value_info("x", F, shape)], [helper.make_tensor_value_info("y", F, None)]
    weights = [numpy_helper.from_array(np.ones((1, 1, kernel), np.float32), "w")] if kernel else []
    graph = helper.make_graph(list(nodes), "g", *values, weights)
    path = folder / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def hint_of(path: Path) -> str:
    with pytest.raises(ModelError, match="without a value") as caught:
        load(path)
    return caught.value.hint


RELU = [helper.make_node("Relu", ["x"], ["y"])]


@pytest.mark.parametrize("size", [-1, -7])
def test_a_negative_dimension_is_symbolic(tmp_path: Path, size: int) -> None:
    path = save(tmp_path, RELU, [size, 4])
    assert hint_of(path) == "give --dim x_0=1"
    assert load(path, ModelOptions({"x_0": 3})).types["y"].shape == (3, 4)


def test_a_negative_dimension_of_an_output_is_open(tmp_path: Path) -> None:
    proto = onnx.load(save(tmp_path, RELU, [2, 4]))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", F, [-1, 4]))
    onnx.save(proto, tmp_path / "m.onnx")
    assert load(tmp_path / "m.onnx").types["y"].shape == (2, 4)


@pytest.mark.parametrize(("kernel", "stride"), [(100, 1), (100, 64), (2000, 2000)])
def test_a_size_that_does_not_work_is_not_suggested(tmp_path: Path, kernel: int, stride: int) -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["y"], strides=[stride])
    path = save(tmp_path, [conv], ["n", 1, "time"], kernel)
    length = 128 if kernel == 100 else 4096
    assert hint_of(path).startswith(f"give --dim n=1 --dim time={length};")
    assert load(path, ModelOptions({"n": 1, "time": length})).types["x"].shape == (1, 1, length)
    with pytest.raises(ModelError) as refused:
        load(path, ModelOptions({"n": 1, "time": 1}))
    assert str(kernel)[:1] in str(refused.value)


def test_no_size_is_suggested_where_none_is_known_to_work(tmp_path: Path) -> None:
    banish = helper.make_node("Banish", ["x"], ["y"], domain="org.example")
    proto = onnx.load(save(tmp_path, [banish], ["n", 4]))
    proto.opset_import.append(helper.make_opsetid("org.example", 1))
    onnx.save(proto, tmp_path / "m.onnx")
    assert hint_of(tmp_path / "m.onnx") == "give --dim n=N, with the sizes that the model was trained for"


def test_sizes_that_are_given_are_kept(tmp_path: Path) -> None:
    both = [helper.make_node("Add", ["x", "w"], ["y"])]  # w has 8 elements in its last dimension
    path = save(tmp_path, both, ["n", "a", "b"], kernel=8)
    with pytest.raises(ModelError) as caught:
        load(path, ModelOptions({"a": 3}))
    assert caught.value.hint == "give --dim n=1 --dim b=1"


@pytest.mark.parametrize("attributes", [{}, {"auto_pad": "VALID"}, {"pads": [1, 0]}])
def test_a_window_larger_than_its_padded_input_is_refused(tmp_path: Path, attributes: dict[str, object]) -> None:
    conv = helper.make_node("Conv", ["x", "w"], ["y"], strides=[4], **attributes)
    with pytest.raises(ModelError) as refused:
        load(save(tmp_path, [conv], [1, 1, 3], 5))
    assert "its window spans 5 elements" in refused.value.details[0]
