"""Outputs with a data-dependent size and a stated maximum: against onnxruntime, at their true size."""

from typing import Any

import numpy as np
import onnx
import pytest
from graphs import reference
from onnx import TensorProto, helper, numpy_helper

from mtool.base.errors import ModelError, UsageError
from mtool.plugins import onnx_backend
from mtool.plugins.onnx_backend import batch

RNG = np.random.default_rng(3)
F, N = TensorProto.FLOAT, TensorProto.INT64
BOXES = np.sort(RNG.random((1, 12, 4)).astype(np.float32).reshape(1, 12, 2, 2), axis=2).reshape(1, 12, 4)
SPARSE = (RNG.random((4, 5)) > 0.6).astype(np.float32) * RNG.random((4, 5)).astype(np.float32)
MASK = np.array([True, False, True, True])


def graph(nodes: list[Any], feeds: dict[str, Any], outputs: dict[str, tuple[int, Any]], **constants: Any) -> Any:
    types = {np.dtype(np.float32): F, np.dtype(np.int64): N, np.dtype(bool): TensorProto.BOOL}
    inputs = [helper.make_tensor_value_info(name, types[d.dtype], d.shape) for name, d in feeds.items()]
    made = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in outputs.items()]
    initialisers = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    built = helper.make_graph(nodes, "g", inputs, made, initialisers)
    return helper.make_model(built, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(proto: onnx.ModelProto, feeds: dict[str, Any], maxima: dict[str, int]) -> list[Any]:
    prepared = onnx_backend.prepare(proto, maxima=maxima)
    found = prepared.run(list(feeds.values()))
    prepared.close()
    theirs = reference(proto, feeds)
    for mine, other in zip(found, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6)
    return theirs


def node(op: str, inputs: list[str], outputs: list[str], **attrs: Any) -> Any:
    return helper.make_node(op, inputs, outputs, **attrs)


def test_non_zero() -> None:
    proto = graph([node("NonZero", ["x"], ["y"])], {"x": SPARSE}, {"y": (N, [2, "n"])})
    (y,) = check(proto, {"x": SPARSE}, {"y": 20})
    assert 0 < y.shape[1] < 20
    check(proto, {"x": np.zeros_like(SPARSE)}, {"n": 20})
    check(proto, {"x": SPARSE}, {})


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_compress(axis: int | None) -> None:
    feeds = {"x": SPARSE, "condition": MASK}
    shape = {None: ["n"], 0: ["n", 5], 1: [4, "n"]}[axis]
    attrs = {} if axis is None else {"axis": axis}
    proto = graph([node("Compress", [*feeds], ["y"], **attrs)], feeds, {"y": (F, shape)})
    check(proto, feeds, {"y": 4})
    check(proto, feeds, {})


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_compress_by_a_constant(axis: int | None) -> None:
    """What is chosen is known: the output has that shape, whatever the model declares."""
    mask = np.array([True, False, True])
    attrs = {} if axis is None else {"axis": axis}
    proto = graph([node("Compress", ["x", "mask"], ["y"], **attrs)], {"x": SPARSE}, {"y": (F, None)}, mask=mask)
    (y,) = check(proto, {"x": SPARSE}, {})
    assert y.shape == np.compress(mask, SPARSE, axis).shape


@pytest.mark.parametrize("ordered", [0, 1])
@pytest.mark.parametrize("axis", [None, 0])
def test_unique(axis: int | None, ordered: int) -> None:
    x = RNG.integers(0, 3, (6, 2)).astype(np.float32)
    outputs = {"y": (F, ["n"] if axis is None else ["n", 2]), "i": (N, ["n"]), "v": (N, [None]), "c": (N, ["n"])}
    attrs = {"sorted": ordered} if axis is None else {"sorted": ordered, "axis": axis}
    proto = graph([node("Unique", ["x"], [*outputs], **attrs)], {"x": x}, outputs)
    check(proto, {"x": x}, {"y": 7})
    check(proto, {"x": x}, {})


def test_top_k_of_a_computed_k() -> None:
    feeds = {"x": SPARSE, "k": np.array([2])}
    nodes = [node("Add", ["k", "one"], ["more"]), node("TopK", ["x", "more"], ["y", "i"], axis=0)]
    outputs = {"y": (F, ["k", 5]), "i": (N, ["k", 5])}
    proto = graph(nodes, feeds, outputs, one=np.array([1]))
    assert [len(y) for y in check(proto, feeds, {"y": 4})] == [3, 3]
    check(proto, feeds, {})


def detector() -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return boxes, the ones that are selected, and their scores, as exporters write it."""
    feeds = {"boxes": BOXES, "scores": RNG.random((1, 3, 12)).astype(np.float32)}
    nodes = [
        node("NonMaxSuppression", ["boxes", "scores", "most", "iou"], ["selected"], name="/post/nms"),
        node("Gather", ["selected", "two"], ["box"], axis=1),
        node("Squeeze", ["boxes", "zeros"], ["flat"]),
        node("Gather", ["flat", "box"], ["chosen"], axis=0),
        node("Mul", ["chosen", "scale"], ["picked"]),
        node("ReduceMax", ["picked"], ["edge"], axes=[1], keepdims=0),
        node("Transpose", ["picked"], ["turned"], perm=[1, 0]),
        node("Concat", ["turned", "turned"], ["twice"], axis=0),
        node("Reshape", ["picked", "pairs"], ["corners"]),
        node("MatMul", ["picked", "mix"], ["mixed"]),
        node("Softmax", ["mixed"], ["share"], axis=1),
    ]
    outputs = {
        "selected": (N, ["n", 3]), "picked": (F, ["n", 4]), "edge": (F, ["n"]), "twice": (F, [8, "n"]),
        "corners": (F, ["n", 2, 2]), "share": (F, ["n", 3]),
    }  # fmt: skip
    constants = {
        "most": np.array([4]), "iou": np.array([0.1], np.float32), "two": np.array(2), "zeros": np.array([0]),
        "scale": np.array([1, 2, 3, 4], np.float32), "pairs": np.array([-1, 2, 2]),
        "mix": RNG.random((4, 3)).astype(np.float32),
    }  # fmt: skip
    return graph(nodes, feeds, outputs, **constants), feeds


def test_what_follows_a_selection_keeps_its_count() -> None:
    proto, feeds = detector()
    assert 3 < check(proto, feeds, {"selected": 12})[0].shape[0] < 12
    check(proto, feeds, {})


def test_what_is_more_than_the_maximum_is_left_out() -> None:
    proto, feeds = detector()
    prepared = onnx_backend.prepare(proto, maxima={"selected": 3})
    found = prepared.run(list(feeds.values()))
    prepared.close()
    np.testing.assert_allclose(found.picked, reference(proto, feeds)[1][:3], rtol=1e-6)


@pytest.mark.parametrize(
    "last",
    [
        node("ReduceSum", ["picked", "zeros"], ["y"], keepdims=1),
        node("Softmax", ["picked"], ["y"], axis=0),
        node("CumSum", ["picked", "zero"], ["y"]),
        node("Shape", ["picked"], ["y"]),
        node("MatMul", ["turned", "picked"], ["y"]),
    ],
    ids=lambda last: last.op_type,
)
def test_what_would_mix_in_what_is_not_there_is_refused(last: Any) -> None:
    proto, _ = detector()
    proto.graph.node.append(last)
    proto.graph.initializer.append(numpy_helper.from_array(np.array(0), "zero"))
    proto.graph.output.append(helper.make_tensor_value_info("y", F, [None, None]))
    with pytest.raises(ModelError) as refused:
        onnx_backend.prepare(proto, maxima={"selected": 8})
    assert last.op_type in refused.value.details[0]


def test_without_a_maximum_the_error_says_what_to_give() -> None:
    with pytest.raises(ModelError) as refused:
        batch.to_c(detector()[0], "m")
    assert "/post/nms" in refused.value.details[0] and "--max selected=N" in refused.value.details[0]


def test_a_maximum_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="--max names other"):
        onnx_backend.prepare(detector()[0], maxima={"selected": 8, "other": 3})
