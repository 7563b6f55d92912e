"""A convolution's register tile follows its pixels, unless one is requested; it never needs more memory."""

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import compiled, model
from onnx import helper

from mtool.compiler.kernels import registry
from mtool.compiler.kernels.code_price import price_of_code
from mtool.compiler.kernels.conv2d.geometry import Tile
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan.choice import Choice, chosen

F = np.float32
M0 = Target("cortex-m0plus", frozenset())
M3 = Target("cortex-m3", frozenset())
DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))
M7 = Target("cortex-m7", frozenset({"fpu", "dsp"}))
MVE = Target("cortex-m55", frozenset({"fpu", "dsp", "mve"}))


def convolution(pixels: int, kernel: int, dtype: type, channels: int = 16) -> onnx.ModelProto:
    """A convolution of 16 channels over a row of pixels."""
    rng = np.random.default_rng(1)
    weights = rng.integers(-100, 101, (16, channels, kernel, kernel))
    pads = [kernel // 2] * 4
    if dtype is F:
        node = helper.make_node("Conv", ["x", "w"], ["y"], pads=pads)
        return model([node], {"x": (F, (1, channels, 1, pixels))}, ["y"], {"w": weights.astype(F)})
    constants: dict[str, Any] = {
        "s": F(0.05), "z": np.int8(3), "w": weights.astype(np.int8), "ws": F(0.002), "wz": np.int8(0), "ys": F(0.9),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
        helper.make_node("Conv", ["xf", "wf"], ["c"], pads=pads),
        helper.make_node("QuantizeLinear", ["c", "ys", "z"], ["y"]),
    ]
    return model(nodes, {"x": (np.int8, (1, channels, 1, pixels))}, ["y"], constants)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize(
    ("target", "dtype", "pixels", "header"),
    [
        (DSP, np.int8, 2, "mt_dsp_tile_2x2_int8.h"),
        (DSP, np.int8, 3, "mt_dsp_tile_3x2_int8.h"),
        (DSP, np.int8, 4, "mt_dsp_tile_2x2_int8.h"),
        (DSP, np.int8, 25, "mt_dsp_tile_3x2_int8.h"),
        (MVE, np.int8, 2, "mt_mve_tile_2x4_int8.h"),
        (MVE, np.int8, 4, "mt_mve_tile_4x2_int8.h"),
        (MVE, np.int8, 25, "mt_mve_tile_2x4_int8.h"),
        (M7, F, 2, "mt_f32_tile_2x8.h"),
        (M7, F, 4, "mt_f32_tile_4x4.h"),
        (M7, F, 9, "mt_f32_tile_2x8.h"),
        (M7, F, 25, "mt_f32_tile_4x4.h"),
    ],
)
def test_few_pixels_take_the_smaller_tile(target: Target, dtype: type, pixels: int, header: str, kernel: int) -> None:
    plan = compiled(convolution(pixels, kernel, dtype, 80 if target is MVE else 16), target)  # patches over 64 bytes
    (step,) = (step for step in plan.steps if step.op is registry.KERNELS["conv2d"])
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


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize(("pixels", "asked"), [(2, ""), (3, ""), (25, "2x2"), (64, "2x2")])
def test_a_dual_issue_core_gets_the_tile_of_fewer_cycles(pixels: int, asked: str, kernel: int) -> None:
    """2 pixels take 2x2 by instructions already, 3 pixels are one whole 3x2; what is named is not changed."""
    plain, paired = (compiled(convolution(pixels, kernel, np.int8), target) for target in (DSP, M7))
    steps = [step for plan in (plain, paired) for step in plan.steps if step.op is registry.KERNELS["conv2d"]]
    assert [getattr(step.schedule, "tile") for step in steps] == ["", asked]  # noqa: B009
    named = chosen(Choice(steps[1].schedule.name), steps[1].op, steps[1].node, paired.graph, M7)
    assert getattr(named, "tile") == ""  # noqa: B009


def dense(depth: int, outputs: int) -> onnx.ModelProto:
    rng = np.random.default_rng(2)
    constants: dict[str, Any] = {
        "s": F(0.05), "z": np.int8(3), "w": rng.integers(-100, 101, (depth, outputs)).astype(np.int8), "ws": F(0.002),
        "wz": np.int8(0), "ys": F(0.9), "yz": np.int8(1), "b": rng.integers(-99, 99, outputs).astype(np.int32),
    }  # fmt: skip
    nodes = [
        helper.make_node("QGemm", ["x", "s", "z", "w", "ws", "wz", "b", "ys", "yz"], ["y"], domain="com.microsoft")
    ]
    return model(nodes, {"x": (np.int8, (1, depth))}, ["y"], constants)


@pytest.mark.parametrize(("depth", "unrolled"), [(16, 1), (32, 2), (40, 1), (64, 4), (640, 8), (96, 2)])
def test_helium_unrolls_a_row_as_far_as_nothing_is_filled_up(depth: int, unrolled: int) -> None:
    plan = compiled(dense(depth, 24), MVE)
    (step,) = plan.steps
    assert step.schedule.name == "mve_rows"
    body = step.schedule.emit(step.node, plan.graph, MVE).body
    assert f"mt_mve_dense_exact4{'' if unrolled == 1 else f'_{unrolled}'}(" in body
    plain: Any = replace(step.schedule, unroll=1)  # type: ignore[type-var]
    assert step.schedule.scratch_bytes(step.node, plan.graph) == plain.scratch_bytes(step.node, plan.graph)
    assert (step.schedule.cost(step.node, plan.graph, MVE) < plain.cost(step.node, plan.graph, MVE)) == (unrolled > 1)


@pytest.mark.parametrize("taps", [5, 13, 23])
@pytest.mark.parametrize(("target", "expected"), [(DSP, "dsp_columns"), (M3, "int_plane"), (M0, "c99_plane")])
def test_a_single_output_of_a_tall_depthwise_window_is_computed_along_it(
    taps: int, target: Target, expected: str
) -> None:
    """To gather a row of one element takes more than its product.

    The compiler may load ahead for a single output, and an Armv6-M's bytes without a sign cost more than they save.
    """
    rng = np.random.default_rng(3)
    constants: dict[str, Any] = {
        "s": F(0.05), "z": np.int8(3), "w": rng.integers(-100, 101, (32, 1, taps, 1)).astype(np.int8),
        "ws": F(0.002), "wz": np.int8(0), "ys": F(0.9),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
        helper.make_node("Conv", ["xf", "wf"], ["c"], group=32),
        helper.make_node("QuantizeLinear", ["c", "ys", "z"], ["y"]),
    ]
    plan = compiled(model(nodes, {"x": (np.int8, (1, 32, taps, 1))}, ["y"], constants), target)
    (step,) = (step for step in plan.steps if step.op is registry.KERNELS["conv2d"])
    assert step.schedule.name == expected
    assert "MT_IN_ORDER" not in step.schedule.emit(step.node, plan.graph, target).body


def test_code_that_runs_in_each_round_may_be_longer() -> None:
    """A byte of it has to save as many fewer instructions each time."""
    plan = compiled(dense(20, 80), Target("cortex-m3", frozenset()))
    (step,) = plan.steps
    once, often = (replace(plan.graph, rounds=rounds) for rounds in (1, 28))
    assert price_of_code(step.node, often) < price_of_code(step.node, once) / 20
    (blocked,) = (schedule for schedule in step.op.schedules if schedule.name == "int_rows")
    costs = [blocked.cost(step.node, graph, plan.target) for graph in (once, often)]
    assert costs[1] < 0.9 * costs[0]
