"""mtool.plugins.onnx_backend through onnx's Backend API, one model at a time."""

import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mtool import boards
from mtool.base.errors import UsageError
from mtool.plugins import onnx_backend

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


def reduction() -> onnx.ModelProto:
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)
    return model([node], {"x": (F, [2, 3]), "axes": (TensorProto.INT64, [1])}, {"y": (F, None)})


def test_values_that_shape_the_code_are_those_of_the_run() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    prepared = onnx_backend.prepare(reduction())
    for axis in (1, 0, 1):
        assert np.array_equal(prepared.run([x, np.array([axis])]).y, x.sum(axis=axis))
    prepared.close()


def test_a_model_that_waits_is_built_once_for_each_value() -> None:
    x = np.ones((2, 3), np.float32)
    prepared = onnx_backend.prepare(reduction())
    assert not prepared.programs
    for axis in (1, 0, 1):
        prepared.run([x, np.array([axis])])
    assert len(prepared.programs) == 2
    prepared.close()


def test_given_values_are_not_prompted_for() -> None:
    x, axes = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1])
    prepared = onnx_backend.prepare(reduction(), constants={"axes": axes})
    assert len(prepared.programs) == 1
    assert np.array_equal(prepared.run([x, axes]).y, x.sum(axis=1))
    prepared.close()


@pytest.mark.parametrize("given", [np.array([0]), np.array([1.0]), np.array([1, 1]), None])
def test_a_run_can_not_give_a_constant_another_value(given: object) -> None:
    x, axes = np.ones((2, 3), np.float32), np.array([1])
    prepared = onnx_backend.prepare(reduction(), constants={"axes": axes})
    same = isinstance(given, np.ndarray) and np.array_equal(given, axes)
    if same:
        assert np.array_equal(prepared.run([x, given]).y, x.sum(axis=1))
    else:
        with pytest.raises(UsageError, match="input 'axes' differs from its value in constants="):
            prepared.run([x, given])
    prepared.close()


@pytest.mark.parametrize("size", ["n", -1, None])
def test_symbolic_dimensions_have_the_sizes_of_the_run(size: object) -> None:
    nodes = [helper.make_node("Add", ["a", "b"], ["c"])]
    add = model(nodes, {"a": (F, [size, 2]), "b": (F, [2])}, {"c": (F, [size, 2])})
    prepared = onnx_backend.prepare(add)
    for rows in (3, 1):
        a, b = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2), np.ones(2, np.float32)
        assert np.array_equal(prepared.run([a, b]).c, a + b)
    prepared.close()


def test_a_dimension_has_one_size() -> None:
    nodes = [helper.make_node("Concat", ["a", "b"], ["c"], axis=1)]
    joined = model(nodes, {"a": (F, ["n", 2]), "b": (F, ["n", 1])}, {"c": (F, None)})
    prepared = onnx_backend.prepare(joined)
    with pytest.raises(UsageError, match="dimension n has two sizes"):
        prepared.run([np.ones((2, 2), np.float32), np.ones((3, 1), np.float32)])


def test_sizes_that_depend_on_data_have_room_for_the_most() -> None:
    places = model([helper.make_node("NonZero", ["x"], ["y"])], {"x": (F, [2, 3])}, {"y": (TensorProto.INT64, None)})
    prepared = onnx_backend.prepare(places)
    for x in (np.eye(2, 3), np.zeros((2, 3)), np.ones((2, 3))):
        assert np.array_equal(prepared.run([x.astype(np.float32)]).y, np.nonzero(x))
    prepared.close()


@pytest.mark.parametrize("inputs", [[], [np.ones((2, 3), np.float32)] * 2, [np.ones((3, 2), np.float32)]])
def test_inputs_that_are_not_the_models_are_refused(inputs: list[np.ndarray]) -> None:
    relu = model([helper.make_node("Relu", ["x"], ["y"])], {"x": (F, [2, 3])}, {"y": (F, [2, 3])})
    prepared = onnx_backend.prepare(relu)
    with pytest.raises(UsageError):
        prepared.run(inputs)
    prepared.close()


def test_devices() -> None:
    assert onnx_backend.supports_device("CPU")
    assert onnx_backend.supports_device("mps2_an386")
    assert not onnx_backend.supports_device("nucleo_l4r5zi"), "it has no emulator"
    assert not onnx_backend.supports_device("CUDA")
    with pytest.raises(UsageError, match="CUDA"):
        onnx_backend.prepare(model([], {"a": (F, [1])}, {"a": (F, [1])}), "CUDA")


@pytest.mark.product(2)
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
