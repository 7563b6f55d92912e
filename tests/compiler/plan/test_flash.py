"""Flash is spent on larger constants, and RAM on transforming them, if they save enough time and fit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from graphs import lowered, model
from onnx import helper

from mtool.base.option_values import Optimize
from mtool.boards import Board, get
from mtool.compiler.compilation import compile_for, compile_model, plan_model
from mtool.compiler.kernels.conv2d.winograd import DspWinograd
from mtool.compiler.kernels.schedule import Schedule
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Choice, make_plan
from mtool.compiler.plan.for_time import CODE_BYTES, OWN_CODE_BYTES, Offer, Offers, offers_of
from mtool.compiler.request import Request

F = np.float32
DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))


def network() -> onnx.ModelProto:
    """Two 3x3 convolutions of as many products, but 16 and 64 channels."""
    rng = np.random.default_rng(1)
    constants: dict[str, Any] = {"s": F(0.05), "z": np.int8(3), "wz": np.int8(0), "ws": F(0.002), "ys": F(0.9)}
    nodes = []
    for name, channels in (("a", 16), ("b", 64)):
        constants[f"{name}w"] = rng.integers(-100, 101, (channels, channels, 3, 3)).astype(np.int8)
        nodes += [
            helper.make_node("DequantizeLinear", [name, "s", "z"], [f"{name}f"]),
            helper.make_node("DequantizeLinear", [f"{name}w", "ws", "wz"], [f"{name}d"]),
            helper.make_node("Conv", [f"{name}f", f"{name}d"], [f"{name}c"], pads=[1, 1, 1, 1], name=f"conv_{name}"),
            helper.make_node("QuantizeLinear", [f"{name}c", "ys", "z"], [f"{name}y"]),
        ]
    inputs = {"a": (np.int8, (1, 16, 32, 32)), "b": (np.int8, (1, 64, 8, 8))}
    return model(nodes, inputs, ["ay", "by"], constants)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flash") / "two.onnx"
    onnx.save(network(), path)
    return path


def board(flash_bytes: int, ram_bytes: int = 4 << 20) -> Board:
    """A Cortex-M4 with memories of these sizes."""
    memories = dict((own := get("mps2_an386")).memories)
    for role, size in (("weights", flash_bytes), ("arena", ram_bytes)):
        name = own.region_for(role)
        assert name is not None
        memories[name] = memories[name].model_copy(update={"size": size})
    return own.model_copy(update={"memories": memories})


def winograd(path: Path, on: Board, optimize: Optimize) -> dict[int, int]:
    """The input channels of the convolutions that take memory for time, with their working memory; 0: flash."""
    plan, _ = plan_model(path, on, Request(optimize=optimize))
    steps = [step for step in plan.steps if step.schedule.name == "dsp_winograd"]
    return {plan.graph.types[step.node.inputs[0]].shape[-1]: step.schedule.work for step in steps}  # type: ignore[attr-defined]


def test_those_that_save_most_by_the_byte_come_first() -> None:
    graph = lowered(network(), DSP)
    offers = offers_of(graph, DSP)
    first, second = sorted(offers.in_flash, key=lambda one: one.bytes)
    assert first.saved > 0.2 and second.saved > 0.2 and second.bytes > 8 * first.bytes
    assert first.saved + second.saved < 0.6
    weights = dict[str, dict[str, int]]()  # of each operator by its schedule
    for grown in (None, dict[str, Schedule]()):
        for step in make_plan(graph, DSP, partial="never", grown=grown).steps:
            constants = step.schedule.emit(step.node, graph, DSP).constants.values()
            weights.setdefault(step.node.name, {})[step.schedule.name] = sum(data.nbytes for data in constants)
    for one in offers.in_flash:
        own = weights[one.operator]
        assert abs(own["dsp_winograd"] - own["dsp_patch"] + OWN_CODE_BYTES - one.bytes) < 0.05 * one.bytes


@pytest.mark.parametrize(
    ("flash_bytes", "ram_bytes", "optimize", "expected"),
    [
        (4 << 20, 4 << 20, "speed", {16: 0, 64: 0}),
        (4 << 20, 4 << 20, "balanced", {16: 52, 64: 40}),  # at most as much as the weights
        (4 << 20, 4 << 20, "size", {}),
        (256 << 10, 4 << 20, "speed", {16: 0, 64: 0}),
        (4 << 20, 128 << 10, "balanced", {16: 52}),  # the other takes more than its share of the RAM
        (CODE_BYTES + (64 << 10), 4 << 20, "speed", {16: 0, 64: 40}),
        (CODE_BYTES, 4 << 20, "speed", {16: 52, 64: 40}),
    ],
)
def test_operators_take_memory_if_the_board_has_it(
    saved: Path, flash_bytes: int, ram_bytes: int, optimize: Optimize, expected: dict[int, int]
) -> None:
    assert winograd(saved, board(flash_bytes, ram_bytes), optimize) == expected


@pytest.mark.parametrize("ram_bytes", [64 << 10, 4 << 20])
def test_the_default_stores_hardly_more_than_the_weights(saved: Path, ram_bytes: int) -> None:
    weights = 9 * (16 * 16 + 64 * 64)
    constant_bytes = compile_model(saved, board(4 << 20, ram_bytes)).manifest.constant_bytes
    assert weights <= constant_bytes <= 1.15 * weights


def test_boards_of_one_core_have_plans_of_their_own(saved: Path) -> None:
    boards = [board(4 << 20, size) for size in (4 << 20, 128 << 10, 4 << 20)]
    sizes = [emitted.plan for _, emitted in compile_for(saved, boards, Request())]
    assert sizes[0] is sizes[2] and sizes[0] is not sizes[1]
    found = [sum(step.schedule.name == "dsp_winograd" for step in plan.steps) for plan in sizes]
    assert found == [2, 1, 2]


def test_a_board_with_little_memory_has_none(saved: Path) -> None:
    """They need more working memory; here the model fits without, be it row by row."""
    large = board(4 << 20)
    name = large.region_for("arena")
    assert name is not None
    least = plan_model(saved, large, Request(optimize="size", partial="always"))[0].arena_bytes
    memories = {**large.memories, name: large.memories[name].model_copy(update={"size": least})}
    small = large.model_copy(update={"memories": memories})
    plan, _ = plan_model(saved, small, Request())
    ((_, emitted),) = compile_for(saved, [small], Request())
    assert plan.arena_bytes == emitted.plan.arena_bytes == least
    assert all(step.schedule.name != "dsp_winograd" for step in plan.steps)


def test_a_requested_schedule_is_used(saved: Path) -> None:
    plan, names = plan_model(saved, board(4 << 20), Request(optimize="size"))
    name = next(step.node.name for step in plan.steps if step.schedule.name == "dsp_patch")
    assert name in names
    request = replace(Request(optimize="size"), schedules={name: Choice("dsp_winograd")})
    plan, _ = plan_model(saved, board(4 << 20), request)
    assert [step.node.title for step in plan.steps if step.schedule.name == "dsp_winograd"] == [name]


def test_unknown_memories_are_of_usual_sizes() -> None:
    first, second = DspWinograd(), DspWinograd(unroll=8)
    offers = Offers((Offer("a", 0.5, 10, first), Offer("b", 0.001, 10**9, second)), 1000)
    assert offers.accepted("speed", None, None) == (("a", first), ("b", second))
    assert offers.accepted("balanced", None, None) == (("a", first),)
    assert offers.accepted("size", None, None) == ()


def test_the_default_prefers_working_memory() -> None:
    """Flash is added within a tenth of the weights, where it saves instructions that working memory costs."""
    flash, ram, less = DspWinograd(), DspWinograd(work=50), DspWinograd(work=12)
    stored = tuple(Offer(name, 0.3, 3000, flash) for name in "ab")
    worked = tuple(Offer(name, *numbers) for name in "ab" for numbers in ((0.28, 40_000, ram), (0.2, 10_000, less)))
    offers = Offers(stored, 40_000, worked)
    assert dict(offers.accepted("balanced", 1 << 20, 1 << 20)) == {"a": flash, "b": ram}
    assert dict(offers.accepted("balanced", 1 << 20, 100_000)) == {"a": flash, "b": less}
    assert dict(offers.accepted("balanced", 1 << 20, 16_000)) == {"a": flash}
    assert dict(offers.accepted("speed", 1 << 20, 16_000)) == {"a": flash, "b": flash}


def test_small_models_may_take_more_working_memory_than_they_have_weights() -> None:
    worked = DspWinograd(work=18)
    offers = Offers((), 2500, (Offer("a", 0.4, 9000, worked),))
    assert offers.accepted("balanced", None, 1 << 16) == (("a", worked),)
    assert offers.accepted("balanced", None, 20_000) == ()
    assert replace(offers, at_run_time=(Offer("a", 0.4, 11_000, worked),)).accepted("balanced", None, 1 << 16) == ()


@pytest.mark.parametrize("optimize", ["balanced", "speed"])
def test_a_buffer_for_unpacked_weights_is_defined_where_it_is_passed(saved: Path, optimize: Optimize) -> None:
    text = compile_model(saved, board(96 * 1024), Request(optimize=optimize)).files.text("two.c")
    assert "winograd" in text and (", row)" in text) == ("*const row = " in text)
