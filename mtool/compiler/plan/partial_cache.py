"""What one search for partial execution has found and others may take: those of other limits, and of other targets.

Which rows are made when, and the graph that comes of it, do not depend on the target; where its bytes lie depends on
no more of the steps than the memory that they need.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.node import View
from mtool.compiler.plan.step import Step

_T = TypeVar("_T")


class Shared:
    """Keeps answers, and the graphs that they are about, as long as it lives."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, Any] = {}
        self._kept: list[Graph] = []
        self._numbers: dict[Hashable, int] = {}
        self._alike: dict[int, tuple[Node, int]] = {}  # by the node's identity, which most graphs have in common

    def once(self, graph: Graph, about: Hashable, answer: Callable[[], _T]) -> _T:
        """Return the answer to what is asked about a graph; it is found once."""
        key = id(graph), about
        if key not in self._answers:
            self._answers[key] = answer()
            self._kept.append(graph)  # no other graph gets its identity
        found: _T = self._answers[key]
        return found

    def one(self, graph: Graph) -> Graph:
        """Return the same graph for all that have the same nodes in the same order, and the same values."""
        nodes = tuple(map(id, graph.nodes))
        key = nodes, id(graph.types), id(graph.constants), id(graph.line_buffers), id(graph.sources)
        if key not in self._answers:
            self._answers[key] = graph
        found: Graph = self._answers[key]
        return found

    def number(self, key: Hashable) -> int:
        """Return a number for a key, the same for equal ones."""
        return self._numbers.setdefault(key, len(self._numbers))

    def likenesses(self, graph: Graph) -> Sequence[tuple[Node, int]]:
        """Return the nodes that compute something, each with the number of its likeness."""

        def found() -> list[tuple[Node, int]]:
            return [self._likeness(graph, node) for node in graph.nodes if not isinstance(node.attrs, View)]

        return self.once(graph, "likenesses", found)

    def _likeness(self, graph: Graph, node: Node) -> tuple[Node, int]:
        known = self._alike.get(id(node))
        if known is None:
            known = self._alike[id(node)] = node, self.number(graph.likeness(node))
        return known

    def memory(self, step: Step, graph: Graph) -> int:
        """Return a number that steps share if they need the same memory: scratch, and what they may overwrite."""
        overwritten = tuple(step.schedule.overwrites(step.node, graph))
        return self.number((step.scratch_bytes, step.scratch_alignment, overwritten))
