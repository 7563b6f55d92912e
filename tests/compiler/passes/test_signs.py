"""Inputs that are known to be all of one magnitude."""

from typing import Any

import numpy as np
import onnx
import pytest
from binary import SIGN, binary
from graphs import HOST
from onnx import helper

from mtool.compiler import passes
from mtool.compiler.frontend.onnx_file import import_graph
from mtool.compiler.kernels.conv2d.node import Conv2d

MOVES: dict[str, tuple[list[onnx.NodeProto], int]] = {
    "signs": ([helper.make_node("Identity", ["a"], ["m"])], 1),
    "pool": ([helper.make_node("MaxPool", ["a"], ["m"], kernel_shape=[2, 2])], 1),
    "turned": ([helper.make_node("Transpose", ["a"], ["m"], perm=[0, 1, 3, 2])], 1),
    "joined": ([helper.make_node("Concat", ["a", "a"], ["m"], axis=2)], 1),
    "chosen": ([helper.make_node("Max", ["a", "a"], ["m"])], 1),
    "joined with 2": ([helper.make_node("Concat", ["a", "twos"], ["m"], axis=2)], 0),
    "padded": (
        [helper.make_node("Pad", ["a", "pads"], ["p"]), helper.make_node("Concat", ["p", "p"], ["m"], axis=2)],
        0,
    ),
    "mean": ([helper.make_node("AveragePool", ["a"], ["m"], kernel_shape=[2, 2])], 0),
}


@pytest.mark.parametrize("name", MOVES)
def test_the_magnitude_of_inputs(name: str) -> None:
    nodes, magnitude = MOVES[name]
    constants: dict[str, Any] = {
        "w": np.ones((5, 3, 1, 1), np.int8), "ws": np.ones(5, np.float32), "wz": np.zeros(5, np.int8),
        "twos": np.full((1, 3, 2, 4), 2, np.float32),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64),
    }  # fmt: skip
    more = [
        helper.make_node("QuantizeLinear", ["m", "s", "z"], ["mq"]),
        helper.make_node("DequantizeLinear", ["mq", "s", "z"], ["mf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0),
        helper.make_node("Conv", ["mf", "wf"], ["t"]),
        *SIGN,
    ]
    graph = passes.run(import_graph(binary([*nodes, *more], (1, 3, 4, 4), constants, 1), "net"), HOST)
    found = [node.attrs.magnitude for node in graph.nodes if isinstance(node.attrs, Conv2d)]
    assert found == [magnitude], [str(node) for node in graph.nodes]
