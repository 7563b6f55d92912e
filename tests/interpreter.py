"""A graph's meaning, in NumPy, to compare passes with; and a plan's execution in the bytes of its arena."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels import evaluation
from mtool.compiler.kernels.matmul import Matmul
from mtool.compiler.kernels.softmax import SoftmaxOfRows
from mtool.compiler.plan import Plan

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]


def run(graph: Graph, feeds: Sequence[Feeds]) -> list[list[Array]]:
    """Return the outputs that the caller gets of each call, with the states kept between them."""
    kept = {value: first_value(graph, state, value) for state, value, _ in graph.state_values}
    results = []
    for fed in feeds:
        values = {**graph.constants, **kept, **{value: np.asarray(fed[value]) for value in graph.caller_inputs}}
        for node in graph.nodes:
            for value, made in zip(node.outputs, compute(node, graph, [values[v] for v in node.inputs]), strict=True):
                assert made.shape == graph.types[value].shape and made.dtype == graph.types[value].dtype.numpy, value
                values[value] = made
        kept = {value: values[output] for _, value, output in graph.state_values}
        results.append([values[output] for output in graph.caller_outputs])
    return results


def first_value(graph: Graph, state: Any, value: str) -> Array:
    kind = graph.types[value]
    return np.zeros(kind.shape, kind.dtype.numpy) if state.initial is None else state.initial


def compute(node: Node, graph: Graph, inputs: list[Array]) -> list[Array]:
    """Return what a node makes of its inputs."""
    return [evaluation.computed(node, graph, inputs, KERNELS)]


def _softmax(node: Node, inputs: Sequence[Array], shape: tuple[int, ...]) -> Array:
    x = inputs[0]
    if x.dtype.kind == "f":
        powers = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    else:
        powers = inputs[1][255 + x.astype(np.int64) - x.max(axis=-1, keepdims=True)].astype(np.float64)
    result = powers / powers.sum(axis=-1, keepdims=True)
    return (np.log(result) if SoftmaxOfRows.of(node).log else result).astype(np.float32)


def _matmul(node: Node, inputs: Sequence[Array], shape: tuple[int, ...]) -> Array:
    attrs = Matmul.of(node)
    depth, operands = attrs.depth, []
    for data, steps, point, columns in zip(inputs, (attrs.a, attrs.b), attrs.points, (False, True), strict=False):
        batch, (row, column) = steps[:-2], steps[-2:]
        whole = (*shape[:-2], depth, shape[-1]) if columns else (*shape[:-1], depth)
        place = sum(
            (step * np.arange(size)).reshape([-1 if n == at else 1 for n in range(len(whole))])
            for at, (step, size) in enumerate(zip((*batch, row, column), whole, strict=True))
        )
        operands.append(data.reshape(-1)[np.broadcast_to(place, whole)].astype(np.int64) - point)
    return (operands[0] @ operands[1]).astype(np.int32)


KERNELS: dict[str, evaluation.Accumulated] = {"matmul": _matmul, "softmax": _softmax}


class Arena:
    """Runs a plan in an arena of bytes: each step reads and writes where the plan says, and nothing else is kept.

    `shared` is an arena that other plans run in too.
    """

    def __init__(self, plan: Plan, shared: Array | None = None) -> None:
        self.plan, self.graph, self.is_own = plan, plan.graph, shared is None
        self.bytes = np.full(plan.arena_bytes, 0xA5, np.uint8) if shared is None else shared
        self.outside: dict[str, Array] = {}  # what the caller keeps
        self.root: dict[str, str] = {}
        for node in self.graph.nodes:
            if node.op == "view":
                self.root[node.outputs[0]] = self.root.get(node.inputs[0], node.inputs[0])
        for state, value, _ in self.graph.state_values:
            self.write(value, first_value(self.graph, state, value))

    def place(self, value: str) -> slice:
        """Return the bytes of the arena that a value lies in."""
        first = self.plan.offsets[value]
        assert first % self.graph.types[value].dtype.size == 0
        assert first >= 0 and first + self.graph.types[value].bytes <= self.plan.arena_bytes
        return slice(first, first + self.graph.types[value].bytes)

    def write(self, value: str, data: Array) -> None:
        if value not in self.plan.offsets:
            self.outside[value] = data
            return
        self.bytes[self.place(value)] = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)

    def read(self, value: str) -> Array:
        if value in self.graph.constants:
            return self.graph.constants[value]
        if value not in self.plan.offsets:
            return self.outside[self.root.get(value, value)].reshape(self.graph.types[value].shape)
        kind = self.graph.types[value]
        return np.frombuffer(self.bytes[self.place(value)].tobytes(), kind.dtype.numpy).reshape(kind.shape)

    def run(self, feeds: Feeds) -> list[Array]:
        """Return the outputs of one call; before it, all bytes but the states' are lost."""
        self.begin(feeds)
        for number in range(len(self.plan.steps)):
            self.step(number)
        return self.outputs()

    def begin(self, feeds: Feeds) -> None:
        """Write the inputs; in an arena of its own, all other bytes but the states' are lost."""
        if self.is_own:
            kept = {value: self.read(value) for _, value, _ in self.graph.state_values}
            self.bytes[:] = 0x5A
            for value, data in kept.items():
                self.write(value, data)
        for value in self.graph.caller_inputs:
            self.write(value, np.asarray(feeds[value]))

    def step(self, number: int) -> None:
        """Run one step."""
        step = self.plan.steps[number]
        node = step.node
        made = compute(node, self.graph, [self.read(value) for value in node.inputs])
        scratch = self.plan.scratch[number]
        if scratch is not None:
            self.bytes[scratch : scratch + step.scratch_bytes] = 0x3C
        for value, data in zip(node.outputs, made, strict=True):
            if getattr(node.attrs, "appends", False):  # what lies there already is not written
                first = self.graph.types[node.inputs[0]].bytes
                place = self.place(value)
                assert self.plan.offsets[node.inputs[0]] == place.start
                raw = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
                self.bytes[place.start + first : place.stop] = raw[first:]
            else:
                self.write(value, data)

    def outputs(self) -> list[Array]:
        """Return the outputs, when all steps have run."""
        return [self.read(value) for value in self.graph.caller_outputs]
