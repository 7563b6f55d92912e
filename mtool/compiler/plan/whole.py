"""Plan a graph as a whole: schedules, an order, offsets; the graphs of its control nodes on their own before it."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from mtool.base.option_values import Io, Order
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.control import Control, bodies_of, with_own_bodies
from mtool.compiler.ir.node import View
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan.choice import Choices, check_names
from mtool.compiler.plan.control import control_step, kept_outside, planned_body
from mtool.compiler.plan.first_fit import lay_out
from mtool.compiler.plan.memory import (
    ALIGNMENT,
    Storages,
    copy_states,
    live_bound,
    offsets_of,
    storages,
    without_states,
)
from mtool.compiler.plan.order import order_nodes
from mtool.compiler.plan.plan import Plan
from mtool.compiler.plan.sized import sized_step
from mtool.compiler.plan.step import Step, choose_schedule

Refine = Callable[[Plan], Plan]


def plan_whole(
    graph: Graph,
    target: Target,
    io: Io,
    choices: Choices,
    refine: Refine = lambda plan: plan,
    order: Order = "auto",
    grown: Collection[str] | None = None,
) -> Plan:
    """Choose schedules and an order, and lay out the arena to the smallest peak that is found.

    `refine` makes better plans of those of bodies; `order` is that of the operators; `grown` are those that may have
    constants larger than their weights (mtool.compiler.plan.pools.for_time).

    Raises:
        UsageError: a schedule is asked for a node that is not there, or one that can't compute its node.
    """
    check_names(choices, (node.name for one in with_own_bodies(graph) for node in _computing(one)))
    return _plan(graph, target, io, choices, "keep", refine, order, grown)


def _computing(graph: Graph) -> Iterable[Node]:
    return (node for node in graph.nodes if not isinstance(node.attrs, View))


def _plan(
    graph: Graph,
    target: Target,
    io: Io,
    choices: Choices,
    keep: str,
    refine: Refine,
    order: Order,
    grown: Collection[str] | None,
    outside: Collection[int] = (),
) -> Plan:
    """Plan a graph.

    Args:
        graph: the graph.
        target: what the board's core can do.
        io: where inputs and outputs lie.
        choices: of schedules.
        keep: the stem of the names of copies of its states.
        refine: makes better plans of those of bodies.
        order: of its operators.
        grown: the operators that may have constants larger than their weights; None: all.
        outside: the numbers of states that may lie where the caller keeps them.
    """

    def step_of(node: Node) -> Step:
        if node.name in graph.sized_nodes and not isinstance(node.attrs, Control):
            return sized_step(node, graph, target, choices.get(node.name))
        if not isinstance(node.attrs, Control):
            return choose_schedule(node, graph, target, choices.get(node.name), grown)
        bodies = zip(node.attrs.names, bodies_of(node), strict=True)
        plans = []
        for name, body in bodies:
            inner, keep = planned_body(node, body, graph.rounds), f"{node.name}_{name}_keep"
            made = _plan(inner, target, "external", choices, keep, refine, order, grown, kept_outside(node))
            plans.append(refine(made))
        return control_step(node, plans)

    by_name = {node.name: step_of(node) for node in _computing(graph)}
    ordered = order_nodes(graph, by_name, io, order)
    graph = replace(graph, nodes=ordered)
    steps = tuple(by_name[node.name] for node in _computing(graph))
    graph, steps = copy_states(graph, steps, lambda node, after: choose_schedule(node, after, target), keep)
    return lay_out_steps(graph, steps, target, io, outside)


def lay_out_steps(
    graph: Graph,
    steps: tuple[Step, ...],
    target: Target,
    io: Io,
    outside: Collection[int] = (),
    made: Storages | None = None,
) -> Plan:
    """Lay out the arena for steps in their final order.

    Args:
        graph, steps, target, io: what is laid out.
        outside: the numbers of states that need not lie there.
        made: the steps' storages, none of which grows, if they are known.
    """
    found = made or storages(graph, steps, io)
    apart = without_states(graph, found.pieces, found.owners, outside)
    placed, arena_bytes = lay_out(found.pieces)
    grown = storages(graph, steps, io, grow=True)
    apart_if_grown = without_states(graph, grown.pieces, grown.owners, outside)
    if live_bound(grown.pieces) < arena_bytes:
        places_if_grown, bytes_if_grown = lay_out(grown.pieces)
        if bytes_if_grown < arena_bytes:
            found, apart, placed, arena_bytes = grown, apart_if_grown, places_if_grown, bytes_if_grown
    pieces, owners, scratch_of = found
    if pieces and not apart:
        arena_bytes = max(arena_bytes, ALIGNMENT)  # tensors without elements have an address too
    offsets = {value: offset for value, offset in offsets_of(owners, placed).items() if value not in apart}
    scratch = tuple(placed[number] if number is not None else None for number in scratch_of)
    ranked = sorted(((piece, placed[n]) for n, piece in enumerate(pieces)), key=lambda pair: (pair[1], pair[0].first))
    return Plan(graph, target, io, steps, offsets, scratch, tuple(ranked), arena_bytes, live_bound(pieces), apart)
