"""A schedule as it is in the model: what a trial has of it is the C that the model would have."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mtool.ir import Graph, Node
from mtool.kernels.knobs import Knob
from mtool.kernels.schedule import BaseSchedule, Kernel, Schedule
from mtool.kernels.target import Target


@dataclass(eq=False)
class InModel(BaseSchedule):
    """A schedule of a node in its own graph, wherever the node stands.

    How large a tile is, where a schedule chooses it, depends on what a byte of code is worth in the whole model: in a
    trial, which computes hundreds of times as much, it would be another.
    """

    inner: Schedule
    node: Node
    graph: Graph

    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.inner.name

    def __getattr__(self, name: str) -> Any:
        """Return a knob of the schedule."""
        if name.startswith("__") or name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """The node that it was made for."""
        return True

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """That in the model."""
        return self.inner.scratch_bytes(self.node, self.graph)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """That in the model."""
        return self.inner.cost(self.node, self.graph, target)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function of the model."""
        return self.inner.emit(self.node, self.graph, target)

    def knobs(self) -> Mapping[str, Knob]:
        """Those of the schedule."""
        return self.inner.knobs()
