"""Float activations with int8 weights: one byte per weight in flash, computed in float."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import compiled, lowered, model, reference, run_c
from onnx import helper

from mtool.compiler import codegen
from mtool.compiler.kernels.target import Target

F = np.float32
TARGETS = [
    Target("host", frozenset({"fpu"})),
    Target("cortex-m4", frozenset({"fpu", "dsp"})),
    Target("cortex-m55", frozenset({"fpu", "dsp", "mve"})),
    Target("cortex-m3", frozenset()),
]
SHAPES: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {  # of the weights, attributes
    "conv": ((8, 6, 3, 3), {"pads": [1, 1, 1, 1]}),
    "groups": ((6, 3, 3, 3), {"group": 2}),
    "depthwise": ((6, 1, 3, 3), {"group": 6, "strides": [2, 2]}),
    "dense": ((16, 54), {}),
}


def network(per_channel: bool, zero: int) -> onnx.ModelProto:
    rng = np.random.default_rng(8)
    constants: dict[str, Any] = {"flat": np.array([-1, 54], np.int64)}
    nodes = [helper.make_node("Reshape", ["x", "flat"], ["rows"])]
    for name, (shape, attrs) in SHAPES.items():
        count = (shape[0],) if per_channel else ()
        constants |= {
            f"{name}.w": rng.integers(-127, 128, shape).astype(np.int8),
            f"{name}.s": rng.uniform(0.001, 0.02, count).astype(F),
            f"{name}.z": np.full(count, zero, np.int8),
            f"{name}.b": rng.standard_normal(shape[0]).astype(F),
        }
        at = {"axis": 0} if per_channel else {}
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}.{k}" for k in "wsz"], [f"{name}.f"], **at))
        kind, x = ("Gemm", "rows") if name == "dense" else ("Conv", "x")
        attrs = {"transB": 1} if name == "dense" else attrs
        nodes.append(helper.make_node(kind, [x, f"{name}.f", f"{name}.b"], [f"{name}.c"], **attrs))
        nodes.append(helper.make_node("Relu", [f"{name}.c"], [f"{name}.y"]))
    return model(nodes, {"x": (F, (1, 6, 9, 5))}, [f"{name}.y" for name in SHAPES], constants)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
@pytest.mark.parametrize(("per_channel", "zero"), [(False, 0), (True, 0), (False, 3)])
@pytest.mark.product(2)
def test_the_numbers_are_those_of_dequantized_weights(
    target: Target, per_channel: bool, zero: int, tmp_path: Path
) -> None:
    proto = network(per_channel, zero)
    feeds = {"x": np.random.default_rng(2).standard_normal((1, 6, 9, 5)).astype(F)}
    for mine, theirs in zip(run_c(compiled(proto, target), feeds, tmp_path), reference(proto, feeds), strict=True):
        assert theirs.any()
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", [target for target in TARGETS if not target.has_mve], ids=lambda target: target.cpu)
def test_weights_stay_bytes(target: Target) -> None:
    proto = network(True, 0)
    graph = lowered(proto, target)
    kernels = [node for node in graph.nodes if node.op in ("conv2d", "dense")]
    assert len(kernels) == len(SHAPES) and all(graph.constants[node.inputs[1]].dtype == np.int8 for node in kernels)
    _, manifest = codegen.generate(compiled(proto, target), "test.onnx", "0" * 64)
    weights = sum(int(np.prod(shape)) for shape, _ in SHAPES.values())
    outputs = sum(shape[0] for shape, _ in SHAPES.values())
    assert manifest.constant_bytes <= weights + 14 * outputs  # tiles are padded


def test_helium_takes_floats() -> None:
    graph = lowered(network(True, 0), TARGETS[2])
    kernels = [node for node in graph.nodes if node.op in ("conv2d", "dense")]
    assert all(graph.constants[node.inputs[1]].dtype == F for node in kernels)
