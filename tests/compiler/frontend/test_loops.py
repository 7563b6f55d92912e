"""Loops with a data-dependent number of rounds, up to a stated maximum, against onnxruntime."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mtool.base.errors import ModelError, UsageError
from mtool.plugins import onnx_backend
from mtool.plugins.onnx_backend import Prepared, batch

ort = pytest.importorskip("onnxruntime")

MOST = 6


def value(name: str, kind: int, shape: list[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def collatz() -> onnx.ModelProto:
    """x becomes x * 1.5 + round until its sum is over 40, for `trips` rounds at the most; each x is kept as well."""
    body = helper.make_graph(
        [
            helper.make_node("Cast", ["round"], ["number"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["x", "factor"], ["grown"]),
            helper.make_node("Add", ["grown", "number"], ["next"]),
            helper.make_node("ReduceSum", ["next"], ["sum"], keepdims=0),
            helper.make_node("Less", ["sum", "limit"], ["goes_on"]),
            helper.make_node("Identity", ["next"], ["row"]),
        ],
        "body",
        [
            value("round", TensorProto.INT64, []),
            value("going", TensorProto.BOOL, []),
            value("x", TensorProto.FLOAT, [2, 3]),
        ],
        [
            value("goes_on", TensorProto.BOOL, []),
            value("next", TensorProto.FLOAT, [2, 3]),
            value("row", TensorProto.FLOAT, [2, 3]),
        ],
        [helper.make_tensor("factor", TensorProto.FLOAT, [], [1.5]), helper.make_tensor("limit", 1, [], [40.0])],
    )
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips", "start", "x0"], ["last", "rows"], body=body)],
        "loop",
        [
            value("trips", TensorProto.INT64, [1]),
            value("start", TensorProto.BOOL, []),
            value("x0", TensorProto.FLOAT, [2, 3]),
        ],
        [value("last", TensorProto.FLOAT, [2, 3]), helper.make_tensor_value_info("rows", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return onnx_backend.prepare(collatz(), maxima={"last": MOST})


@pytest.mark.parametrize("trips", [0, 1, 3, MOST])
@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_it_stops_when_onnxruntime_does(prepared: Prepared, trips: int, start: bool, scale: float) -> None:
    x0 = (np.arange(6, dtype=np.float32).reshape(2, 3) * np.float32(scale)).astype(np.float32)
    feeds: list[Any] = [np.array([trips], np.int64), np.array(start), x0]
    session = ort.InferenceSession(collatz().SerializeToString(), providers=["CPUExecutionProvider"])
    last, rows = session.run(None, dict(zip(("trips", "start", "x0"), feeds, strict=True)))
    found = prepared.run(feeds)
    np.testing.assert_allclose(found[0], last, rtol=1e-6)
    assert found[1].shape == rows.shape == (len(rows), 2, 3)
    np.testing.assert_allclose(found[1], rows, rtol=1e-6)


def test_without_a_maximum_it_is_refused_by_name() -> None:
    with pytest.raises(ModelError) as caught:
        batch.to_c(collatz(), "m")
    assert any("--max last=N" in line for line in caught.value.details)


def test_a_maximum_of_something_else() -> None:
    with pytest.raises(UsageError, match="--max names other"):
        onnx_backend.prepare(collatz(), maxima={"last": 3, "other": 2})


@pytest.mark.parametrize("start", [True, False])
def test_a_known_limit_is_enough_if_no_size_depends_on_it(start: bool) -> None:
    proto = collatz()
    del proto.graph.output[1]
    del proto.graph.input[0]
    proto.graph.initializer.append(helper.make_tensor("trips", TensorProto.INT64, [1], [4]))
    feeds: list[Any] = [np.array(start), np.ones((2, 3), np.float32)]
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (last,) = session.run(None, dict(zip(("start", "x0"), feeds, strict=True)))
    proto.graph.node[0].output[1] = ""  # which onnxruntime does not take
    (found,) = onnx_backend.prepare(proto).run(feeds)
    np.testing.assert_allclose(found, last, rtol=1e-6)
