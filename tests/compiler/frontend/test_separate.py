"""Large initializers are separated before the proto is copied and checked; malformed ones are still refused."""

from pathlib import Path

import graphs
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mtool.base.errors import ModelError
from mtool.compiler.frontend import load
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.frontend.reading import read_separated
from mtool.compiler.frontend.separate import LARGE_BYTES
from mtool.compiler.operators.budget import Budget

SIZE = LARGE_BYTES // 4
WEIGHTS = np.random.default_rng(3).standard_normal(SIZE).astype(np.float32)


def saved(tmp_path: Path, *tensors: TensorProto) -> Path:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = graphs.model([node], {"x": (np.float32, (SIZE,))}, ["y"], {})
    model.graph.initializer.extend(tensors or [numpy_helper.from_array(WEIGHTS, "w")])
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_the_model_that_is_checked_is_small_and_the_graph_has_all_the_data(tmp_path: Path) -> None:
    path = saved(tmp_path)
    light, separated = read_separated(path, Budget())
    assert light.ByteSize() < 1000 and [*separated] == ["w"]
    np.testing.assert_array_equal(separated["w"], WEIGHTS)
    np.testing.assert_array_equal(load(path).constants["w"], WEIGHTS)


def test_external_data_is_separated_too(tmp_path: Path) -> None:
    model = onnx.load(saved(tmp_path))
    onnx.save(model, tmp_path / "e.onnx", save_as_external_data=True, location="e.data")
    light, separated = read_separated(tmp_path / "e.onnx", Budget())
    assert light.ByteSize() < 1000
    np.testing.assert_array_equal(separated["w"], WEIGHTS)


def test_the_initial_value_of_a_state_is_separated_too(tmp_path: Path) -> None:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = graphs.model([node], {"x": (np.float32, (SIZE,)), "w": (np.float32, (SIZE,))}, ["y"], {})
    model.graph.initializer.append(numpy_helper.from_array(WEIGHTS, "w"))
    onnx.save(model, tmp_path / "s.onnx")
    graph = load(tmp_path / "s.onnx", ModelOptions(states=(("y", "w"),)))
    np.testing.assert_array_equal(next(iter(graph.states)).initial, WEIGHTS)


def one(name: str = "w", kind: int = TensorProto.FLOAT, **fields: object) -> TensorProto:
    return TensorProto(name=name, data_type=kind, dims=[SIZE], **fields)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ([one(raw_data=WEIGHTS.tobytes()[:-4])], "raw_data"),
        ([one(raw_data=WEIGHTS.tobytes() + b"1234")], "can't be read"),
        ([one(raw_data=WEIGHTS.tobytes(), float_data=[1.0])], "value field"),
        ([one(kind=99, raw_data=WEIGHTS.tobytes())], ""),
        ([one(kind=TensorProto.STRING, raw_data=bytes(8 * SIZE))], "STRING"),
    ],
)
def test_what_is_malformed_is_refused(tmp_path: Path, tensors: list[TensorProto], reason: str) -> None:
    with pytest.raises(ModelError) as caught:
        load(saved(tmp_path, *tensors))
    assert reason in str(caught.value) + " ".join(caught.value.details)


def test_two_of_one_name_are_refused(tmp_path: Path) -> None:
    first, second = (numpy_helper.from_array(WEIGHTS * factor, "w") for factor in (1, 2))
    with pytest.raises(ModelError, match="is not a valid ONNX model"):
        load(saved(tmp_path, first, second))
