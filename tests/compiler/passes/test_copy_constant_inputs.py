"""Quantized graphs with a constant activation, or a reduction as a table's index; against onnxruntime."""

from pathlib import Path

import numpy as np
from graphs import compiled, model, reference, run_c
from onnx import helper

F = np.float32


def test_a_kernel_reads_a_constant_activation(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    constants = {
        "pads": np.array([0, 0, 0, 1, 0, 0], np.int64), "value": np.uint8(9),
        "s": F(0.1), "z": np.uint8(3), "w": rng.integers(-50, 50, (4, 8)).astype(np.int8),
        "ws": F(0.02), "wz": np.int8(0),
    }  # fmt: skip
    nodes = [
        helper.make_node("Pad", ["x", "pads", "value"], ["q"]),  # of no elements, to some
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Concat", ["d"], ["c"], axis=1),
        helper.make_node("QuantizeLinear", ["c", "s", "z"], ["q1"]),
        helper.make_node("DequantizeLinear", ["q1", "s", "z"], ["d1"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["dw"]),
        helper.make_node("MatMul", ["d1", "dw"], ["y"]),
    ]
    proto = model(nodes, {"x": (np.uint8, (0, 3, 4))}, ["y"], constants)
    feeds = {"x": np.zeros((0, 3, 4), np.uint8)}
    plan = compiled(proto)
    assert {"dense", "conv2d"} & {step.node.op for step in plan.steps}
    for got, wanted in zip(run_c(plan, feeds, tmp_path), reference(proto, feeds), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_a_table_is_read_at_a_reduction(tmp_path: Path) -> None:
    constants = {
        "s": F(1 / 128), "z": np.int8(-128), "s1": F(0.006), "z1": np.int8(-128), "s2": F(0.0035), "z2": np.int8(0),
        "scale": F([-0.47]), "b": F([-0.38]), "mean": F([1.4]), "variance": F([1.08]),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"]),
        helper.make_node("ReduceL2", ["d"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s1", "z1"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s1", "z1"], ["d1"]),
        helper.make_node("BatchNormalization", ["d1", "scale", "b", "mean", "variance"], ["n"]),
        helper.make_node("QuantizeLinear", ["n", "s2", "z2"], ["y"]),
    ]
    proto = model(nodes, {"x": (np.int8, (1, 1))}, ["y"], constants)
    plan = compiled(proto)
    for number in (-128, -7, 127):
        feeds = {"x": np.full((1, 1), number, np.int8)}
        np.testing.assert_array_equal(run_c(plan, feeds, tmp_path)[0], reference(proto, feeds)[0])
