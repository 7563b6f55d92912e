"""A plan, executed in its arena's bytes, gives the graph's results: nothing is overwritten too early."""

import amount
import interpreter
import networks
import numpy as np
import pytest
import stateful
from graphs import HOST, lowered, model
from interpreter import Arena
from onnx import helper
from single_pass import DSP

from mtool.base.option_values import Io, Partial
from mtool.compiler import passes
from mtool.compiler.frontend import from_proto
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.ir import Graph
from mtool.compiler.ir.graph import Source
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan import Plan, make_plan
from mtool.compiler.plan.memory import Part, storages

pytestmark = pytest.mark.long

F32 = np.float32


def held(graph: Graph, plan: Plan, calls: int = 2) -> Plan:
    """Hold what the plan's steps do in the arena against the graph, over some calls."""
    feeds = networks.feeds_of(graph, 1, calls)
    arena = Arena(plan)
    for fed, wanted in zip(feeds, interpreter.run(graph, feeds), strict=True):
        for mine, theirs in zip(arena.run(fed), wanted, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert plan.arena_bound_bytes <= plan.arena_bytes
    return plan


@pytest.mark.product(2)
@pytest.mark.parametrize("io", ["arena", "external"])
@pytest.mark.parametrize("kind", ["float", "int8", "uint8"])
def test_random_networks(kind: str, io: Io) -> None:
    for seed in range(amount.of(25, 4)):
        proto = networks.floats(seed, 16) if kind == "float" else networks.integers(seed, dtype=getattr(np, kind))
        graph = lowered(proto, DSP if kind == "uint8" else HOST)
        held(graph, make_plan(graph, HOST, io, "never"), 1)


def image(seed: int) -> Graph:
    """Return a network whose head is far larger than what follows."""
    net = networks.Network(seed)
    size = net.chance.choice([12, 13, 16])
    net.inputs["x"], value = (F32, (1, 2, size, size)), "x"
    net.shapes["x"] = (1, 2, size, size)
    for _ in range(net.chance.randrange(2, 6)):
        n, c, h, w = net.shapes[value]
        kind = net.chance.choice(["conv", "conv", "depthwise", "pool", "act", "skip"])
        if kind in ("conv", "depthwise") and h > 3:
            width, stride = (c, 1) if kind == "depthwise" else (net.chance.choice([4, 6, 8]), net.chance.choice([1, 2]))
            kernel = net.chance.choice([1, 3, 5])
            filters = net.rng.uniform(-0.5, 0.5, (width, 1 if kind == "depthwise" else c, kernel, kernel)).astype(F32)
            shape = (1, width, *[(side + 2 * (kernel // 2) - kernel) // stride + 1 for side in (h, w)])
            attrs = {"pads": [kernel // 2] * 4, "strides": [stride] * 2, "group": c if kind == "depthwise" else 1}
            value = net.op("Conv", [value, net.constant(filters)], shape, **attrs)
        elif kind == "pool" and h > 3:
            pads = net.chance.choice([[0, 0, 0, 0], [1, 1, 1, 1]])
            shape = (n, c, *[(side + 2 * pads[0] - 3) // 2 + 1 for side in (h, w)])
            value = net.op("MaxPool", [value], shape, kernel_shape=[3, 3], strides=[2, 2], pads=pads)
        elif kind == "skip":
            other = net.op("Sigmoid", [value], net.shapes[value])
            value = net.op(net.chance.choice(["Add", "Mul"]), [value, other], net.shapes[value])
        else:
            value = net.op("Relu", [value], net.shapes[value])
    mean = net.op("ReduceMean", [value], (*net.shapes[value][:2], 1, 1), axes=[2, 3], keepdims=1)
    return lowered(net.proto([mean]), HOST)


def test_images_a_few_rows_at_a_time() -> None:
    smaller, count = 0, amount.of(40, 14)
    for seed in range(count):
        graph = image(seed)
        whole = make_plan(graph, HOST, partial="never")
        for partial in ("auto", "always"):
            plan = held(graph, make_plan(graph, HOST, partial=partial))
            assert plan.arena_bytes <= whole.arena_bytes
            if partial == "auto" and plan.graph.line_buffers:
                assert whole.arena_bytes - plan.arena_bytes >= max(0.1 * whole.arena_bytes, 2048)
                assert plan.cost <= 1.05 * whole.cost
            smaller += partial == "always" and plan.arena_bytes < whole.arena_bytes
            assert bool(plan.graph.line_buffers) == (plan.arena_bytes < whole.arena_bytes)
    assert smaller >= count / 5


class Watched(Arena):
    """Keeps what steps read and write of values that are tensors of the model, or rows of one."""

    def __init__(self, plan: Plan) -> None:
        self.seen: dict[Source, list[np.ndarray]] = {}  # type: ignore[type-arg]
        super().__init__(plan)

    def note(self, value: str, data: np.ndarray) -> None:  # type: ignore[type-arg]
        if value in self.graph.sources:
            self.seen.setdefault(self.graph.sources[value], []).append(data.copy())

    def read(self, value: str) -> np.ndarray:  # type: ignore[type-arg]
        data = super().read(value)
        self.note(value, data)
        return data

    def write(self, value: str, data: np.ndarray) -> None:  # type: ignore[type-arg]
        super().write(value, data)
        self.note(value, data)


def test_rows_are_those_of_the_tensor_that_they_say() -> None:
    """What `verify` compares layer by layer."""
    rows = 0
    for seed in range(12):
        graph = image(seed)
        (fed,) = networks.feeds_of(graph, 1)
        whole, parts = (Watched(make_plan(graph, HOST, partial=partial)) for partial in ("never", "always"))
        whole.run(fed)
        parts.run(fed)
        for source, found in parts.seen.items():
            what, numbers = source.moves[-1] if source.moves else ("", ())
            of = Source(source.tensor, source.moves[:-1]) if what == "rows" else source
            for data in found if of in whole.seen else ():
                wanted = whole.seen[of][0][:, slice(*numbers)] if what == "rows" else whole.seen[of][0]
                np.testing.assert_allclose(data, wanted, rtol=1e-5, atol=1e-5)
                rows += what == "rows"
    assert rows > 50


def wide(size: int, channels: int) -> Graph:
    """Return an image network with 8-byte integers between its convolutions."""
    rng = np.random.default_rng(size)
    shapes = {"w": (channels, 2, 3, 3), "v": (channels, 2, 3, 3), "u": (1, 2 * channels, 3, 3)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["x", "v"], ["b"], pads=[1] * 4),
        helper.make_node("Cast", ["a"], ["c"], to=7),
        helper.make_node("Cast", ["b"], ["d"], to=7),
        helper.make_node("Concat", ["c", "d"], ["e"], axis=1),
        helper.make_node("Concat", ["d", "c"], ["f"], axis=1),
        helper.make_node("Mul", ["e", "f"], ["g"]),
        helper.make_node("Cast", ["g"], ["h"], to=1),
        helper.make_node("Conv", ["h", "u"], ["i"], strides=[2, 2]),
        helper.make_node("ReduceMean", ["i"], ["y"], axes=[2, 3], keepdims=1),
    ]
    constants = {name: rng.standard_normal(shape).astype(F32) for name, shape in shapes.items()}
    return lowered(model(nodes, {"x": (F32, (1, 2, size, size))}, ["y"], constants), HOST)


@pytest.mark.parametrize("io", ["arena", "external"])
@pytest.mark.parametrize("partial", ["never", "always"])
def test_elements_of_eight_bytes_lie_at_multiples_of_eight(partial: Partial, io: Io) -> None:
    for size, channels in ((9, 3), (12, 2)):
        plan = make_plan(wide(size, channels), HOST, io, partial)
        assert bool(plan.graph.line_buffers) == (partial == "always")
        pieces, owners, _ = storages(plan.graph, plan.steps, io)
        types = plan.graph.types
        assert sum(types[value].dtype.size == 8 for value in owners) >= 4
        for value, (number, offset) in owners.items():
            assert pieces[number].alignment == 8 or types[value].dtype.size <= 4
            assert offset % types[value].dtype.size == plan.offsets[value] % types[value].dtype.size == 0


@pytest.mark.parametrize("io", ["arena", "external"])
def test_states_live_as_long_as_the_firmware(io: Io) -> None:
    for seed in range(amount.of(120, 18)):
        graph = stateful.vectors(seed)
        plan = held(graph, make_plan(graph, HOST, io), 4)
        homes = {value: piece for piece, _ in plan.storages for value in piece.values}
        for _, value, output in plan.graph.state_values:
            assert plan.offsets[value] == plan.offsets[output]
            assert homes[value].parts == (Part(0, homes[value].bytes, (1 << (len(plan.steps) + 2)) - 1),)


def window(seed: int) -> Graph:
    """Return a stream of which a window is kept, in both forms that exporters write."""
    rng = np.random.default_rng(seed)
    kept, new, unit = int(rng.integers(1, 5)), int(rng.integers(1, 4)), (2,) if seed % 2 else ()
    appends = seed % 4 < 2
    kept += 0 if appends else new
    constants = {
        "w": rng.uniform(-0.5, 0.5, (5, 3, 2, *[1 for _ in unit])).astype(F32),
        "first": np.array([-kept if appends else new]), "end": np.array([2**31 - 1]), "time": np.array([2]),
    }  # fmt: skip
    if appends:
        joined, last = "all", helper.make_node("Slice", ["all", "first", "end", "time"], ["next"])
        nodes = [helper.make_node("Concat", ["cache", "x"], ["all"], axis=2), last]
    else:
        joined = "next"
        nodes = [helper.make_node("Slice", ["cache", "first", "end", "time"], ["old"])]
        nodes.append(helper.make_node("Concat", ["old", "x"], ["next"], axis=2))
    nodes.append(helper.make_node("Conv", [joined, "w"], ["y"]))
    outputs = ["y", "next"]
    if rng.random() < 0.4:
        nodes.append(helper.make_node("ReduceMax", ["cache" if rng.random() < 0.5 else joined], ["z"]))
        outputs.insert(1, "z")
    inputs = {"x": (F32, (1, 3, new, *unit)), "cache": (F32, (1, 3, kept, *unit))}
    options = ModelOptions(states=(("next", "cache"),))
    return passes.run(from_proto(model(nodes, inputs, outputs, constants), "test", options), HOST)


@pytest.mark.slow
def test_windows_of_streams() -> None:
    appended = 0
    for seed in range(60):
        graph = window(seed)
        plan = held(graph, make_plan(graph, HOST), 5)
        appended += any(getattr(step.node.attrs, "appends", False) for step in plan.steps)
    assert appended >= 30


@pytest.mark.slow
def test_the_order_is_no_worse_than_the_given_one() -> None:
    for seed in range(30):
        graph = lowered(networks.floats(seed, 20))
        plan = make_plan(graph, Target("cortex-m4", frozenset({"fpu"})), partial="never")
        assert {node.name for node in plan.graph.nodes} == {node.name for node in graph.nodes}
        made = {*graph.inputs, *graph.constants}
        for node in plan.graph.nodes:
            assert {*node.inputs} <= made
            made |= {*node.outputs}
