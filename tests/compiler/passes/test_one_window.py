"""A convolution of one window becomes a dense layer."""

from typing import Any

import interpreter
import numpy as np
import pytest
from graphs import HOST, lowered, model
from networks import F32
from onnx import helper

from mtool.compiler.passes import one_window, pipeline


def _network(kernel: tuple[int, int], size: tuple[int, int], **attrs: Any) -> Any:
    rng = np.random.default_rng(0)
    group = attrs.get("group", 1)
    weights = rng.uniform(-1, 1, (6, 4 // group, *kernel)).astype(F32)
    constants = {"w": weights, "b": rng.uniform(-1, 1, 6).astype(F32), "two": F32(2)}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], **attrs),
        helper.make_node("Sigmoid", ["c"], ["g"]),
        helper.make_node("Mul", ["c", "g"], ["y"]),
    ]
    return model(nodes, {"x": (F32, (1, 4, *size))}, ["y"], constants)


@pytest.mark.parametrize(
    ("kernel", "size", "attrs", "op"),
    [
        ((1, 1), (1, 1), {}, "dense"),
        ((3, 2), (3, 2), {}, "dense"),
        ((3, 1), (3, 2), {}, "conv2d"),
        ((3, 3), (3, 3), {"pads": [1, 0, 1, 0], "strides": [4, 1]}, "conv2d"),
        ((3, 3), (3, 3), {"group": 2}, "conv2d"),
        ((3, 2), (7, 2), {"dilations": [3, 1]}, "dense"),
        ((3, 2), (7, 3), {"dilations": [3, 2]}, "conv2d"),
    ],
)
def test_one_window(
    kernel: tuple[int, int], size: tuple[int, int], attrs: Any, op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = _network(kernel, size, **attrs)
    monkeypatch.setattr(one_window, "cost", lambda graph, target: -len(graph.nodes))
    graph = lowered(proto, HOST)
    assert [node.op for node in graph.nodes if node.op in ("conv2d", "dense")] == [op]
    monkeypatch.setattr(pipeline, "windows_to_dense", lambda graph, target: graph)
    x = np.random.default_rng(1).uniform(-1, 1, (1, 4, *size)).astype(F32)
    made, wanted = (interpreter.run(one, [{"x": x}])[0][0] for one in (graph, lowered(proto, HOST)))
    np.testing.assert_allclose(made, wanted, rtol=1e-5)
