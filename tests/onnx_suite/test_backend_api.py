"""mtool.onnx_backend through onnx's Backend API, one model at a time."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mtool import onnx_backend
from mtool.errors import NeedsValues

F = TensorProto.FLOAT


def model(nodes: list[onnx.NodeProto], inputs: dict[str, tuple], outputs: dict[str, tuple]) -> onnx.ModelProto:
    infos = [[helper.make_tensor_value_info(n, *kind) for n, kind in side.items()] for side in (inputs, outputs)]
    graph = helper.make_graph(nodes, "g", *infos)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_run_model() -> None:
    add = model([helper.make_node("Add", ["a", "b"], ["c"])], {"a": (F, [2, 3]), "b": (F, [3])}, {"c": (F, [2, 3])})
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
    (c,) = onnx_backend.run_model(add, [a, b])
    assert np.array_equal(c, a + b)


def test_prepare_runs_many_times() -> None:
    relu = model([helper.make_node("Relu", ["a"], ["b"])], {"a": (F, [4])}, {"b": (F, [4])})
    prepared = onnx_backend.prepare(relu)
    for sign in (1, -1):
        x = np.full(4, sign, np.float32)
        assert np.array_equal(prepared.run([x]).b, np.maximum(x, 0))
    prepared.close()


def test_values_that_shape_the_code_are_asked_for_by_name() -> None:
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    total = model([node], {"x": (F, [2, 3]), "axes": (TensorProto.INT64, [1])}, {"y": (F, [2])})
    with pytest.raises(NeedsValues) as asked:
        onnx_backend.prepare(total)
    assert asked.value.inputs == ("axes",)
    x, axes = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1])
    prepared = onnx_backend.prepare(total, constants={"axes": axes})
    assert np.array_equal(prepared.run([x, axes]).y, x.sum(axis=1))
    prepared.close()


def test_devices() -> None:
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA")
