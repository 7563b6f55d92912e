from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import compiled, model, run_c
from onnx import TensorProto, helper

from mtool.base.errors import ModelError, UsageError
from mtool.compiler.frontend import ModelOptions, from_proto, load
from mtool.compiler.frontend.reading import MIN_OPSET


def save(folder: Path, proto: onnx.ModelProto) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def relu(shape: list[int | str]) -> onnx.ModelProto:
    node = helper.make_node("Relu", ["x"], ["y"])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        load(tmp_path / "none.onnx")


def test_not_a_model(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\xff not a protobuf \xff")
    with pytest.raises(ModelError, match="not an ONNX model"):
        load(path)
    path.write_bytes(b"")
    with pytest.raises(ModelError, match="is empty"):
        load(path)


def test_a_cut_file(tmp_path: Path) -> None:
    whole = relu([1, 4]).SerializeToString()
    path = tmp_path / "m.onnx"
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ModelError):
            load(path)


@pytest.mark.parametrize("left", ["nothing", "the elements", "the shape"])
def test_an_output_without_a_type_gets_the_one_that_is_inferred(left: str, tmp_path: Path) -> None:
    proto = relu([2, 3])
    proto.graph.output[0].type.Clear()
    if left == "the elements":
        proto.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    if left == "the shape":
        proto.graph.output[0].type.tensor_type.shape.dim.add().dim_value = 2
    graph = load(save(tmp_path, proto))
    assert str(graph.types["y"]) == "float32[2,3]"


def test_an_output_whose_type_can_not_be_inferred_is_refused(tmp_path: Path) -> None:
    proto = relu([2, 3])
    proto.graph.node[0].op_type = "NonZero"
    proto.graph.output[0].type.Clear()
    with pytest.raises(ModelError, match="can't be compiled") as refused:
        load(save(tmp_path, proto))
    assert "--max y=N" in refused.value.details[0]


def test_symbolic_dimension_needs_a_value(tmp_path: Path) -> None:
    path = save(tmp_path, relu(["batch", 4]))
    with pytest.raises(ModelError, match="without a value") as caught:
        load(path)
    assert "--dim batch=1" in caught.value.hint
    assert load(path, ModelOptions({"batch": 3})).types["x"].shape == (3, 4)
    with pytest.raises(UsageError, match="no symbolic dimension"):
        load(path, ModelOptions({"batch": 3, "time": 2}))


def test_external_data_outside_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\0" * 16)
    inner = tmp_path / "inner"
    inner.mkdir()
    proto = model(
        [helper.make_node("Add", ["x", "w"], ["y"])], {"x": (np.float32, (4,))}, ["y"], {"w": np.zeros(4, np.float32)}
    )
    tensor = proto.graph.initializer[0]
    for location in ("../secret", str(tmp_path / "secret")):
        onnx.external_data_helper.set_external_data(tensor, location)
        with pytest.raises(ModelError, match="outside its folder"):
            load(save(inner, proto))
    (inner / "link").symlink_to(tmp_path / "secret")
    onnx.external_data_helper.set_external_data(tensor, "link")
    with pytest.raises(ModelError, match="outside its folder"):
        load(save(inner, proto))


def test_all_unsupported_operators_are_listed_at_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="fine"),
        helper.make_node("FancyOp", ["a"], ["b"], name="first", domain="acme"),
        helper.make_node("RandomNormalLike", ["x"], ["c"], name="second"),
        helper.make_node("Relu", ["b"], ["d"], name="follows"),
    ]
    proto = model(nodes, {"x": (np.float32, (1, 4))}, ["d", "c"])
    proto.opset_import.append(helper.make_opsetid("acme", 1))
    with pytest.raises(ModelError, match="2 operators") as caught:
        load(save(tmp_path, proto))
    assert [line.split()[1] for line in caught.value.details] == ["first", "second"]


def test_an_opset_older_than_the_oldest_is_refused(tmp_path: Path) -> None:
    proto = relu([1, 4])
    proto.opset_import[0].version = MIN_OPSET - 1
    with pytest.raises(ModelError):
        load(save(tmp_path, proto))


def test_an_optional_without_a_value_is_reported_by_name() -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(1, [2]))
    nodes = [
        helper.make_node("Optional", [], ["o"], name="nothing", type=kind),
        helper.make_node("OptionalGetElement", ["o"], ["y"], name="got"),
    ]
    outputs = [helper.make_tensor_value_info("y", 1, [2])]
    proto = helper.make_model(helper.make_graph(nodes, "g", [], outputs), opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(ModelError) as refused:
        from_proto(proto, "test")
    assert any("nothing" in line and "its optional is empty" in line for line in refused.value.details)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 1, 5), (2, 3, 1, 4, 5), (2, 3, 4, 5)])
def test_the_largest_of_a_constant_along_any_number_of_dimensions(shape: tuple[int, ...], tmp_path: Path) -> None:
    """onnx's own reference takes it along the last two, whatever there are."""
    data = np.random.default_rng(2).permutation(int(np.prod(shape))).reshape(shape).astype(np.float32)
    nodes = [helper.make_node("GlobalMaxPool", ["c"], ["m"]), helper.make_node("Add", ["x", "m"], ["y"])]
    wanted = data.max(axis=tuple(range(2, len(shape))), keepdims=True)
    x = np.zeros(wanted.shape, np.float32)
    (found,) = run_c(compiled(model(nodes, {"x": (np.float32, wanted.shape)}, ["y"], {"c": data})), {"x": x}, tmp_path)
    np.testing.assert_array_equal(found, wanted)
