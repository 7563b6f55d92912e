"""uint8 weights with a zero point: one byte each in flash, and onnxruntime's results with every schedule."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import compiled, lowered, model, reference, run_c
from onnx import helper

from mtool.compiler import codegen
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weighted_sum import weight_offset

F = np.float32
TARGETS = [
    Target("host", frozenset({"fpu"})),
    Target("cortex-m4", frozenset({"fpu", "dsp"})),
    Target("cortex-m3", frozenset()),
    Target("avr5", frozenset()),
]
LAYERS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {  # the shape of the weights, attributes
    "point": ((6, 12, 1, 1), {}),
    "odd": ((5, 12, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 1]}),
    "deep": ((4, 12, 5, 5), {"pads": [2, 2, 2, 2]}),  # more inputs than one sum in int16 takes
    "groups": ((8, 3, 3, 3), {"group": 4, "pads": [0, 1, 1, 0]}),
    "depthwise": ((12, 1, 3, 3), {"group": 12, "pads": [1, 1, 1, 1]}),
    "wide": ((12, 1, 5, 5), {"group": 12, "pads": [2, 2, 2, 2]}),
}


def network(zero: int, x_type: Any = np.uint8, depth: int = 12) -> onnx.ModelProto:
    """All layers side by side, behind an input that is quantized; and a dense layer of what a plane has."""
    rng = np.random.default_rng(zero)
    constants: dict[str, Any] = {
        "xs": F(0.05),
        "xz": x_type(131),
        "wz": np.uint8(zero),
        "ys": F(0.1),
        "yz": x_type(100),
    }
    nodes = [helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"])]
    shapes = {**LAYERS, "dense": ((depth * 28, 9), {})}
    for name, (shape, attrs) in shapes.items():
        fan = int(np.prod(shape[1:])) if name != "dense" else shape[0]
        scale = F(0.5 / np.sqrt(fan) / 128)
        constants |= {f"{name}.w": rng.integers(0, 256, shape).astype(np.uint8), f"{name}.s": scale}
        constants[f"{name}.w"].flat[:2] = 0, 255
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}.w", f"{name}.s", "wz"], [f"{name}.f"]))
        if name == "dense":
            nodes.append(helper.make_node("Reshape", ["xf", "flat"], ["rows"]))
            nodes.append(helper.make_node("MatMul", ["rows", "dense.f"], ["dense.c"]))
        else:
            nodes.append(helper.make_node("Conv", ["xf", f"{name}.f"], [f"{name}.c"], **attrs))
        nodes.append(helper.make_node("QuantizeLinear", [f"{name}.c", "ys", "yz"], [f"{name}.y"]))
    constants["flat"] = np.array([1, depth * 28], np.int64)
    return model(nodes, {"x": (x_type, (1, depth, 7, 4))}, [f"{name}.y" for name in shapes], constants)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
@pytest.mark.parametrize("zero", [1, 141, 255])
@pytest.mark.product(2)
def test_every_schedule_gives_onnxruntimes_numbers(target: Target, zero: int, tmp_path: Path) -> None:
    proto = network(zero)
    feeds = {"x": np.random.default_rng(5).integers(0, 256, (1, 12, 7, 4)).astype(np.uint8)}
    plan = compiled(proto, target)
    for mine, theirs in zip(run_c(plan, feeds, tmp_path), reference(proto, feeds), strict=True):
        ties = 0 if target.has_float else 1  # fixed point may be a step off at one
        assert mine.dtype == theirs.dtype and len(np.unique(theirs)) > 4
        assert np.abs(mine.astype(int) - theirs).max() <= ties


@pytest.mark.parametrize("target", TARGETS[:3], ids=lambda target: target.cpu)
def test_weights_take_a_byte_each(target: Target) -> None:
    _, manifest = codegen.generate(compiled(network(141), target), "test.onnx", "0" * 64)
    of_int8 = sum(int(np.prod(shape)) for shape, _ in LAYERS.values()) + 12 * 28 * 9
    assert manifest.constant_bytes < of_int8 + 2500  # biases, scales, filled-up rows


def test_weights_that_no_offset_takes_stay_whole(tmp_path: Path) -> None:
    proto = network(0)  # 128 would have to be added, which is not an int8
    graph = lowered(proto, TARGETS[1])
    kernels = [node for node in graph.nodes if node.op in ("conv2d", "dense")]
    assert kernels and not any(weight_offset(node, graph) for node in kernels)
    feeds = {"x": np.random.default_rng(5).integers(0, 256, (1, 12, 7, 4)).astype(np.uint8)}
    for mine, theirs in zip(run_c(compiled(proto, TARGETS[1]), feeds, tmp_path), reference(proto, feeds), strict=True):
        off = np.abs(mine.astype(int) - theirs)
        assert off.max() <= 1 and np.count_nonzero(off) <= 2  # onnxruntime's floats round a tie otherwise


def test_int8_weights_have_no_offset() -> None:
    proto = network(128)
    graph = lowered(proto)
    assert all(graph.constants[node.inputs[1]].dtype == np.int8 for node in graph.nodes if node.op == "conv2d")
