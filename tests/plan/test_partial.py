"""Partial execution: what is computed a few rows at a time is what is computed as a whole.

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
from graphs import HOST, NO_FPU, Array, compiled, model, reference, run_c
from one_firmware import Case, failures
from onnx import helper

from mtool import boards, frontend, passes
from mtool.codegen import Conventions
from mtool.compiler import compile_for, compile_model
from mtool.errors import UsageError
from mtool.ir import Graph
from mtool.kernels.target import Target
from mtool.lowerings.verification import verify
from mtool.plan import Choice, Plan, make_plan
from mtool.plan import partial as partial_execution
from mtool.plan.line_buffers import with_line_buffers
from mtool.plan.memory import aliases, live_bound, storages
from mtool.plan.partial import MOST_COST
from mtool.request import Request

pytestmark = pytest.mark.long

F = np.float32
DSP = Target("cortex-m4", frozenset({"fpu", "dsp"}))
MVE = Target("cortex-m55", frozenset({"fpu", "dsp", "mve"}))
NETWORKS = 6
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits_int8.onnx"


@functools.cache
def network(name: str, target: Target) -> Graph:
    """Return the graph of a shared model after all passes."""
    return passes.run(frontend.load(models.path(name)), target)


class Network:
    """A random network of convolutions and poolings, in float or behind QDQ, and its values as they come."""

    def __init__(self, seed: int, *, integer: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.integer = integer
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Any] = {"s": F(0.05), "z": np.int8(-7)}
        self.shapes: dict[str, tuple[int, ...]] = {}
        channels, size = int(self.rng.choice([1, 3, 4])), int(self.rng.integers(14, 30))
        width = int(self.rng.choice([8, 12, 16])) if channels != 1 else 16
        shape = 1, channels, size, width
        self.inputs = {"x": (np.int8 if integer else F, shape)}
        value = "x"
        if integer:
            value = self.node("DequantizeLinear", ["x", "s", "z"], shape)
        self.shapes[value] = shape
        self.values = [value]

    def pick(self, count: int) -> int:
        return int(self.rng.integers(count))

    def node(self, op: str, inputs: list[str], shape: tuple[int, ...], **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attrs))
        self.shapes[name] = shape
        return name

    def stored(self, value: str) -> str:
        """Quantise a value and take it back, as a quantiser puts it between two operators."""
        if not self.integer:
            return value
        shape = self.shapes[value]
        return self.node("DequantizeLinear", [self.node("QuantizeLinear", [value, "s", "z"], shape), "s", "z"], shape)

    def windowed(self, size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> int:
        return (size + sum(pads) - (kernel - 1) * dilation - 1) // stride + 1

    def convolve(self, value: str) -> str:
        _, c, h, w = self.shapes[value]
        depthwise = c > 1 and self.rng.random() < 0.35
        kernel = [int(self.rng.choice([1, 3, 3, 5])), int(self.rng.choice([1, 3]))]
        stride = [int(self.rng.choice([1, 1, 2])), int(self.rng.choice([1, 1, 2]))]
        dilation = [int(self.rng.choice([1, 1, 2])), 1]
        reach = [(kernel[i] - 1) * dilation[i] for i in (0, 1)]
        pads = [self.pick(reach[0] + 1), self.pick(reach[1] + 1)] * 2 if self.rng.random() < 0.8 else [0, 0, 0, 0]
        size = [self.windowed((h, w)[i], kernel[i], stride[i], dilation[i], (pads[i], pads[i + 2])) for i in (0, 1)]
        if min(size) < 2:
            return value
        outputs = c if depthwise else int(self.rng.choice([4, 8, 16]))
        group = c if depthwise else 1
        weights = self.rng.integers(-100, 100, (outputs, c // group, *kernel))
        name, shape = f"w{len(self.nodes)}", (1, outputs, *size)
        if self.integer:
            scale = np.full(outputs, 6 / (np.abs(weights).sum(axis=(1, 2, 3)).max() + 1), F)
            self.constants |= {name: weights.astype(np.int8), f"{name}s": scale, f"{name}z": np.zeros(outputs, np.int8)}
            name = self.node("DequantizeLinear", [name, f"{name}s", f"{name}z"], weights.shape, axis=0)
        else:
            self.constants[name] = (weights / 60 / np.sqrt(weights[0].size)).astype(F)
        attrs = {"strides": stride, "dilations": dilation, "pads": pads, "group": group}
        made = self.node("Conv", [value, name], shape, **attrs)
        return self.stored(self.node("Relu", [made], shape) if self.rng.random() < 0.5 else made)

    def pool(self, value: str) -> str:
        _, c, h, w = self.shapes[value]
        kernel, pad = int(self.rng.choice([2, 3])), self.pick(2)
        kind = str(self.rng.choice(["MaxPool", "AveragePool"]))
        pads = [pad if kind == "MaxPool" else 0] * 4
        size = [self.windowed(n, kernel, 2, 1, (pads[0], pads[0])) for n in (h, w)]
        if min(size) < 2:
            return value
        attrs = {"kernel_shape": [kernel, kernel], "strides": [2, 2], "pads": pads}
        return self.stored(self.node(kind, [value], (1, c, *size), **attrs))

    def join(self, value: str) -> str:
        """Add a value of the same shape, or append its channels."""
        shape = self.shapes[value]
        others = [o for o in self.values if o != value and self.shapes[o][2:] == shape[2:]]
        same = [other for other in others if self.shapes[other] == shape]
        if same and self.rng.random() < 0.8:
            return self.stored(self.node("Add", [value, same[self.pick(len(same))]], shape))
        if not others:
            return value
        other = others[self.pick(len(others))]
        channels = shape[1] + self.shapes[other][1]
        return self.stored(self.node("Concat", [value, other], (1, channels, *shape[2:]), axis=1))

    def build(self) -> onnx.ModelProto:
        value = self.values[0]
        for _ in range(int(self.rng.integers(4, 8))):
            kind = self.rng.random()
            value = self.convolve(value) if kind < 0.6 else self.pool(value) if kind < 0.75 else self.join(value)
            self.values.append(value)
        shape = (1, self.shapes[value][1], 1, 1)
        value = self.node("GlobalAveragePool", [value], shape) if self.rng.random() < 0.5 else value
        end = self.node("QuantizeLinear", [value, "s", "z"], shape) if self.integer else self.node(
            "Identity", [value], shape
        )  # fmt: skip
        used = {name for node in self.nodes for name in node.input}
        constants = {name: data for name, data in self.constants.items() if name in used}
        return model(self.nodes, self.inputs, [end], constants)

    def feeds(self) -> dict[str, Array]:
        dtype, shape = self.inputs["x"]
        return {
            "x": self.rng.integers(-128, 128, shape).astype(dtype)
            if self.integer
            else self.rng.normal(size=shape).astype(F)
        }


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


@pytest.mark.parametrize("target", [HOST, DSP, MVE, NO_FPU], ids=lambda target: target.cpu)
@pytest.mark.parametrize("integer", [True, False], ids=["int8", "float32"])
@pytest.mark.product
def test_parts_are_the_whole(target: Target, integer: bool, tmp_path: Path) -> None:
    """On the host, where plain C stands for SIMD, under the sanitizers."""
    assert failures(cases(target, integer=integer), tmp_path, None) == []


@pytest.mark.parametrize(("target", "board"), [(DSP, "mps2_an386"), (MVE, "mps3_an547")], ids=["dsp", "mve"])
def test_parts_are_the_whole_in_simd(target: Target, board: str, tmp_path: Path) -> None:
    assert failures(cases(target, integer=True), tmp_path, board) == []


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


@models.needed
@pytest.mark.parametrize(("name", "target", "most"), [
    ("ic/ic_int8_qdq", DSP, 19_000), ("ic/ic_int8_qdq", NO_FPU, 18_000), ("vww/vww_int8_qdq", DSP, 31_000),
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
    """The first row of a convolution's result, added to every row of the next one's, is no row of a window."""
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
def test_all_parts_have_the_schedule_that_is_asked_for() -> None:
    graph = network("ic/ic_int8_qdq", DSP)
    plan = make_plan(
        graph, DSP, schedules={"conv_1": Choice("c99_patch"), "conv_2": Choice("dsp_patch", {"unroll": 16})}
    )
    assert {s.schedule.name for s in plan.steps if s.node.title == "conv_1"} == {"c99_patch"}
    asked = [step for step in plan.steps if step.node.title == "conv_2"]
    assert len(asked) > 1 and {step.schedule.unroll for step in asked} == {16}


@pytest.mark.parametrize("io", ["arena", "external"])
def test_what_is_reckoned_before_a_region_is_made_holds_for_it(io: Any) -> None:
    """Its windows have the rows that were told, and no fewer bytes are live than were told."""
    close, seen = 0, 0
    for seed in range(16):
        plan = planned(Network(seed, integer=seed % 2 == 0).build(), DSP, "never", io=io)
        for trial in itertools.islice(partial_execution._trials(plan), 0, None, 7):
            graph = with_line_buffers(plan.graph, trial.region, trial.chunks, trial.memory.rows)
            steps, _ = partial_execution.Chooser(plan, {}).steps(graph) if graph else ((), 0)
            if graph is None or not steps:
                continue
            bound = live_bound(storages(graph, steps, io)[0])
            assert trial.least <= bound, (seed, trial.number)
            close, seen = close + (trial.least >= 0.9 * bound), seen + 1
    assert seen > 20 and (io == "external" or close >= 0.6 * seen)


def test_only_promising_regions_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is reckoned tells which they are, so that most of the graphs are never built."""
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
    regions = [region for _, region in partial_execution._regions(plan)]
    possible = sum(len([*partial_execution._chunkings(plan.graph, region)]) for region in regions)
    partial_execution._smallest(plan, math.inf, partial_execution.Chooser(plan, {}))
    assert possible > 30
    assert 0 < len(made) < possible / 2, (len(made), possible)
