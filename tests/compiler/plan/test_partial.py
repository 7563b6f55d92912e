"""Partial execution: a few rows at a time give the results of the whole.

Integers are held bit for bit, floats within rounding, as other schedules may be the cheapest for a few rows.
"""

import functools
import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import models
import numpy as np
import onnx
import pytest
from convolutional import Network
from graphs import HOST, NO_FPU, Array, compiled, model, reference, run_c
from one_firmware import Case, failures
from onnx import helper

from mtool import boards
from mtool.base.errors import UsageError
from mtool.compiler import frontend, passes
from mtool.compiler.codegen import Conventions
from mtool.compiler.compilation import compile_for, compile_model
from mtool.compiler.ir import Graph
from mtool.compiler.kernels.target import Target
from mtool.compiler.operators.verification import verify
from mtool.compiler.plan import Choice, Plan, make_plan, partial
from mtool.compiler.plan import partial as partial_execution
from mtool.compiler.plan.memory import aliases, live_bound, storages
from mtool.compiler.plan.partial import MOST_COST, with_line_buffers
from mtool.compiler.plan.step import PlanOptions
from mtool.compiler.request import Request

pytestmark = pytest.mark.long

F = np.float32
DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))
MVE = Target("cortex-m55", frozenset({"fpu", "dsp", "mve"}))
NETWORKS = 6
DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "digits_int8.onnx"


@functools.cache
def network(name: str, target: Target) -> Graph:
    """Return the graph of a shared model after all passes."""
    return passes.run(frontend.load(models.path(name)), target)


def planned(proto: onnx.ModelProto, target: Target, partial: Any, name: str = "test", io: Any = "arena") -> Plan:
    return held(passes.run(frontend.from_proto(proto, name), target), target, partial, io)


def held(graph: Graph, target: Target, partial: Any, io: Any = "arena") -> Plan:
    """Plan a graph, and hold what it computes against the specifications of kernels."""
    plan = make_plan(graph, target, io, partial)
    verify(plan.graph)
    return plan


@functools.cache  # for the host and for the emulator
def cases(target: Target, *, integer: bool) -> list[Case]:
    found: list[Case] = []
    for seed in range(100 * NETWORKS):
        network = Network(seed, integer=integer)
        graph = passes.run(frontend.from_proto(network.build(), f"part{seed}"), target)
        plan = held(graph, target, "always")
        if not plan.graph.line_buffers:
            continue
        whole = held(replace(graph, name=f"whole{seed}"), target, "never")
        assert plan.arena_bytes < whole.arena_bytes
        found.append(Case(plan, whole, network.feeds(), 0 if integer else 1e-5))
        if len(found) == NETWORKS:
            return found
    raise AssertionError(f"only {len(found)} networks were computed in parts")


@pytest.mark.slow
@pytest.mark.parametrize("target", [HOST, DSP, MVE, NO_FPU], ids=lambda target: target.cpu)
@pytest.mark.parametrize("integer", [True, False], ids=["int8", "float32"])
@pytest.mark.product
def test_parts_give_the_results_of_the_whole(target: Target, integer: bool, tmp_path: Path) -> None:
    """On the host, where plain C stands for SIMD, under the sanitizers."""
    assert failures(cases(target, integer=integer), tmp_path, None) == []


@pytest.mark.product(2)
@pytest.mark.parametrize(("target", "board"), [(DSP, "mps2_an386"), (MVE, "mps3_an547")], ids=["dsp", "mve"])
def test_parts_give_the_results_of_the_whole_in_simd(target: Target, board: str, tmp_path: Path) -> None:
    assert failures(cases(target, integer=True), tmp_path, board) == []


@pytest.mark.product(2)
@pytest.mark.parametrize("seed", range(4))
def test_parts_are_what_onnxruntime_computes(seed: int, tmp_path: Path) -> None:
    case = cases(HOST, integer=False)[seed]
    number = int(case.plan.graph.name.removeprefix("part"))
    network = Network(number, integer=False)
    proto = network.build()
    found = run_c(replace(case.plan, graph=replace(case.plan.graph, name="test")), case.feeds, tmp_path)
    np.testing.assert_allclose(found[0], reference(proto, case.feeds)[0], rtol=1e-4, atol=1e-5)


def test_gates_between_convolutions_do_not_part_a_region(tmp_path: Path) -> None:
    """The sigmoid of each gate is a loop of its own, of eight elements: it comes before the region."""
    rng = np.random.default_rng(0)
    nodes, constants, value = [], {"last": rng.normal(size=(2, 8, 8, 8)).astype(F) / 16}, "x"
    for number, channels in enumerate((3, 8, 8)):
        constants[f"w{number}"] = rng.normal(size=(8, channels, 3, 3)).astype(F) / 8
        nodes += [
            helper.make_node("Conv", [value, f"w{number}"], [f"c{number}"], pads=[1, 1, 1, 1]),
            helper.make_node("Sigmoid", ["gate"], [f"s{number}"]),
            helper.make_node("Mul", [f"c{number}", f"s{number}"], [f"m{number}"]),
        ]
        value = f"m{number}"
    nodes.append(helper.make_node("Conv", [value, "last"], ["y"], strides=[8, 8]))
    proto = model(nodes, {"x": (F, (1, 3, 32, 32)), "gate": (F, (1, 8, 1, 1))}, ["y"], constants)
    plan = planned(proto, HOST, "auto")
    assert plan.arena_bytes < planned(proto, HOST, "never").arena_bytes / 2
    assert sum(step.node.op == "loop" and "sigmoid" in step.op.label(step.node, plan.graph) for step in plan.steps) == 3
    feeds = {"x": rng.normal(size=(1, 3, 32, 32)).astype(F), "gate": rng.normal(size=(1, 8, 1, 1)).astype(F)}
    np.testing.assert_allclose(run_c(plan, feeds, tmp_path)[0], reference(proto, feeds)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.product(2)
@models.needed
@pytest.mark.parametrize(("name", "target", "most"), [
    ("ic/ic_int8_qdq", DSP, 19_400), ("ic/ic_int8_qdq", NO_FPU, 19_400), ("vww/vww_int8_qdq", DSP, 31_000),
    ("vww/vww_int8_qdq", NO_FPU, 33_000), ("vww/vww_float32", DSP, 125_000), ("ic/ic_float32", DSP, 76_000),
])  # fmt: skip
def test_networks_need_far_less_than_their_largest_tensors(name: str, target: Target, most: int) -> None:
    graph = network(name, target)
    plan = make_plan(graph, target)
    assert plan.arena_bytes <= most
    assert plan.cost <= 1.05 * make_plan(graph, target, partial="never").cost


@models.needed
def test_nothing_is_computed_twice() -> None:
    """The rows of all parts of an operator are those of its result, each once."""
    graph = network("ic/ic_int8_qdq", DSP)
    whole, parts = (make_plan(graph, DSP, partial=partial) for partial in ("never", "auto"))
    height = {step.node.name: whole.graph.types[step.node.outputs[0]].shape[1] for step in whole.steps}
    rows: dict[str, int] = {}
    for step in parts.steps:
        if step.node.op == "conv2d":
            rows[step.node.title] = rows.get(step.node.title, 0) + parts.graph.types[step.node.outputs[0]].shape[1]
    assert rows == {name: height[name] for name in rows}
    assert sum(step.op.macs(step.node, parts.graph) for step in parts.steps) == sum(
        step.op.macs(step.node, whole.graph) for step in whole.steps
    )


@pytest.mark.slow
@pytest.mark.product(2)
@models.needed
@pytest.mark.parametrize("io", ["arena", "external"])
def test_no_step_writes_over_what_a_later_one_reads(io: Any) -> None:
    """Every byte that a step reads was last written as the value, or the row of it, that it reads."""
    for name, target in (("ic/ic_int8_qdq", DSP), ("vww/vww_int8_qdq", NO_FPU), ("vww/vww_float32", DSP)):
        graph = network(name, target)
        plan = make_plan(graph, target, io)
        assert plan.graph.line_buffers
        lies = aliases(plan.graph)
        roots: dict[str, int] = {}
        memory = np.full(plan.arena_bytes, -1)  # of each byte, which of which value was written there last

        def contents(value: str, plan: Plan = plan, lies: Any = lies, roots: dict[str, int] = roots) -> Array:
            """The bytes of a value, as numbers of the bytes of what it lies in."""
            root, first = lies.get(value, (value, 0))
            return (roots.setdefault(root, len(roots)) << 32) + first + np.arange(plan.graph.types[value].bytes)

        def place(value: str, plan: Plan = plan) -> slice:
            return slice(plan.offsets[value], plan.offsets[value] + plan.graph.types[value].bytes)

        for value in plan.graph.inputs:
            if value in plan.offsets:
                memory[place(value)] = contents(value)
        for number, step in enumerate(plan.steps):
            read = [value for value in step.node.inputs if value in plan.offsets]
            for value in read:
                assert np.array_equal(memory[place(value)], contents(value)), (name, step.node.name, value)
            if plan.scratch[number] is not None:
                start = plan.scratch[number]
                memory[start : start + step.scratch_bytes] = -1
                for value in read:  # the scratch is apart from what the step reads
                    assert place(value).stop <= start or start + step.scratch_bytes <= place(value).start
            for value in step.node.outputs:
                if value in plan.offsets:
                    memory[place(value)] = contents(value)


def test_operators_that_are_called_by_name_stay_whole() -> None:
    assert Request(conventions=Conventions(interface="packed")).allowed_partial() == "never"
    assert Request(conventions=Conventions(interface="step")).allowed_partial() == "auto"
    with pytest.raises(UsageError, match="--partial always"):
        Request(partial="always", conventions=Conventions(operators="packed", executor="graph")).allowed_partial()
    assert not compiled(model([helper.make_node("Relu", ["x"], ["y"])], {"x": (F, (1, 4))}, ["y"])).graph.line_buffers


def test_always_pays_more_than_auto_would() -> None:
    for seed in range(15, 200):  # none of the first
        proto = Network(seed, integer=True).build()
        whole, parts, auto = (planned(proto, HOST, partial) for partial in ("never", "always", "auto"))
        assert auto.cost <= whole.cost * (1 + MOST_COST)
        if parts.cost > whole.cost * (1 + MOST_COST):
            assert parts.arena_bytes < whole.arena_bytes
            return
    raise AssertionError("no network costs a twentieth more in parts")


def test_a_board_with_too_little_memory_gets_what_is_smallest() -> None:
    """The example's arena has 1,600 bytes as a whole, which is too little to gain for others."""
    uno = boards.get("arduino_uno")
    (name,) = [name for name, memory in uno.memories.items() if "arena" in memory.holds]
    small = uno.memories[name].model_copy(update={"size": 1500})
    board = uno.model_copy(update={"memories": {**uno.memories, name: small}})
    assert compile_model(DIGITS, uno).manifest.arena_bytes == 1600
    assert compile_model(DIGITS, board).manifest.arena_bytes <= 1500
    assert compile_model(DIGITS, board, Request(partial="never")).manifest.arena_bytes == 1600
    large, less = (made.manifest.arena_bytes for _, made in compile_for(DIGITS, [uno, board]))
    assert (large, less <= 1500) == (1600, True)


def test_what_reads_one_row_all_the_time_stays_out(tmp_path: Path) -> None:
    """The first row of a convolution's result, added to every row of the next one's, is not a row of a window."""
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "w2"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Slice", ["c", "zero", "one", "two"], ["row"]),
        helper.make_node("Add", ["d", "row"], ["s"]),
        helper.make_node("Conv", ["s", "w2"], ["t"], strides=[2, 2]),
        helper.make_node("MaxPool", ["t"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    constants = {
        "w1": rng.normal(size=(8, 4, 3, 3)).astype(F) / 6, "w2": rng.normal(size=(8, 8, 3, 3)).astype(F) / 8,
        "zero": np.array([0]), "one": np.array([1]), "two": np.array([2]),
    }  # fmt: skip
    proto = model(nodes, {"x": (F, (1, 4, 24, 16))}, ["y"], constants)
    feeds = {"x": rng.normal(size=(1, 4, 24, 16)).astype(F)}
    plan = planned(proto, HOST, "always")
    np.testing.assert_allclose(run_c(plan, feeds, tmp_path)[0], reference(proto, feeds)[0], rtol=1e-4, atol=1e-5)


@models.needed
def test_all_parts_have_the_requested_schedule() -> None:
    graph = network("ic/ic_int8_qdq", DSP)
    plan = make_plan(
        graph, DSP, schedules={"conv_1": Choice("c99_patch"), "conv_2": Choice("dsp_patch", {"unroll": 16})}
    )
    assert {s.schedule.name for s in plan.steps if s.node.title == "conv_1"} == {"c99_patch"}
    asked = [step for step in plan.steps if step.node.title == "conv_2"]
    assert len(asked) > 1 and {step.schedule.unroll for step in asked} == {16}


def chooser_of(plan: Plan) -> partial.Chooser:
    return partial.Chooser(plan, PlanOptions(plan.target), partial.PartialCache())


@pytest.mark.parametrize("io", ["arena", "external"])
def test_what_is_reckoned_before_a_region_is_made_holds_for_it(io: Any) -> None:
    """Its windows have the predicted rows, and at least the predicted bytes are live."""
    close, seen = 0, 0
    for seed in range(16):
        plan = planned(Network(seed, integer=seed % 2 == 0).build(), DSP, "never", io=io)
        for candidate in itertools.islice(partial.candidates_at_peak(plan), 0, None, 7):
            graph = with_line_buffers(plan.graph, candidate.region, candidate.chunks, candidate.memory.rows)
            steps = chooser_of(plan).steps(graph).steps if graph else ()
            if graph is None or not steps:
                continue
            bound = live_bound(storages(graph, steps, io)[0])
            assert candidate.least <= bound, (seed, candidate.number)
            close, seen = close + (candidate.least >= 0.9 * bound), seen + 1
    assert seen > 20 and (io == "external" or close >= 0.6 * seen)


def test_only_promising_regions_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The estimate finds them, so that most of the graphs are never built."""
    made = []
    monkeypatch.setattr(
        partial_execution, "with_line_buffers", lambda *arguments: made.append(1) or with_line_buffers(*arguments)
    )
    weights = {f"w{number}": np.ones((8, 8, 3, 3), F) for number in range(8)}
    nodes = [
        helper.make_node("Conv", [f"v{number}", f"w{number}"], [f"v{number + 1}"], pads=[1, 1, 1, 1])
        for number in range(8)
    ]
    plan = planned(model(nodes, {"v0": (F, (1, 8, 24, 24))}, ["v8"], weights), DSP, "never")
    regions = [region for _, region in partial.regions_at_peak(plan)]
    possible = sum(len([*partial.chunkings(plan.graph, region)]) for region in regions)
    partial_execution.one_region_more(plan, math.inf, chooser_of(plan))
    assert possible > 30
    assert 0 < len(made) < possible / 2, (len(made), possible)


def test_a_plan_that_is_alike_tries_what_was_worth_a_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(
        partial_execution, "with_line_buffers", lambda *arguments: made.append(1) or with_line_buffers(*arguments)
    )
    weights = {f"w{number}": np.ones((16, 16 if number else 2, 3, 3), F) for number in range(4)}
    nodes = [
        helper.make_node(
            "Conv", [f"v{number}", f"w{number}"], [f"v{number + 1}"], pads=[1, 1, 1, 1], strides=[1 + (number > 0)] * 2
        )
        for number in range(4)
    ]
    plan = planned(model(nodes, {"v0": (F, (1, 2, 48, 48))}, ["v4"], weights), DSP, "never")
    tried: partial.Tried = {}
    first = partial_execution.with_regions(
        plan,
        math.inf,
        chooser_of(plan),
        tried,
    )
    whole = len(made)
    again = partial_execution.with_regions(
        plan,
        math.inf,
        chooser_of(plan),
        tried,
    )
    assert again.arena_bytes == first.arena_bytes < plan.arena_bytes
    assert again.graph.nodes == first.graph.nodes
    assert 0 < len(made) - whole < whole, (len(made), whole)
