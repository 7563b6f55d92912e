"""The compiler's optimisation level of one operator: its function goes into a file that is compiled at that level."""

from dataclasses import dataclass, replace
from typing import get_args

from mtool.ir import Graph, Node
from mtool.kernels.knobs import Knob
from mtool.kernels.schedule import Kernel, Schedule
from mtool.kernels.target import Target
from mtool.option_values import LEVEL, Level
from mtool.plan.bound import BoundSchedule

LEVELS: tuple[Level, ...] = get_args(Level)
OPT = Knob(("", *LEVELS), "the compiler's optimisation level of the operator; auto: that of the model's other files")


@dataclass(eq=False)
class AtLevel(BoundSchedule):
    """A schedule whose C is compiled at a level of its own."""

    inner: Schedule
    opt: Level
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.inner.name

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """What the schedule supports."""
        return self.inner.supports(node, graph, target)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """That of the schedule."""
        return self.inner.scratch_bytes(node, graph)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """What the schedule may overwrite."""
        return self.inner.in_place(node, graph)

    def overwrites(self, node: Node, graph: Graph) -> tuple[tuple[int, int], ...]:
        """What the schedule may overwrite."""
        return self.inner.overwrites(node, graph)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """That of the schedule: what a level gives is measured."""
        return self.inner.cost(node, graph, target)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Return the C of the schedule, with its level."""
        return replace(self.inner.emit(node, graph, target), level=self.opt)

    def knobs(self) -> dict[str, Knob]:
        """Those of the schedule, and the level."""
        return {**self.inner.knobs(), LEVEL: OPT}


def at_level(schedule: Schedule, level: Level | None) -> Schedule:
    """Return a schedule whose C is compiled at a level; None: at that of the model's other files."""
    return AtLevel(schedule, level) if level else schedule
