"""The register tile of a convolution follows its pixels, unless it is asked for; it never needs more memory."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import compiled, model
from onnx import helper

from mtool import ops
from mtool.kernels.target import Target
from mtool.ops.conv2d.tile import Tile

F = np.float32
DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))
M7 = Target("cortex-m7", frozenset({"fpu", "dsp"}))
MVE = Target("cortex-m55", frozenset({"fpu", "dsp", "mve"}))


def convolution(pixels: int, kernel: int, dtype: type) -> onnx.ModelProto:
    """A convolution of 16 channels over a row of pixels."""
    rng = np.random.default_rng(1)
    weights = rng.integers(-100, 101, (16, 16, kernel, kernel))
    pads = [kernel // 2] * 4
    if dtype is F:
        node = helper.make_node("Conv", ["x", "w"], ["y"], pads=pads)
        return model([node], {"x": (F, (1, 16, 1, pixels))}, ["y"], {"w": weights.astype(F)})
    constants: dict[str, Any] = {
        "s": F(0.05), "z": np.int8(3), "w": weights.astype(np.int8), "ws": F(0.002), "wz": np.int8(0), "ys": F(0.9),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
        helper.make_node("Conv", ["xf", "wf"], ["c"], pads=pads),
        helper.make_node("QuantizeLinear", ["c", "ys", "z"], ["y"]),
    ]
    return model(nodes, {"x": (np.int8, (1, 16, 1, pixels))}, ["y"], constants)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize(
    ("target", "dtype", "pixels", "header"),
    [
        (DSP, np.int8, 1, "mt_dsp_tile_2x2_int8.h"),
        (DSP, np.int8, 3, "mt_dsp_tile_3x2_int8.h"),
        (DSP, np.int8, 4, "mt_dsp_tile_2x2_int8.h"),
        (DSP, np.int8, 25, "mt_dsp_tile_3x2_int8.h"),
        (MVE, np.int8, 2, "mt_mve_tile_2x4_int8.h"),
        (MVE, np.int8, 4, "mt_mve_tile_4x2_int8.h"),
        (MVE, np.int8, 25, "mt_mve_tile_4x2_int8.h"),
        (M7, F, 2, "mt_f32_tile_2x8.h"),
        (M7, F, 4, "mt_f32_tile_4x4.h"),
        (M7, F, 9, "mt_f32_tile_2x8.h"),
        (M7, F, 25, "mt_f32_tile_4x4.h"),
    ],
)
def test_few_pixels_take_the_smaller_tile(target: Target, dtype: type, pixels: int, header: str, kernel: int) -> None:
    plan = compiled(convolution(pixels, kernel, dtype), target)
    (step,) = (step for step in plan.steps if step.op is ops.KERNELS["conv2d"])
    assert step.schedule.emit(step.node, plan.graph, target).headers == (header,)
    costs, scratch = {}, {}
    for tile in step.schedule.knobs()["tile"].values:
        turned: Any = replace(step.schedule, tile=tile)  # type: ignore[type-var]
        costs[tile] = turned.cost(step.node, plan.graph, target)
        scratch[tile] = turned.scratch_bytes(step.node, plan.graph)
    usual, other = step.schedule.knobs()["tile"].values[1:]
    assert costs[""] == costs[other if other in header else usual]
    assert scratch[other] <= scratch[usual]


def test_a_tile_is_named_by_its_sizes() -> None:
    assert Tile.named("4x2") == Tile(4, 2) and Tile(2, 8).name == "2x8"
    assert Tile.chosen("3x2", "2x2", lambda tile: tile.pixels) == Tile(2, 2)
    assert Tile.chosen("3x2", "2x2", lambda tile: 10 * (tile.pixels + 5)) == Tile(3, 2)
