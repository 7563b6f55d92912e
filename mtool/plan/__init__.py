"""Choose schedules, order the operators, lay out the arena."""

from mtool.ir import Graph
from mtool.kernels.target import Target
from mtool.plan.choice import Choice, Choices
from mtool.plan.partial import in_parts
from mtool.plan.plan import Plan, Step, plan_whole
from mtool.settings import Io, Partial

__all__ = ["Choice", "Choices", "Plan", "Step", "make_plan"]


def make_plan(
    graph: Graph,
    target: Target,
    io: Io = "arena",
    partial: Partial = "auto",
    schedules: Choices | None = None,
) -> Plan:
    """Choose schedules and an order, and lay out the arena to the smallest peak that is found.

    Args:
        graph: as the passes leave it.
        target: what the board's core can do.
        io: "arena": inputs and outputs lie in the arena; "external": the caller keeps them.
        partial: whether regions may be computed a few rows at a time (mtool.plan.partial).
        schedules: those that are asked for, by node; the cheapest for all others.

    Raises:
        UsageError: a schedule is asked for a node that is not there, or one that can't compute its node.
    """
    choices = schedules or {}
    return in_parts(plan_whole(graph, target, io, choices), partial, choices)
