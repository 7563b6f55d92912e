"""Plan a whole graph: schedules, an order, offsets; the graphs of its control nodes are planned before it.

Their arenas are the scratch of the control node's step: a body's tensors occupy the arena only while the node runs, and
two branches share the same bytes.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from mtool.base.option_values import Io
from mtool.compiler.ir import Graph, Node, State
from mtool.compiler.ir.control import Control, Rounds, all_graphs
from mtool.compiler.ir.node import View
from mtool.compiler.kernels import registry
from mtool.compiler.kernels.external import External
from mtool.compiler.kernels.schedule import Kernel, Schedule
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan.choice import check_names
from mtool.compiler.plan.first_fit import lay_out
from mtool.compiler.plan.memory import (
    ALIGNMENT,
    Storages,
    aliases,
    copy_states,
    live_bound,
    offsets_of,
    storages,
    without_states,
)
from mtool.compiler.plan.order import order_nodes
from mtool.compiler.plan.plan import Plan
from mtool.compiler.plan.sized import sized_step
from mtool.compiler.plan.step import PlanOptions, Step, choose_schedule


@dataclass(frozen=True)
class ControlSchedule(Schedule):
    """The plans of a node's graphs; each accesses values of the outer graph in place."""

    plans: tuple[Plan, ...]

    name = "calls"

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Return the size of the largest arena of its graphs."""
        return max(plan.arena_bytes for plan in self.plans)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Return what `overwrites` has for the first output."""
        return tuple(place for place, output in self.overwrites(node, graph) if not output)

    def overwrites(self, node: Node, graph: Graph) -> tuple[tuple[int, int], ...]:
        """Return pairs: a carried value's input and output; a branch's output and an input that both have read by then.

        Nothing else in the node may read that input.
        """
        roots = [*map(aliases(graph).root, node.inputs)]
        attrs = node.attrs
        if isinstance(attrs, Rounds):
            pairs = [pair for pair in attrs.places if min(pair) >= 0]
        else:  # the first output, as inner operators write over inputs
            pairs = [
                (place, 0) for place in range(1, len(roots)) if all(_is_read_first(p, place - 1) for p in self.plans)
            ]
        return tuple((place, output) for place, output in pairs if roots.count(roots[place]) == 1)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Return the cost of the most expensive graph, times the number of rounds."""
        return _times(node) * max(plan.cost for plan in self.plans)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Not called: the code generator writes this C (mtool.compiler.codegen.functions)."""
        raise NotImplementedError


def device_cycles(step: Step) -> float:
    """Return a step's accelerator cycles, as the backends estimate them; for control nodes as in `cost`."""
    if isinstance(step.schedule, ControlSchedule):
        inner = (sum(map(device_cycles, plan.steps)) for plan in step.schedule.plans)
        return _times(step.node) * max(inner)
    return step.node.attrs.cycles if isinstance(step.node.attrs, External) else 0.0


def without_estimate(plan: Plan) -> tuple[str, ...]:
    """Return the backends that estimate neither instructions nor cycles of one of their regions."""
    regions = (step.node.attrs for part in plans_in(plan) for step in part.steps)
    return tuple(sorted({r.backend for r in regions if isinstance(r, External) and not r.cost + r.cycles}))


def _is_read_first(plan: Plan, number: int) -> bool:
    """Whether a branch's last read of an input is before, or in place with, the write of its first output."""
    graph, root = plan.graph, aliases(plan.graph).root
    source = graph.inputs[number]
    output = root(graph.outputs[0])
    written = [n for n, step in enumerate(plan.steps) if output in map(root, step.node.outputs)]
    read = [n for n, step in enumerate(plan.steps) if source in map(root, step.node.inputs)]
    if not written or not read or read[-1] < written[0]:
        return bool(written) and output != source
    step = plan.steps[written[0]]
    places = {place for place, value in enumerate(step.node.inputs) if root(value) == source}
    allowed = {place for place, over in step.schedule.overwrites(step.node, graph) if step.node.outputs[over] == output}
    return read[-1] == written[0] and places <= allowed


def plans_in(plan: Plan) -> Iterator[Plan]:
    """Yield a plan and the plans of all inner graphs, outer ones first."""
    waiting = [plan]
    while waiting:
        current = waiting.pop()
        yield current
        for step in current.steps:
            if isinstance(step.schedule, ControlSchedule):
                waiting += step.schedule.plans


def _times(node: Node) -> int:
    """Return how often a node computes one of its graphs, estimated if unknown."""
    return node.attrs.expected if isinstance(node.attrs, Rounds) else 1


def planned_body(node: Node, body: Graph, outer: Graph) -> Graph:
    """Return a body of a node of `outer` for planning, with its carried values as states."""
    count = len(node.attrs.carried) if isinstance(node.attrs, Rounds) else 0
    pairs = zip(body.outputs[len(body.outputs) - count :], body.inputs[len(body.inputs) - count :], strict=True)
    states = tuple(State(output, value) for output, value in pairs)
    return replace(body, states=states, rounds=outer.rounds * max(_times(node), 1), for_size=outer.for_size)


def control_step(node: Node, plans: Sequence[Plan]) -> Step:
    """Return the step of a node whose graphs are planned."""
    schedule = ControlSchedule(tuple(plans))
    macs = _times(node) * max(plan.macs for plan in plans)
    op = replace(registry.KERNELS[node.op], macs=lambda node, graph: macs)
    return Step(node, op, schedule, max(plan.arena_bytes for plan in plans), max(plan.alignment for plan in plans))


Refine = Callable[[Plan], Plan]


def plan_whole(graph: Graph, options: PlanOptions, refine: Refine = lambda plan: plan) -> Plan:
    """Choose schedules and an order, and lay out the arena to the smallest peak that is found.

    `refine` improves the plans of bodies.

    Raises:
        UsageError: a requested schedule's node does not exist, or the schedule can't compute it.
    """
    check_names(options.choices, (node.name for part in all_graphs(graph) for node in _computing(part)))
    return _plan(graph, options, "keep", refine)


def _computing(graph: Graph) -> Iterable[Node]:
    return (node for node in graph.nodes if not isinstance(node.attrs, View))


def _plan(graph: Graph, options: PlanOptions, keep: str, refine: Refine, outside: Collection[int] = ()) -> Plan:
    """Plan a graph.

    Args:
        graph: the graph.
        options: the planning options.
        keep: the stem of the names of copies of its states.
        refine: improves the plans of bodies.
        outside: the numbers of the states that may lie in the caller's memory.
    """
    target = options.target

    def step_of(node: Node) -> Step:
        if isinstance(node.attrs, Control):
            plans = []
            for name, body in zip(node.attrs.names, node.attrs.bodies, strict=True):
                inner, keep = planned_body(node, body, graph), f"{node.name}_{name}_keep"
                carried = node.attrs.carried if isinstance(node.attrs, Rounds) else ()
                kept_outside = [number for number, state in enumerate(carried) if state.is_output]
                of_body = _plan(inner, replace(options, io="external"), keep, refine, kept_outside)
                plans.append(refine(of_body))
            return control_step(node, plans)
        if node.name in graph.sized_nodes:
            return sized_step(node, graph, target, options.choices.get(node.name))
        return options.step(node, graph, node.name)

    by_name = {node.name: step_of(node) for node in _computing(graph)}
    graph = replace(graph, nodes=order_nodes(graph, by_name, options.io, options.order))
    steps = tuple(by_name[node.name] for node in _computing(graph))
    graph, steps = copy_states(graph, steps, lambda node, after: choose_schedule(node, after, target), keep)
    return lay_out_steps(graph, steps, target, options.io, outside)


def lay_out_steps(
    graph: Graph,
    steps: tuple[Step, ...],
    target: Target,
    io: Io,
    outside: Collection[int] = (),
    computed: Storages | None = None,
) -> Plan:
    """Lay out the arena for steps in their final order.

    Args:
        graph, steps, target, io: the plan's contents.
        outside: the numbers of the states that may lie outside the arena.
        computed: the steps' storages, if they are computed already, without enlarged ones.
    """
    stored = computed or storages(graph, steps, io)
    apart = without_states(graph, stored.pieces, stored.owners, outside)
    placed, arena_bytes = lay_out(stored.pieces)
    grown = storages(graph, steps, io, grow=True)
    apart_if_grown = without_states(graph, grown.pieces, grown.owners, outside)
    if live_bound(grown.pieces) < arena_bytes:
        places_if_grown, bytes_if_grown = lay_out(grown.pieces)
        if bytes_if_grown < arena_bytes:
            stored, apart, placed, arena_bytes = grown, apart_if_grown, places_if_grown, bytes_if_grown
    pieces, owners, scratch_of = stored
    if pieces and not apart:
        arena_bytes = max(arena_bytes, ALIGNMENT)  # tensors without elements have an address too
    offsets = {value: offset for value, offset in offsets_of(owners, placed).items() if value not in apart}
    scratch = tuple(placed[number] if number is not None else None for number in scratch_of)
    ranked = sorted(((piece, placed[n]) for n, piece in enumerate(pieces)), key=lambda pair: (pair[1], pair[0].first))
    return Plan(graph, target, io, steps, offsets, scratch, tuple(ranked), arena_bytes, live_bound(pieces), apart)
