"""Choose schedules, order the operators, lay out the arena. Who names a choice alone does not load the operators."""

from typing import TYPE_CHECKING, Any

from mtool.base.option_values import Io, Order, Partial
from mtool.compiler.plan.choice import Choice, Choices

if TYPE_CHECKING:
    from collections.abc import Collection

    from mtool.compiler.ir import Graph
    from mtool.compiler.kernels.target import Target
    from mtool.compiler.plan.partial import Shared
    from mtool.compiler.plan.plan import Plan
    from mtool.compiler.plan.step import Step

__all__ = ["Choice", "Choices", "Plan", "Step", "make_plan"]


def make_plan(
    graph: "Graph",
    target: "Target",
    io: Io = "arena",
    partial: Partial = "auto",
    schedules: Choices | None = None,
    order: Order = "auto",
    grown: "Collection[str] | None" = None,
    shared: "Shared | None" = None,
) -> "Plan":
    """Choose schedules and an order, and lay out the arena to the smallest peak that is found.

    Args:
        graph: as the passes leave it.
        target: what the board's core can do.
        io: "arena": inputs and outputs lie in the arena; "external": the caller keeps them.
        partial: whether regions may be computed a few rows at a time (mtool.compiler.plan.partial).
        schedules: a user's choices, by node; the cheapest for all others.
        order: "auto": the operators in the order of the smallest arena that is found; "written": as the model has them.
        grown: the operators that may have constants larger than their weights (plan.pools.for_time); None: all.
        shared: what has been found for other targets of this graph.

    Raises:
        UsageError: a schedule is asked for a node that is not there, or one that can't compute its node.
        ModelError: an input is to be streamed, and what reads it needs all of its rows.
    """
    from mtool.compiler.plan.control import plans_in
    from mtool.compiler.plan.partial import LEAST_BYTES, Shared, is_worth, with_partial_execution
    from mtool.compiler.plan.whole import plan_whole

    choices, known = schedules or {}, shared or Shared()
    if graph.stream is not None:
        from mtool.compiler.plan.streamed import plan_streamed

        return plan_streamed(graph, target, partial, choices, order, grown)

    def by_rows(plan: "Plan") -> "Plan":
        return with_partial_execution(plan, partial, choices, grown, known)

    plan = by_rows(plan_whole(graph, target, io, choices, order=order, grown=grown))
    least = LEAST_BYTES if partial == "auto" else 1
    if partial == "never" or all(one.arena_bytes < least for one in [*plans_in(plan)][1:]):
        return plan
    inside = by_rows(plan_whole(graph, target, io, choices, by_rows, order, grown))
    return inside if is_worth(plan, inside, partial) else plan


def __getattr__(name: str) -> Any:
    if name == "Plan":
        from mtool.compiler.plan.plan import Plan

        return Plan
    if name == "Step":
        from mtool.compiler.plan.step import Step

        return Step
    raise AttributeError(f"module 'mtool.compiler.plan' has no attribute {name!r}")
