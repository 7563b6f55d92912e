"""Control flow: nodes whose attributes are graphs; which of them run, and how often, is decided at run time.

A body reads values of the graph around it as its own inputs and writes the node's outputs. Inputs and outputs are
matched by position, so either graph may rename its own values.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from typing import ClassVar, Self

from mtool.base import plural
from mtool.base.frozen import frozen
from mtool.compiler.ir.graph import Graph
from mtool.compiler.ir.node import Attributes, Node
from mtool.compiler.ir.types import Array, TensorType

GUESSED = 16
"""The number of rounds assumed in estimates if it is only known at run time."""


class Control(Attributes):
    """A node that computes graphs: `bodies`, one for each of `names`, which are ONNX's attribute names."""

    names: ClassVar[tuple[str, ...]]
    bodies: tuple[Graph, ...]

    def with_bodies(self, bodies: Iterable[Graph]) -> Self:
        """Return a copy with other graphs, which have the same inputs and outputs."""
        return replace(self, bodies=tuple(bodies))

    def __str__(self) -> str:
        return " ".join(
            f"{name}={plural.count(len(body.nodes), 'node')}"
            for name, body in zip(self.names, self.bodies, strict=True)
        )


class Branches(Control):
    """A choice between two graphs (ONNX If).

    Inputs of the node: the condition, of one element; the inputs of both graphs. Outputs: those of both graphs.
    """

    names = ("then", "else")


@frozen
class Carried:
    """A loop-carried value: each round computes it from the previous round's value.

    is_given: the initial value is an input of the node.
    initial: the initial value otherwise; None: zeros.
    is_output: the final value is an output of the node.
    """

    is_given: bool = True
    initial: Array | None = field(default=None, compare=False)
    is_output: bool = True


class Rounds(Control):
    """A graph that is computed repeatedly (ONNX Loop and Scan).

    Inputs of the node: the number of rounds, if `has_trips`; whether there is a first one, if `has_condition`; the
    initial values of carried values with `is_given`; values read by rows; values that each round reads whole.
    Outputs: the final value of carried values with `is_output`; values written by rows; the number of rounds, if
    `counts`. Inputs of the graph: a row of each value read by rows; values read whole; the round, from 0, int64[]; the
    carried values. Outputs: whether another round follows, if `goes_on`; the rows; the carried values.

    most: the maximum number of rounds; None: unknown.
    carried: the carried values.
    backwards: for each value that is read by rows, whether rows are read from the last to the first.
    reversed: for each value that is written by rows, whether rows are written from the last to the first.
    """

    names = ("body",)
    has_trips: bool = False
    has_condition: bool = False
    most: int | None = None
    goes_on: bool = False
    carried: tuple[Carried, ...] = ()
    backwards: tuple[bool, ...] = ()
    reversed: tuple[bool, ...] = ()
    counts: bool = False

    @property
    def body(self) -> Graph:
        """The graph."""
        return self.bodies[0]

    @property
    def is_counted(self) -> bool:
        """Whether there are always exactly `most` rounds."""
        return self.most is not None and not (self.has_trips or self.has_condition or self.goes_on)

    @property
    def expected(self) -> int:
        """The number of rounds, estimated if it is not known at compile time."""
        if self.is_counted and self.most is not None:
            return self.most
        return min(self.most or GUESSED, GUESSED)

    @property
    def first_carried(self) -> int:
        """The position of the first carried value among the node's inputs, if one is given."""
        return self.has_trips + self.has_condition

    @property
    def first_row(self) -> int:
        """The position of the first value that is read by rows among the node's inputs."""
        return self.first_carried + sum(value.is_given for value in self.carried)

    @property
    def places(self) -> list[tuple[int, int]]:
        """For each carried value, the node's input with its initial value and output with its final value; -1: none."""
        inputs, outputs = itertools.count(self.first_carried), itertools.count()
        return [(next(inputs) if v.is_given else -1, next(outputs) if v.is_output else -1) for v in self.carried]

    def __str__(self) -> str:
        limit = "" if self.most is None else f" most={self.most}"
        return Control.__str__(self) + limit


def all_graphs(graph: Graph) -> Iterator[Graph]:
    """Yield a graph and all graphs inside it, outer ones before inner ones."""
    waiting = [graph]
    while waiting:
        graph = waiting.pop()
        yield graph
        waiting += [body for node in graph.nodes for body in bodies_of(node)]


def bodies_of(node: Node) -> tuple[Graph, ...]:
    """Return a node's graphs; most nodes have none."""
    return node.attrs.bodies if isinstance(node.attrs, Control) else ()


def has_bodies(graph: Graph) -> bool:
    """Whether any node of a graph has graphs of its own."""
    return any(isinstance(node.attrs, Control) for node in graph.nodes)


def check(node: Node, graph: Graph) -> None:
    """Check that a control node and its graphs fit together.

    Raises:
        AssertionError: they do not; a bug in the pass that made them.
    """
    attrs, where = node.attrs, f"{node.op} {node.name}"

    def expect(actual: object, expected: object, role: str) -> None:
        assert actual == expected, f"{where}: {role}: found {actual}, expected {expected}"

    def types(of: Graph, values: Iterable[str]) -> list[TensorType]:
        return [of.types[value] for value in values]

    if isinstance(attrs, Branches):
        for body in attrs.bodies:
            expect(types(body, body.inputs), types(graph, node.inputs[1:]), "inputs of a branch")
            expect(types(body, body.outputs), types(graph, node.outputs), "outputs of a branch")
    if not isinstance(attrs, Rounds):
        return
    body, count = attrs.body, len(attrs.carried)
    first, last = len(body.inputs) - count, len(body.outputs) - count
    kinds = types(body, body.inputs[first:])
    expect(types(body, body.outputs[last:]), kinds, "carried values")
    initial = [kind for kind, item in zip(kinds, attrs.carried, strict=True) if item.is_given]
    expect(types(graph, node.inputs[attrs.first_carried : attrs.first_row]), initial, "first values")
    results = [kind for kind, item in zip(kinds, attrs.carried, strict=True) if item.is_output]
    expect(types(graph, node.outputs[: len(results)]), results, "last values")
    rows = body.outputs[attrs.goes_on : last]
    expect(len(rows), len(attrs.reversed), "outputs by rows")
    expect(len(node.inputs) - attrs.first_row, first - 1, "inputs")
    expect(len(node.outputs), len(results) + len(rows) + attrs.counts, "outputs")
    read = zip(node.inputs[attrs.first_row :], body.inputs[: first - 1], strict=True)
    written = zip(node.outputs[len(results) :], rows, strict=False)
    by_rows = [*(True for _ in attrs.backwards), *(False for _ in range(first - 1 - len(attrs.backwards)))]
    for (outer, inner), is_row in [*zip(read, by_rows, strict=True), *((pair, True) for pair in written)]:
        kind = graph.types[outer]
        expect(body.types[inner], replace(kind, shape=kind.shape[is_row:]), f"{outer} inside")
