"""An int32 bias keeps the model's integers, however large."""

from pathlib import Path

import graphs
import numpy as np
import onnx
import pytest
from onnx import helper

BIAS = np.array([23_297_166, -170_725_597, 8_388_609, -5_000_001, 77], np.int32)
X_SCALE, Y_SCALE = np.float32(0.01576648), np.float32(0.00890716)
W_SCALE = np.array([1.8308302e-06, 2.2667110e-07, 5e-06, 9.7099482e-06, 0.01], np.float32)


def _convolution(*, is_qdq: bool) -> onnx.ModelProto:
    constants = {
        "xs": X_SCALE, "xz": np.int8(0), "ws": W_SCALE, "wz": np.zeros(5, np.int8), "ys": Y_SCALE, "yz": np.int8(-128),
        "w": np.ones((5, 1, 1, 1), np.int8), "b": BIAS, "bs": X_SCALE * W_SCALE, "bz": np.zeros(5, np.int32),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bf"], axis=0),
        helper.make_node("Conv", ["xf", "wf", "bf"], ["yf"]),
        helper.make_node("QuantizeLinear", ["yf", "ys", "yz"], ["y"]),
    ]
    if not is_qdq:
        nodes = [helper.make_node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"])]
    return graphs.model(nodes, {"x": (np.int8, (1, 1, 1, 256))}, ["y"], constants)


@pytest.mark.parametrize("is_qdq", [False, True])
def test_the_accumulators_start_at_its_integers(is_qdq: bool) -> None:
    graph = graphs.lowered(_convolution(is_qdq=is_qdq))
    (node,) = (node for node in graph.nodes if len(node.inputs) > 2)
    assert graph.constants[node.inputs[2]].reshape(-1).tolist() == BIAS.tolist()


def test_results_are_onnxruntimes(tmp_path: Path) -> None:
    proto = _convolution(is_qdq=False)
    feeds = {"x": np.arange(-128, 128, dtype=np.int8).reshape(1, 1, 1, 256)}
    (got,) = graphs.run_c(graphs.compiled(proto), feeds, tmp_path)
    assert np.array_equal(got, graphs.reference(proto, feeds)[0])


LIMIT = 2**31


def _near_the_limit(bias: list[int], weights: list[int], scales: list[float], x: np.dtype) -> onnx.ModelProto:
    """A product with a weight a channel, whose input's zero point is 0."""
    n = len(bias)
    constants = {
        "xs": np.float32(1), "xz": x.type(0), "ws": np.array(scales, np.float32), "wz": np.zeros(n, np.int8),
        "ys": np.float32(1), "yz": x.type(71), "w": np.array(weights, np.int8).reshape(n, 1, 1, 1),
        "b": np.array(bias, np.int64).astype(np.int32),
    }  # fmt: skip
    node = helper.make_node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"])
    return graphs.model([node], {"x": (x.type, (1, 1, 1, 256))}, ["y"], constants)


# A bias of 2^30 and more whose result lies at a half: a float bias, added to a float product, is rounded twice.
HALF = (-1_304_163_121, 1, 2.722052094839e-08)
MOST, LEAST = LIMIT - 1 - 127 * 100, -LIMIT + 128 * 100  # with which 100 times an int8 reaches each limit


@pytest.mark.parametrize(
    ("kind", "near"),
    [
        (np.int8, (MOST, 100)),
        (np.int8, (LEAST, 100)),
        (np.int8, (LIMIT - 1 - 128 * 100, -100)),
        (np.uint8, (-LIMIT, 100)),
        (np.uint8, (LIMIT - 1, -100)),
    ],
)
def test_a_channel_that_reaches_the_limit_is_exact_as_the_others_are(
    kind: type, near: tuple[int, int], tmp_path: Path
) -> None:
    proto = _near_the_limit([near[0], HALF[0]], [near[1], HALF[1]], [3e-8, HALF[2]], np.dtype(kind))
    feeds = {"x": (np.arange(256) + np.iinfo(kind).min).astype(kind).reshape(1, 1, 1, 256)}
    (got,) = graphs.run_c(graphs.compiled(proto), feeds, tmp_path)
    assert np.array_equal(got, graphs.reference(proto, feeds)[0])


@pytest.mark.parametrize("near", [(MOST + 1, 100), (LEAST - 1, 100), (LIMIT - 128 * 100, -100)])
def test_a_channel_beyond_the_limit_leaves_the_others_exact(near: tuple[int, int], tmp_path: Path) -> None:
    proto = _near_the_limit([near[0], HALF[0]], [near[1], HALF[1]], [1e-9, HALF[2]], np.dtype(np.int8))
    feeds = {"x": np.arange(-128, 128, dtype=np.int8).reshape(1, 1, 1, 256)}
    (got,) = graphs.run_c(graphs.compiled(proto), feeds, tmp_path)
    inside = graphs.reference(proto, feeds)[0]
    assert np.array_equal(got[:, 1], inside[:, 1])
    sums = np.float64(near[0]) + np.float64(near[1]) * feeds["x"].reshape(-1)
    assert np.array_equal(got[0, 0, 0], np.clip(np.rint(sums * 1e-9) + 71, -128, 127))
