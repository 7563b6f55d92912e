"""Control flow: nodes whose attributes are graphs, of which the run decides which are computed, and how often.

A body reads values of the graph around it as inputs of its own, and writes the node's outputs. Inputs and outputs
belong together by their position, so that either graph may rename its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from mtool.compiler.ir.graph import Graph
from mtool.compiler.ir.node import Attributes, Node
from mtool.compiler.ir.types import Array

GUESSED = 16
"""Rounds that are counted where only the run knows how many there are."""


class Control(Attributes):
    """A node that computes graphs."""

    @property
    def bodies(self) -> tuple[Graph, ...]:
        """The graphs, in the order of their names."""
        raise NotImplementedError

    @property
    def names(self) -> tuple[str, ...]:
        """What each graph is to the node, as a part of a C name."""
        raise NotImplementedError

    def with_bodies(self, bodies: Sequence[Graph]) -> Self:
        """Return the same with other graphs, of the same inputs and outputs."""
        raise NotImplementedError

    def __str__(self) -> str:
        return " ".join(f"{name}={len(body.nodes)} nodes" for name, body in zip(self.names, self.bodies, strict=True))


class Branches(Control):
    """A choice of two graphs.

    Inputs of the node: the condition, of one element; the inputs of both graphs. Outputs: those of both graphs.
    """

    then_body: Graph
    else_body: Graph

    @property
    def bodies(self) -> tuple[Graph, ...]:
        """What is computed if the condition is true, and if it is not."""
        return self.then_body, self.else_body

    @property
    def names(self) -> tuple[str, ...]:
        """As ONNX calls them."""
        return "then", "else"

    def with_bodies(self, bodies: Sequence[Graph]) -> Self:
        """Return the same with other graphs."""
        then_body, else_body = bodies
        return replace(self, then_body=then_body, else_body=else_body)

    def __str__(self) -> str:
        return Control.__str__(self)


@dataclass(frozen=True, slots=True)
class Carried:
    """A value that each round makes of the one before it.

    is_given: the value of the first round is an input of the node.
    initial: what it is otherwise; None: zeros.
    is_output: the value of the last round is an output of the node.
    """

    is_given: bool = True
    initial: Array | None = field(default=None, compare=False)
    is_output: bool = True


class Rounds(Control):
    """A graph that is computed again and again.

    Inputs of the node: the number of rounds, if `has_trips`; whether there is a first one, if `has_condition`; the
    first of each carried value that is given; what is read by rows; what each round reads whole.
    Outputs: the last of each carried value that is wanted; what is written by rows; the number of rounds, if `counts`.
    Inputs of the graph: a row of each of those; what is read whole; the number of the round from 0 on, int64[]; the
    carried values. Outputs: whether there is another round, if `goes_on`; the rows; the carried values.

    body: the graph.
    most: there are no more rounds than these; None: no limit is known.
    carried: the carried values.
    backwards: for each value that is read by rows, whether the last row comes first.
    reversed: for each value that is written by rows, whether the first row comes last.
    """

    body: Graph
    has_trips: bool = False
    has_condition: bool = False
    most: int | None = None
    goes_on: bool = False
    carried: tuple[Carried, ...] = ()
    backwards: tuple[bool, ...] = ()
    reversed: tuple[bool, ...] = ()
    counts: bool = False

    @property
    def bodies(self) -> tuple[Graph, ...]:
        """The one."""
        return (self.body,)

    @property
    def names(self) -> tuple[str, ...]:
        """As ONNX calls it."""
        return ("body",)

    def with_bodies(self, bodies: Sequence[Graph]) -> Self:
        """Return the same with another graph."""
        (body,) = bodies
        return replace(self, body=body)

    @property
    def is_counted(self) -> bool:
        """Whether there are exactly `most` rounds, known when it is compiled."""
        return self.most is not None and not (self.has_trips or self.has_condition or self.goes_on)

    @property
    def expected(self) -> int:
        """How many rounds there are, as far as that is known when it is compiled."""
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
        return self.first_carried + sum(one.is_given for one in self.carried)

    def __str__(self) -> str:
        limit = "" if self.most is None else f" most={self.most}"
        return Control.__str__(self) + limit


def with_own_bodies(graph: Graph) -> Iterator[Graph]:
    """Yield a graph and all graphs inside it, outer ones before inner ones."""
    waiting = [graph]
    while waiting:
        one = waiting.pop()
        yield one
        waiting += [body for node in one.nodes for body in bodies_of(node)]


def bodies_of(node: Node) -> tuple[Graph, ...]:
    """Return the graphs of a node; most have none."""
    return node.attrs.bodies if isinstance(node.attrs, Control) else ()


def has_bodies(graph: Graph) -> bool:
    """Whether a node of a graph has graphs."""
    return any(isinstance(node.attrs, Control) for node in graph.nodes)


def check(node: Node, graph: Graph) -> None:
    """Check that a control node and its graphs fit together.

    Raises:
        AssertionError: they do not; a bug of what made them.
    """
    attrs, where = node.attrs, f"{node.op} {node.name}"
    if isinstance(attrs, Branches):
        outside = [graph.types[value] for value in node.inputs[1:]]
        made = [graph.types[value] for value in node.outputs]
        for body in attrs.bodies:
            assert [body.types[value] for value in body.inputs] == outside, f"{where}: inputs of a branch"
            assert [body.types[value] for value in body.outputs] == made, f"{where}: outputs of a branch"
    if isinstance(attrs, Rounds):
        _check_rounds(node, attrs, graph, where)


def _check_rounds(node: Node, attrs: Rounds, graph: Graph, where: str) -> None:
    body, count = attrs.body, len(attrs.carried)
    first, last = len(body.inputs) - count, len(body.outputs) - count
    kinds = [body.types[value] for value in body.inputs[first:]]
    assert [body.types[value] for value in body.outputs[last:]] == kinds, f"{where}: carried values change"
    given = [kind for kind, one in zip(kinds, attrs.carried, strict=True) if one.is_given]
    found = [graph.types[value] for value in node.inputs[attrs.first_carried : attrs.first_row]]
    assert found == given, f"{where}: first values are {found}; expected {given}"
    assert len(node.inputs) - attrs.first_row == first - 1, f"{where}: has {len(node.inputs)} inputs"
    rows = len(attrs.backwards)
    for value, inner in zip(node.inputs[attrs.first_row :], body.inputs[: first - 1], strict=True):
        kind, own = graph.types[value], body.types[inner]
        assert kind.dtype == own.dtype, f"{where}: {value} is {kind}, {own} inside"
        assert (kind.shape[1:] if rows > 0 else kind.shape) == own.shape, f"{where}: {value} is {kind}, {own} inside"
        rows -= 1
    wanted = [kind for kind, one in zip(kinds, attrs.carried, strict=True) if one.is_output]
    found = [graph.types[value] for value in node.outputs[: len(wanted)]]
    assert found == wanted, f"{where}: last values are {found}; expected {wanted}"
    made = body.outputs[attrs.goes_on : last]
    assert len(made) == len(attrs.reversed), f"{where}: has {len(made)} values by rows"
    assert len(node.outputs) == len(wanted) + len(made) + attrs.counts, f"{where}: has {len(node.outputs)} outputs"
    for value, inner in zip(node.outputs[len(wanted) :], made, strict=False):
        kind, own = graph.types[value], body.types[inner]
        assert (kind.dtype, kind.shape[1:]) == (own.dtype, own.shape), f"{where}: {value} is {kind}, {own} inside"
