"""The plan: which schedule computes each operator, in which order, and where its bytes lie."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mtool.ir import Graph
from mtool.ir.node import View
from mtool.kernels.target import Target
from mtool.option_values import Io
from mtool.plan.choice import Choices, check_names
from mtool.plan.first_fit import lay_out
from mtool.plan.memory import ALIGNMENT, Storage, live_bound, offsets_of, storages
from mtool.plan.order import order_nodes
from mtool.plan.state_storage import copy_states
from mtool.plan.step import Step, choose_schedule


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that codegen needs.

    `offsets` has the arena offset in bytes of every value that lies there; `scratch` those of the
    steps' scratch (None: the step has none). `storages` are the pieces of the arena, for its map.
    """

    graph: Graph
    target: Target
    io: Io
    steps: tuple[Step, ...]
    offsets: Mapping[str, int]
    scratch: tuple[int | None, ...]
    storages: tuple[tuple[Storage, int], ...]
    arena_bytes: int
    arena_bound_bytes: int

    @property
    def cost(self) -> float:
        """The instructions that its schedules estimate."""
        return sum(step.schedule.cost(step.node, self.graph, self.target) for step in self.steps)


def plan_whole(graph: Graph, target: Target, io: Io, choices: Choices) -> Plan:
    """Choose schedules and an order, and lay out the arena to the smallest peak that is found."""
    nodes = [node for node in graph.nodes if not isinstance(node.attrs, View)]
    check_names(choices, (node.name for node in nodes))
    by_name = {node.name: choose_schedule(node, graph, target, choices.get(node.name)) for node in nodes}
    ordered = order_nodes(graph, by_name, io)
    graph = replace(graph, nodes=ordered)
    steps = tuple(by_name[node.name] for node in ordered if not isinstance(node.attrs, View))
    graph, steps = copy_states(graph, steps, lambda node, after: choose_schedule(node, after, target))
    return lay_out_steps(graph, steps, target, io)


def lay_out_steps(graph: Graph, steps: tuple[Step, ...], target: Target, io: Io) -> Plan:
    """Lay out the arena for steps in their final order."""
    layouts = []
    for grow in (False, True):
        found = storages(graph, steps, io, grow=grow)
        layouts.append((*found, *lay_out(found[0])))
    pieces, owners, scratch_of, placed, arena_bytes = min(layouts, key=lambda layout: layout[-1])
    if pieces:
        arena_bytes = max(arena_bytes, ALIGNMENT)  # tensors without elements have an address too
    offsets = offsets_of(owners, placed)
    scratch = tuple(placed[number] if number is not None else None for number in scratch_of)
    ranked = sorted(((piece, placed[n]) for n, piece in enumerate(pieces)), key=lambda pair: (pair[1], pair[0].first))
    return Plan(graph, target, io, steps, offsets, scratch, tuple(ranked), arena_bytes, live_bound(pieces))
