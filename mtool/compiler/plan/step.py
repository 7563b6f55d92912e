"""One step of a plan: an operator and its schedule."""

from collections.abc import Mapping
from dataclasses import field, replace

from mtool.base.frozen import frozen
from mtool.base.option_values import Io, Order, Partial
from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.external import External
from mtool.compiler.kernels.schedule import KernelOp, Schedule
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan.choice import Choice, Choices, chosen
from mtool.compiler.plan.unpacked import Way, packed


@frozen
class PlanOptions:
    """The options for planning a graph.

    target: the board's core and its features.
    io: "arena": inputs and outputs lie in the arena; "external": the caller keeps them.
    partial: whether regions may be computed a few rows at a time (mtool.compiler.plan.partial).
    choices: the user's schedules, by node; all other nodes get the cheapest.
    order: "auto": the operators in the order of the smallest arena that is found; "written": as the model has them.
    grown: the operators that may take memory for time, with their schedules (plan.for_time); None: all.
    packed: the operators whose constants are packed, and how.
    """

    target: Target
    io: Io = "arena"
    partial: Partial = "auto"
    choices: Choices = field(default_factory=dict)
    order: Order = "auto"
    grown: Mapping[str, Schedule] | None = None
    packed: Mapping[str, Way] = field(default_factory=dict)

    def step(self, node: Node, graph: Graph, name: str) -> "Step":
        """Return the step of a node, whose choice is listed under `name`; as `choose_schedule`."""
        step = choose_schedule(node, graph, self.target, self.choices.get(name), self.grown)
        if node.title not in self.packed:
            return step
        schedule = packed(step.schedule, node, graph, self.target, self.packed[node.title])
        return replace(step, schedule=schedule, scratch_bytes=schedule.scratch_bytes(node, graph)) if schedule else step


@frozen
class Step:
    """One operator: its node, its kind, its schedule, and the scratch's size and alignment in bytes."""

    node: Node
    op: KernelOp
    schedule: Schedule
    scratch_bytes: int
    scratch_alignment: int = 4


def choose_schedule(
    node: Node, graph: Graph, target: Target, choice: Choice | None = None, grown: Mapping[str, Schedule] | None = None
) -> Step:
    """Return the requested schedule, or the cheapest that supports the node.

    Args:
        node: the node.
        graph: the graph that contains it.
        target: the core.
        choice: the requested schedule, if any.
        grown: the operators that may take memory for time, with their schedules (plan.for_time); None: all.

    Raises:
        UsageError: the requested schedule does not exist or can't compute the node.
    """
    op = registry.KERNELS[node.op]
    if choice is not None:
        schedule = chosen(choice, op, node, graph, target)
    else:
        growing = [grown[node.title]] if grown and node.title in grown else []
        allowed = [s for s in op.schedules if grown is None or not s.is_for_time(node, graph)] + growing
        cheapest = min(
            (s for s in allowed if s.supports(node, graph, target)),
            key=lambda schedule: schedule.cost(node, graph, target),
        )
        schedule = cheapest.for_core(node, graph, target)
    alignment = node.attrs.alignment if isinstance(node.attrs, External) else 4
    return Step(node, op, schedule, schedule.scratch_bytes(node, graph), alignment)
