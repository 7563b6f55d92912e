"""A schedule as it is in the model: what a trial has of it is the C that the model would have."""

from dataclasses import dataclass

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.schedule import Kernel, Schedule
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan.choice import BoundSchedule


@dataclass(eq=False)
class InModel(BoundSchedule):
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

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """That in the model."""
        return self.inner.scratch_bytes(self.node, self.graph)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """That in the model."""
        return self.inner.cost(self.node, self.graph, target)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function of the model."""
        return self.inner.emit(self.node, self.graph, target)
