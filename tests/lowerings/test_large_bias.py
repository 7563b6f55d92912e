"""An int32 bias is the integers that the model has, however large."""

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
