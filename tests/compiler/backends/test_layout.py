"""Sequences with channels last: one transposition at each border, and only integers in between."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import model
from networks import imported
from onnx import helper

sys.path.insert(0, str(Path(__file__).parent))

import mirror

from mtool.compiler.backends.reading import operations_of, put_channels_last
from mtool.compiler.ir import Graph

R = np.random.default_rng(5)


def network(*size: int) -> Graph:
    """Return int8 convolutions, a sum, a pool and a matrix product of sequences or of images with 4 channels."""
    rank, ones = len(size), [1] * len(size)
    constants: dict[str, Any] = {"s": np.float32(0.06), "z": np.int8(3), "ws": np.float32(0.013), "wz": np.int8(0)}
    constants |= {
        "w1": R.integers(-127, 128, (8, 4, *[3] * rank)).astype(np.int8),
        "w2": R.integers(-127, 128, (8, 1, *[3] * rank)).astype(np.int8),
        "wm": R.integers(-127, 128, (size[-1] // 2, 5)).astype(np.int8),
    }
    nodes = [helper.make_node("DequantizeLinear", [name, "ws", "wz"], [f"d{name}"]) for name in ("w1", "w2", "wm")]

    def add(kind: str, inputs: list[str], to: str, **attrs: Any) -> None:
        nodes.append(helper.make_node(kind, inputs, [f"{to}.f"], to, **attrs))
        nodes.append(helper.make_node("QuantizeLinear", [f"{to}.f", "s", "z"], [f"{to}.q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{to}.q", "s", "z"], [to]))

    nodes.append(helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]))
    add("Conv", ["a", "dw1"], "b", pads=[1] * 2 * rank)
    add("Conv", ["b", "dw2"], "c", pads=[1] * 2 * rank, group=8)
    add("Add", ["b", "c"], "d")
    add("MaxPool", ["d"], "e", kernel_shape=[2 * one for one in ones], strides=[2 * one for one in ones])
    add("MatMul", ["e", "dwm"], "y")
    nodes = [node for node in nodes if node.output[0] != "y"]
    return imported(model(nodes, {"x": (np.int8, (1, 4, *size))}, ["y.q"], constants))


@pytest.mark.parametrize("size", [(12,), (6, 8)])
def test_channels_last_but_at_the_borders(size: tuple[int, ...]) -> None:
    graph = network(*size)
    last = put_channels_last(graph)
    kinds = [(one.kind, one.layout) for one in operations_of(last)]
    assert kinds == [
        ("Transpose", ""), ("Conv", "NHWC"), ("Conv", "NHWC"), ("Add", ""), ("Pool", "NHWC"), ("Transpose", ""),
        ("MatMul", ""),
    ]  # fmt: skip
    assert all(one.operand(0).dtype.label == "int8" for one in operations_of(last))
    feeds = {"x": R.integers(-128, 128, (1, 4, *size)).astype(np.int8)}
    for expected, got in zip(mirror.run(graph, feeds, {}), mirror.run(last, feeds, {}), strict=True):
        np.testing.assert_array_equal(got, expected)
