"""A one-channel dense layer, whose bias has one element, is a kernel like any other."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import compiled, model, reference, run_c
from onnx import helper

R = np.random.default_rng(3)


def layer(bias: Any, *, integers: bool) -> Any:
    """Return a Gemm of one channel, of floats or of integers in QDQ form."""
    weights = R.integers(-90, 91, (1, 16)).astype(np.int8)
    if not integers:
        constants = {"w": weights.astype(np.float32), "b": np.asarray(bias, np.float32)}
        nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)]
        return model(nodes, {"x": (np.float32, (1, 16))}, ["y"], constants)
    constants: dict[str, Any] = {
        "w": weights,
        "ws": np.float32(0.02),
        "wz": np.int8(0),
        "xs": np.float32(0.1),
        "xz": np.int8(-3),
    }
    constants |= {"b": np.asarray(bias, np.int32), "bs": np.float32(0.02) * np.float32(0.1), "bz": np.int32(0)}
    constants |= {"ys": np.float32(0.7), "yz": np.int8(4)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bf"]),
        helper.make_node("Gemm", ["xf", "wf", "bf"], ["yf"], transB=1),
        helper.make_node("QuantizeLinear", ["yf", "ys", "yz"], ["y"]),
    ]
    return model(nodes, {"x": (np.int8, (1, 16))}, ["y"], constants)


@pytest.mark.parametrize("bias", [[77], [[77]]], ids=["vector", "row"])
@pytest.mark.parametrize("integers", [True, False], ids=["int8", "float"])
def test_one_channel_is_a_dense_layer(integers: bool, bias: Any, tmp_path: Path) -> None:
    proto = layer(bias, integers=integers)
    x = R.integers(-128, 128, (1, 16))
    feeds: dict[str, Any] = {"x": x.astype(np.int8 if integers else np.float32)}
    plan = compiled(proto)
    assert [step.node.op for step in plan.steps] == ["dense"]
    np.testing.assert_allclose(run_c(plan, feeds, tmp_path)[0], reference(proto, feeds)[0], rtol=1e-6)


def test_a_bias_that_has_one_element_a_row_is_none_of_the_channels(tmp_path: Path) -> None:
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"])]
    constants = {"w": R.standard_normal((3, 2)).astype(np.float32), "b": np.array([[1], [2]], np.float32)}
    proto = model(nodes, {"x": (np.float32, (2, 3))}, ["y"], constants)
    feeds: dict[str, Any] = {"x": R.standard_normal((2, 3)).astype(np.float32)}
    np.testing.assert_allclose(run_c(compiled(proto), feeds, tmp_path)[0], reference(proto, feeds)[0], rtol=1e-5)
