"""Depthwise convolutions over time: SIMD32's columns against the network's meaning, with each kind of scaling."""

from pathlib import Path
from typing import Any

import interpreter
import numpy as np
import pytest
from graphs import lowered, model, run_c
from onnx import helper

from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import make_plan
from mtool.compiler.plan.choice import Choice

DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))
LAYERS = (  # kernel, stride, dilation, zero point of the result, scale
    (2, 1, 1, -128, 0.004),
    (3, 1, 3, 5, 0.003),
    (5, 2, 1, -128, 0.002),
    (10, 1, 1, 0, 0.002),
    (4, 3, 2, -20, 0.01),
    (7, 1, 1, 3, 2.0),  # most sums are far beyond the limits
)


def _network(*, clamps: bool, wide: bool) -> Any:
    """Layers side by side; `wide`: scales of one layer differ by more than one multiplier covers."""
    rng, channels = np.random.default_rng(3), 12
    nodes = [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"])]
    constants: dict[str, Any] = {"s": np.float32(0.05), "z": np.int8(3), "zw": np.zeros(channels, np.int8)}
    constants["zb"] = np.zeros(channels, np.int32)
    for n, (kernel, stride, dilation, zero, scale) in enumerate(LAYERS):
        scales = (scale * rng.uniform(0.5, 2, channels)).astype(np.float32)
        if wide:
            scales[::3] *= np.float32(1e-4)
        constants |= {
            f"w{n}": rng.integers(-127, 128, (channels, 1, kernel, 1)).astype(np.int8), f"s{n}": scales,
            f"b{n}": rng.integers(-3000, 3000, channels).astype(np.int32), f"z{n}": np.int8(zero),
            f"t{n}": np.float32(0.05) * scales,
        }  # fmt: skip
        nodes += [
            helper.make_node("DequantizeLinear", [f"w{n}", f"s{n}", "zw"], [f"wf{n}"], axis=0),
            helper.make_node("DequantizeLinear", [f"b{n}", f"t{n}", "zb"], [f"bf{n}"], axis=0),
            helper.make_node(
                "Conv", ["xf", f"wf{n}", f"bf{n}"], [f"c{n}"],
                group=channels, strides=[stride, 1], dilations=[dilation, 1],
            ),
            helper.make_node("Relu", [f"c{n}"], [f"r{n}"]),
            helper.make_node("QuantizeLinear", [f"{'r' if clamps else 'c'}{n}", "s", f"z{n}"], [f"y{n}"]),
        ]  # fmt: skip
    return model(nodes, {"x": (np.int8, (1, channels, 15, 1))}, [f"y{n}" for n in range(len(LAYERS))], constants)


@pytest.mark.parametrize(("clamps", "wide"), [(False, False), (True, True)])
def test_columns(clamps: bool, wide: bool, tmp_path: Path) -> None:
    graph = lowered(_network(clamps=clamps, wide=wide), DSP)
    names = [node.name for node in graph.nodes if node.op == "conv2d"]
    plan = make_plan(graph, DSP, schedules={name: Choice("dsp_columns") for name in names})
    x = np.random.default_rng(1).integers(-128, 128, (1, 12, 15, 1)).astype(np.int8)
    (wanted,) = interpreter.run(graph, [{"x": x}])
    for one, other in zip(wanted, run_c(plan, {"x": x}, tmp_path), strict=True):
        np.testing.assert_array_equal(one, other)


def test_few_results_are_computed_by_columns() -> None:
    plan = make_plan(lowered(_network(clamps=False, wide=False), DSP), DSP)
    chosen = {step.node.name: step.schedule.name for step in plan.steps if step.node.op == "conv2d"}
    assert "dsp_columns" in chosen.values()
