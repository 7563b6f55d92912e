"""Helium's int8 schedules against portable C: each function of the runtime, and chains in place.

On the host the runtime's plain C stands for the assembly, under the sanitizers; in QEMU the assembly runs.
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from graphs import lowered, model
from one_firmware import Case, failures
from onnx import helper

from mtool.compiler.kernels import registry
from mtool.compiler.kernels.epilogues import Int8Epilogue
from mtool.compiler.kernels.scaling import FixedScaling, FloatScaling
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Plan, make_plan

F = np.float32
MVE = Target("cortex-m55", frozenset({"fpu", "dsp", "mve"}))


@dataclass(frozen=True)
class Layer:
    """A convolution of int8, perhaps in groups (0: depthwise), perhaps added to its input."""

    outputs: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    zero: int = -128
    groups: int = 1
    adds: bool = False


def network(shape: tuple[int, int, int], layers: Sequence[Layer], seed: int) -> Any:
    """A chain of them, channels first."""
    rng = np.random.default_rng(seed)
    channels, before = shape[0], "xf"
    nodes = [helper.make_node("DequantizeLinear", ["x", "s", "z3"], ["xf"])]
    constants: dict[str, Any] = {"s": F(0.05), "z3": np.int8(3)}
    for n, layer in enumerate(layers):
        groups = layer.groups or channels
        inputs = channels // groups
        weights = rng.integers(-128, 128, (layer.outputs, inputs, *layer.kernel)).astype(np.int8)
        scale = rng.uniform(0.5, 2, layer.outputs) / np.abs(weights.astype(int)).sum(axis=(1, 2, 3))
        bias = rng.integers(-3000, 3000, layer.outputs).astype(np.int32)
        weights[1] = 0  # a dead channel, as quantizers leave them
        scale[1], bias[1] = 3e-8, 2**30 - 77
        constants |= {
            f"w{n}": weights, f"ws{n}": scale.astype(F), f"wz{n}": np.zeros(layer.outputs, np.int8),
            f"b{n}": bias, f"bs{n}": (F(0.05) * scale.astype(F)).astype(F), f"bz{n}": np.zeros(layer.outputs, np.int32),
            f"z{layer.zero}": np.int8(layer.zero), "rs": F(0.083), "z-20": np.int8(-20),
        }  # fmt: skip
        nodes += [
            helper.make_node("DequantizeLinear", [f"w{n}", f"ws{n}", f"wz{n}"], [f"wf{n}"], axis=0),
            helper.make_node("DequantizeLinear", [f"b{n}", f"bs{n}", f"bz{n}"], [f"bf{n}"], axis=0),
            helper.make_node(
                "Conv", [before, f"wf{n}", f"bf{n}"], [f"c{n}"], pads=layer.pads, strides=[layer.stride] * 2,
                group=groups,
            ),
            helper.make_node("QuantizeLinear", [f"c{n}", "s", f"z{layer.zero}"], [f"y{n}"]),
            helper.make_node("DequantizeLinear", [f"y{n}", "s", f"z{layer.zero}"], [f"yf{n}"]),
        ]  # fmt: skip
        if layer.adds:
            nodes += [
                helper.make_node("Add", [f"yf{n}", before], [f"a{n}"]),
                helper.make_node("QuantizeLinear", [f"a{n}", "rs", "z-20"], [f"q{n}"]),
                helper.make_node("DequantizeLinear", [f"q{n}", "rs", "z-20"], [f"af{n}"]),
            ]
        channels, before = layer.outputs, f"{'a' if layer.adds else 'y'}f{n}"
    nodes.pop()  # what dequantizes the last
    return model(nodes, {"x": (np.int8, (1, *shape))}, [nodes[-1].output[0]], constants)


def dense(depth: int, outputs: int, zero: int, scale: float) -> Any:
    """A dense layer."""
    rng = np.random.default_rng(depth)
    constants: dict[str, Any] = {
        "s": F(0.05), "z": np.int8(3), "w": rng.integers(-127, 128, (depth, outputs)).astype(np.int8),
        "ws": F(scale), "wz": np.int8(0), "b": rng.integers(-3000, 3000, outputs).astype(np.int32),
        "bs": (F(0.05) * F(scale)).astype(F), "bz": np.int32(0), "yz": np.int8(zero),
    }  # fmt: skip
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
        helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bf"]),
        helper.make_node("MatMul", ["xf", "wf"], ["m"]),
        helper.make_node("Add", ["m", "bf"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "s", "yz"], ["y"]),
    ]
    return model(nodes, {"x": (np.int8, (2, depth))}, ["y"], constants)


def same(kernel: int) -> tuple[int, int, int, int]:
    """The pads with which the size stays."""
    return ((kernel - 1) // 2,) * 4


DEPTHWISE = Layer(8, (3, 3), 1, same(3), groups=0)
WHOLE = Layer(16, (3, 3), 1, same(3))
MODELS: dict[str, Any] = {
    # lines along rows, an odd number of them; along columns; with stride 2; without padding; too few results for a step
    "lines": network((8, 7, 13), [DEPTHWISE], 1),
    "lines_odd": network((24, 26, 5), [replace(DEPTHWISE, outputs=24, zero=7)], 2),
    "lines_stride": network((16, 12, 20), [replace(DEPTHWISE, outputs=16, stride=2, pads=(0, 0, 1, 1))], 3),
    "lines_valid": network((20, 10, 6), [replace(DEPTHWISE, outputs=20, pads=(0, 0, 0, 0), zero=5)], 5),
    "lines_few": network((5, 3, 3), [replace(DEPTHWISE, outputs=5)], 4),
    # windows of more vectors
    "lines_2": network((8, 9, 9), [Layer(8, (5, 5), 1, same(5), groups=0)], 18),
    "lines_3": network((8, 23, 24), [Layer(8, (5, 5), 2, same(5), groups=0)], 19),
    "lines_4": network((8, 9, 11), [Layer(8, (7, 7), 1, same(7), zero=9, groups=0)], 20),
    "lines_6": network((4, 12, 11), [Layer(4, (9, 9), 1, same(9), groups=0)], 21),
    # eight channels a group, two; one channel of which positions are copied together
    "lines_groups": network((16, 6, 7), [Layer(16, (3, 3), 1, same(3), groups=2)], 22),
    "lines_pairs": network((8, 6, 7), [Layer(8, (3, 3), 1, same(3), groups=4)], 23),
    "lines_one": network((1, 9, 24), [Layer(8, (3, 3), 2, same(3))], 24),
    # few results: a column, a row, a kernel as wide as the image
    "taps": network((40, 11, 1), [Layer(40, (11, 1), groups=0, zero=5)], 25),
    "taps_row": network((8, 1, 14), [Layer(8, (1, 9), 3, groups=0, zero=-3)], 26),
    "taps_wide": network((16, 4, 3), [Layer(16, (3, 3), groups=0)], 27),
    # columns that become shorter in place
    "lines_over": network((16, 30, 1), [Layer(16), Layer(16, (5, 1), groups=0), Layer(8)], 28),
    # patches of rows of 9 and of 4 bytes, padding on all sides, pixels that are not in eights
    "columns": network((3, 7, 9), [Layer(16, (3, 3), 1, same(3), zero=-5)], 6),
    "columns_high": network((1, 19, 10), [Layer(8, (10, 4), 2, (4, 1, 5, 1))], 7),
    "columns_in_rows": network((3, 16, 16), [Layer(4, (3, 3), 2, (0, 0, 1, 1))], 8),
    # 1x1 by the vectors of a pixel, with odd numbers of pixels; a stride
    "pixels_1": network((8, 3, 5), [Layer(16)], 9),
    "pixels_2": network((24, 3, 5), [Layer(12, zero=3)], 10),
    "pixels_3": network((40, 7, 1), [Layer(72)], 11),
    "pixels_4": network((64, 5, 1), [Layer(64, zero=-101)], 12),
    "pixels_stride": network((16, 5, 7), [Layer(8, (1, 1), 2)], 13),
    # whole patches, a tile of four pixels or two; two iterations of nine vectors; a sum
    "tiles": network((16, 4, 8), [replace(WHOLE, adds=True)], 14),
    "tiles_odd": network((32, 3, 5), [Layer(32, (3, 3), 1, same(3), zero=9, adds=True)], 15),
    "tiles_wide": network((80, 3, 3), [Layer(6)], 16),
    "chain": network(
        (3, 16, 16),
        [
            Layer(8, (3, 3), 2, (0, 0, 1, 1)), DEPTHWISE, Layer(16), replace(DEPTHWISE, outputs=16, stride=2),
            Layer(32), replace(DEPTHWISE, outputs=32, zero=1), Layer(16, zero=4), replace(WHOLE, adds=True),
        ],
        17,
    ),
    # sums that lie halfway between two steps have no multiplier
    "dense_near": dense(128, 21, 64, 2.0**-11),
    "dense_odd": dense(40, 8, 5, 2.0**-9),
    "dense_exact": dense(128, 16, -7, 2.0**-11 * 1.37),
    "dense_exact_short": dense(40, 8, 96, 2.0**-9 * 1.61),
}  # fmt: skip
FUNCTIONS = {
    "by_lines", "lines_near_1_4_1", "lines_near_1_4_1_some", "lines_odd_1_4_1", "lines_near_1_6_pairs",
    "lines_near_2_6_1", "lines_near_3_14_2", "lines_odd_4_8_1", "lines_near_6_10_1", "lines_near_5_24_pairs",
    "taps", "patch", "move", "pixels_1", "pixels_2", "pixels_2_odd", "pixels_3", "pixels_4_odd",
    "columns_near_9_whole", "columns_odd_9", "columns_near_1", "rescale_pair", "copy_rows", "fill",
    "dense_near_8", "dense_odd", "dense_exact4", "dense_exact4_8",
}  # fmt: skip


def _plan(proto: Any, name: str, *, portable: bool) -> Plan:
    plain = {
        key: replace(kernel, schedules=tuple(s for s in kernel.schedules if s.name.startswith("c99")))
        for key, kernel in registry.KERNELS.items()
    }
    with mock.patch.dict(registry.KERNELS, plain if portable else {}):
        return make_plan(replace(lowered(proto, MVE), name=name), MVE)


@functools.cache  # for the host and for the emulator
def _cases() -> list[Case]:
    rng = np.random.default_rng(5)
    made = []
    for name, proto in MODELS.items():
        shape = [d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim]
        extremes = rng.choice(np.array([-128, 127], np.int8), shape)
        x = np.where(rng.random(shape) < 0.3, extremes, rng.integers(-128, 128, shape)).astype(np.int8)
        plans = (_plan(proto, f"{name}{suffix}", portable=bool(suffix)) for suffix in ("", "_c99"))
        made.append(Case(*plans, {"x": x}))
    return made


def _schedules(layer: Layer, *size: int) -> list[str]:
    plan = make_plan(lowered(network((layer.outputs, *size), [layer], 1), MVE), MVE)
    return [step.schedule.name for step in plan.steps if step.op is registry.KERNELS["conv2d"]]


@pytest.mark.parametrize("taps", [3, 5, 7, 9, 11, 15, 23])
def test_few_results_are_computed_over_channels(taps: int) -> None:
    assert _schedules(Layer(32, (taps, 1), groups=0), taps, 1) == ["mve_taps"]
    assert _schedules(Layer(32, (taps, 1), groups=0), taps + 23, 1) == ["mve_lines"]


def test_lines_of_columns_take_the_place_of_their_input() -> None:
    plan = _plan(MODELS["lines_over"], "lines_over", portable=False)
    (lines,) = (step for step in plan.steps if step.schedule.name == "mve_lines")
    assert lines.schedule.in_place(lines.node, plan.graph) == (0,)


@pytest.mark.slow
def test_the_plain_c_of_every_function(tmp_path: Path) -> None:
    assert failures(_cases(), tmp_path, None) == []
    called = set(re.findall(r"mt_mve_(\w+)[(,]", "".join(path.read_text() for path in tmp_path.glob("*.c"))))
    assert called >= FUNCTIONS, FUNCTIONS - called


def test_every_function_in_the_emulator(tmp_path: Path) -> None:
    assert failures(_cases(), tmp_path, "mps3_an547") == []


@pytest.mark.parametrize(("scale", "near"), [(1e-3, True), (0.9, False)])
def test_results_beyond_16_bits_are_not_near(scale: float, near: bool) -> None:
    case = next(case for case in _cases() if case.plan.graph.name == "pixels_1")
    (step,) = (step for step in case.plan.steps if step.op is registry.KERNELS["conv2d"])
    epilogue = Int8Epilogue.of(step.node, case.plan.graph)
    assert epilogue is not None
    weights = np.full((2, 1, 1, 300), 127, np.int8)
    graph = replace(case.plan.graph, constants={**case.plan.graph.constants, step.node.inputs[1]: weights})
    scaling, bias = FloatScaling.of(np.full(2, scale, F)), np.zeros(2, np.int32)
    scaled = replace(epilogue, graph=graph, scaling=scaling, bias=bias)
    assert scaled.is_near == near
    assert not replace(scaled, how=replace(scaled.how, high=90)).is_near
    multiplier, shift = np.full(2, 2**30, np.int32), np.full(2, 9, np.int8)
    fixed = replace(scaled, scaling=FixedScaling.of(multiplier, shift, twice=False))
    assert not fixed.is_near
