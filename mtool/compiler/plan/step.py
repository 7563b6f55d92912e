"""One step of a plan: an operator and its schedule."""

from collections.abc import Collection
from dataclasses import dataclass, field

from mtool.base.option_values import Io, Order, Partial
from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.external import External
from mtool.compiler.kernels.schedule import KernelOp, Schedule
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan.choice import Choice, Choices, chosen


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options for planning a graph.

    target: the board's core and its features.
    io: "arena": inputs and outputs lie in the arena; "external": the caller keeps them.
    partial: whether regions may be computed a few rows at a time (mtool.compiler.plan.partial).
    choices: the user's schedules, by node; all other nodes get the cheapest.
    order: "auto": the operators in the order of the smallest arena that is found; "written": as the model has them.
    grown: the operators that may have constants larger than their weights (plan.for_time); None: all.
    """

    target: Target
    io: Io = "arena"
    partial: Partial = "auto"
    choices: Choices = field(default_factory=dict)
    order: Order = "auto"
    grown: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One operator: its node, its kind, its schedule, and the scratch's size and alignment in bytes."""

    node: Node
    op: KernelOp
    schedule: Schedule
    scratch_bytes: int
    scratch_alignment: int = 4


def choose_schedule(
    node: Node, graph: Graph, target: Target, choice: Choice | None = None, grown: Collection[str] | None = None
) -> Step:
    """Return the requested schedule, or the cheapest that supports the node.

    Args:
        node: the node.
        graph: the graph that contains it.
        target: the core.
        choice: the requested schedule, if any.
        grown: the operators that may have constants larger than their weights (plan.for_time); None: all.

    Raises:
        UsageError: the requested schedule does not exist or can't compute the node.
    """
    op = registry.KERNELS[node.op]
    if choice is not None:
        schedule = chosen(choice, op, node, graph, target)
    else:
        may_grow = grown is None or node.title in grown
        supporting = (schedule for schedule in op.schedules if schedule.supports(node, graph, target))
        fitting = [schedule for schedule in supporting if may_grow or not schedule.grown_bytes(node, graph)]
        cheapest = min(fitting, key=lambda schedule: schedule.cost(node, graph, target))
        schedule = cheapest.for_core(node, graph, target)
    alignment = node.attrs.alignment if isinstance(node.attrs, External) else 4
    return Step(node, op, schedule, schedule.scratch_bytes(node, graph), alignment)
