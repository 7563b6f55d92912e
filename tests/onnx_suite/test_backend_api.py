"""mtool.onnx_backend through onnx's Backend API, one model at a time."""

import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mtool import boards, onnx_backend
from mtool.errors import NeedsValues, UsageError

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
    assert onnx_backend.supports_device("mps2_an386")
    assert not onnx_backend.supports_device("nucleo_l4r5zi"), "it has no emulator"
    assert not onnx_backend.supports_device("CUDA")
    with pytest.raises(UsageError, match="CUDA"):
        onnx_backend.prepare(model([], {"a": (F, [1])}, {"a": (F, [1])}), "CUDA")


@pytest.mark.parametrize("board", ["mps2_an386", "qemu_riscv32"])
def test_a_board_in_its_emulator(board: str) -> None:
    found = boards.get(board)
    assert found.emulator is not None
    for program in (found.toolchain, found.emulator.program, "cmake", "ninja"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    nodes = [helper.make_node("MatMul", ["a", "w"], ["c"]), helper.make_node("Softmax", ["c"], ["d"])]
    matmul = model(nodes, {"a": (F, [2, 3]), "w": (F, [3, 4])}, {"d": (F, [2, 4])})
    a, w = np.random.default_rng(1).random((2, 3), np.float32), np.random.default_rng(2).random((3, 4), np.float32)
    prepared = onnx_backend.prepare(matmul, board)
    for sign in (1, -1):
        power = np.exp(sign * a @ w)
        np.testing.assert_allclose(prepared.run([sign * a, w]).d, power / power.sum(1, keepdims=True), rtol=1e-5)
    prepared.close()
