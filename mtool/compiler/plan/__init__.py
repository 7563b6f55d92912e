"""Choose schedules, order the operators, lay out the arena. Importing `Choice` does not load the operators."""

from dataclasses import replace
from typing import TYPE_CHECKING

from mtool.base import exports
from mtool.base.option_values import Io, Order, Partial
from mtool.compiler.plan.choice import Choice, Choices

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mtool.compiler.ir import Graph
    from mtool.compiler.kernels.schedule import Schedule
    from mtool.compiler.kernels.target import Target
    from mtool.compiler.plan.for_time import PackingRoom
    from mtool.compiler.plan.partial import PartialCache
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
    grown: "Mapping[str, Schedule] | None" = None,
    partial_cache: "PartialCache | None" = None,
    packing_room: "PackingRoom | None" = None,
) -> "Plan":
    """Choose schedules and an order, and lay out the arena to the smallest peak that is found.

    Args:
        graph: as the passes leave it.
        target: the board's core and its features.
        io: "arena": inputs and outputs lie in the arena; "external": the caller keeps them.
        partial: whether regions may be computed a few rows at a time (mtool.compiler.plan.partial).
        schedules: the user's choices, by node; all other nodes get the cheapest schedule.
        order: "auto": the operators in the order of the smallest arena that is found; "written": as the model has them.
        grown: the operators that may take memory for time, with their schedules (plan.for_time); None: all.
        partial_cache: results of earlier searches, for other targets of this graph.
        packing_room: the memory with which constants are packed, and unpacked in the arena
            (mtool.compiler.plan.unpacked); None: they are not.

    Raises:
        UsageError: a requested schedule's node does not exist, or the schedule can't compute it.
        ModelError: an input is to be streamed, and what reads it needs all of its rows.
    """
    from mtool.compiler.plan.for_time import worth_packing
    from mtool.compiler.plan.partial import LEAST_BYTES, PartialCache, is_worth, with_partial_execution
    from mtool.compiler.plan.step import PlanOptions
    from mtool.compiler.plan.streamed import plan_streamed
    from mtool.compiler.plan.whole import plan_whole, plans_in

    options = PlanOptions(target, io, partial, schedules or {}, order, grown)
    cache = partial_cache or PartialCache()
    if graph.stream is not None:
        return plan_streamed(graph, options)

    def planned(options: PlanOptions) -> "Plan":
        def by_rows(plan: "Plan") -> "Plan":
            return with_partial_execution(plan, options, cache)

        plan = by_rows(plan_whole(graph, options))
        least = LEAST_BYTES if partial == "auto" else 1
        if partial == "never" or all(inner.arena_bytes < least for inner in [*plans_in(plan)][1:]):
            return plan
        inside = by_rows(plan_whole(graph, options, by_rows))
        return inside if is_worth(plan, inside, partial) else plan

    plan = planned(options)
    if packing_room is None:
        return plan
    most = max(plan.arena_bytes, 0 if partial == "always" else packing_room.arena_bytes)
    ways = worth_packing(plan, replace(packing_room, arena_bytes=most))
    packed = planned(replace(options, packed=ways)) if ways else plan
    return packed if packed.arena_bytes <= most and packed.grown_bytes < plan.grown_bytes else plan


__getattr__ = exports.getter(__name__, exports.modules_by_name(__file__))
