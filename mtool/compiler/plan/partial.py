"""Partial execution: compute a region of the network a few rows at a time, where that makes the arena smaller.

Where tensors before the first reductions are far larger than all others, as in the head of an image network, they are
the arena's peak. mtool.compiler.plan.line_buffers computes such a region without ever having one of them whole;
mtool.compiler.plan.partial_candidates says which may be worth it, and in how many rows at a time; this module makes
them and takes the best.
"""

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial as bound_to

from mtool.base.errors import UsageError
from mtool.base.option_values import Io, Partial
from mtool.compiler.ir import Graph
from mtool.compiler.ir.control import Control
from mtool.compiler.kernels.loop.node import Loop
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan.choice import Choices
from mtool.compiler.plan.line_buffers import with_line_buffers
from mtool.compiler.plan.memory import Storages, live_bound, storages
from mtool.compiler.plan.partial_cache import Shared
from mtool.compiler.plan.partial_candidates import Trial, Tried, trials_of
from mtool.compiler.plan.plan import Plan
from mtool.compiler.plan.step import Step, choose_schedule
from mtool.compiler.plan.whole import lay_out_steps

CLOSE = 0.03  # of the peak, that fewer steps are worth
LAID_OUT = 4  # candidates of nearly the least memory whose arena is laid out
MOST_REGIONS = 3
LARGEST_SMALL = 0.01  # of the largest tensor, for a loop that may come earlier than it does
LEAST_GAIN = 0.1  # of the arena, that "auto" asks for,
LEAST_BYTES = 2048  # and that many, as the calls take flash
MOST_COST = 0.05  # of the instructions, that "auto" pays


def with_partial_execution(
    plan: Plan,
    partial: Partial,
    choices: Choices,
    grown: Collection[str] | None = None,
    shared: Shared | None = None,
) -> Plan:
    """Return a plan with a smaller arena that computes regions a few rows at a time, or the plan as it is.

    Args:
        plan: of the whole graph.
        partial: "auto": if the arena gets smaller by a tenth and 2 KB at least, and no more than a twentieth of
            instructions are added, as the schedules estimate; "always": if it gets smaller; "never".
        choices: the schedules that are asked for; a region whose rows they can't compute stays whole.
        grown: the operators that may have constants larger than their weights (mtool.compiler.plan.flash); None: all.
        shared: what other searches have found.
    """
    if partial == "never" or plan.graph.states:
        return plan
    chooser = Chooser(plan, choices, grown, shared)
    plan = replace(plan, graph=chooser.shared.one(plan.graph))
    limits = [plan.cost * (1 + MOST_COST), *([math.inf] if partial == "always" else [])]
    starts = [plan, *_small_ones_first(plan, chooser.shared)]
    trials = (with_regions(start, most, chooser) for start in starts for most in limits)
    best = min(trials, key=lambda trial: trial.arena_bytes)
    return best if is_worth(plan, best, partial) else plan


def is_worth(plan: Plan, other: Plan, partial: Partial) -> bool:
    """Whether another plan is so much smaller than one that its calls are worth it."""
    least = max(LEAST_GAIN * plan.arena_bytes, LEAST_BYTES) if partial == "auto" else 1
    return plan.arena_bytes - other.arena_bytes >= least


def _small_ones_first(plan: Plan, shared: Shared) -> list[Plan]:
    """Return the plan in an order that leaves regions whole, if it is in another.

    A loop of very few elements (the gate of an epilogue) that comes between operators that are computed by rows would
    part them: it comes as soon as what it reads is there.
    """
    graph = plan.graph
    most = LARGEST_SMALL * max((graph.types[value].bytes for node in graph.nodes for value in node.outputs), default=0)
    keys: dict[str, tuple[int, int, int]] = {}  # of each value: when it is made
    order = []
    for number, node in enumerate(graph.nodes):
        small = isinstance(node.attrs, Loop) and graph.types[node.outputs[0]].bytes <= most
        made = max((keys[value] for value in node.inputs if value in keys), default=(-1, 0, 0))
        key = (made[0], 1, number) if small else (number, 0, number)
        keys.update(dict.fromkeys(node.outputs, key))
        order.append((key, node))
    nodes = tuple(node for _, node in sorted(order, key=lambda pair: pair[0]))
    if nodes == graph.nodes:
        return []
    numbers = {node.name: number for number, node in enumerate(nodes)}
    steps = tuple(sorted(plan.steps, key=lambda step: numbers[step.node.name]))
    return [lay_out_steps(shared.one(replace(graph, nodes=nodes)), steps, plan.target, plan.io)]


def with_regions(plan: Plan, most: float, chooser: "Chooser", tried: Tried | None = None) -> Plan:
    """Return a plan with regions that make its arena smaller, as long as it costs no more than `most` instructions.

    `tried` are the regions that were worth a layout in a plan that is alike where regions may be, so that no others are
    tried here; those that are found come in addition.
    """
    path: tuple[int, ...] = ()
    for _ in range(MOST_REGIONS):
        found = _smallest(plan, most, chooser, tried, path)
        if found is None:
            break
        plan, number = found
        path = *path, number
    return plan


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The steps of a graph, what they cost (infinite: one that is asked for can't do its rows), what memory each needs.

    `memory` has a number of each step: steps of the same graph and the same numbers have the same storages.
    """

    steps: tuple[Step, ...]
    cost: float
    memory: tuple[int, ...]


class Chooser:
    """Chooses schedules, for nodes that are alike once."""

    def __init__(
        self, plan: Plan, choices: Choices, grown: Collection[str] | None = None, shared: Shared | None = None
    ) -> None:
        self.choices = choices
        self.grown = grown
        self.shared = shared = shared or Shared()
        self.target: Target = plan.target
        self.io: Io = plan.io
        self.known: dict[int, tuple[Step, float, int]] = {}
        self.chosen: dict[int, Step] = {}  # by the identity of its node, which most graphs have in common
        for step in plan.steps:
            if isinstance(step.node.attrs, Control):  # whose graphs are planned already
                self._add(shared.number(plan.graph.likeness(step.node)), step, plan.graph)

    def _add(self, likeness: int, step: Step, graph: Graph) -> tuple[Step, float, int]:
        cost = step.schedule.cost(step.node, graph, self.target)
        self.known[likeness] = step, cost, self.shared.memory(step, graph)
        return self.known[likeness]

    def memory(self, plan: Plan) -> tuple[int, ...]:
        """Return what memory each step of a plan needs."""
        return tuple(self.shared.memory(step, plan.graph) for step in plan.steps)

    def steps(self, graph: Graph) -> _Chosen:
        """Return the steps of a graph."""
        steps, total, memory = [], 0.0, []
        for node, likeness in self.shared.likenesses(graph):
            known = self.known.get(likeness)
            if known is None:
                try:
                    step = choose_schedule(node, graph, self.target, self.choices.get(node.title), self.grown)
                except UsageError:
                    return _Chosen((), math.inf, ())
                known = self._add(likeness, step, graph)
            like, cost, needs = known
            own = self.chosen.get(id(node))
            if own is None:
                own = Step(node, like.op, like.schedule, like.scratch_bytes, like.scratch_alignment)
                self.chosen[id(node)] = own
            steps.append(own)
            total += cost
            memory.append(needs)
        return _Chosen(tuple(steps), total, tuple(memory))

    def bound(self, graph: Graph, chosen: _Chosen) -> tuple[int, Storages | None]:
        """Return the bytes that any arena of the steps has at least, and their storages, if these had to be found."""
        made: list[Storages] = []

        def found() -> int:
            made.append(storages(graph, chosen.steps, self.io))
            return live_bound(made[0][0])

        bound = self.shared.once(graph, ("bound", self.io, chosen.memory), found)
        return bound, made[0] if made else None

    def laid_out(self, made: "_Made") -> Plan:
        """Return the plan of a trial."""
        graph, steps = made.graph, made.chosen.steps
        plan = self.shared.once(
            graph,
            ("laid out", self.io, made.chosen.memory),
            lambda: lay_out_steps(graph, steps, self.target, self.io, made=made.storages),
        )
        return replace(plan, steps=steps, target=self.target)


def _smallest(
    plan: Plan, most: float, chooser: Chooser, tried: Tried | None, path: tuple[int, ...]
) -> tuple[Plan, int] | None:
    """Return the plan with the smallest arena of those with one region more, and that trial's number.

    None: none is smaller. `path` are the trials that have made the plan.
    """
    known = None if tried is None else _known(tried.get(path), plan)
    if known is None:
        near = one_region_more(plan, most, chooser)
        if tried is not None:
            tried[path] = tuple(made.trial for made in near)
    else:
        again = (_made(plan, trial, most, chooser, plan.arena_bytes) for trial in known)
        near = [made for made in again if made is not None]
    best = plan, 0
    for made in near:
        if made.bound < best[0].arena_bytes:  # else its arena is no smaller
            laid_out = chooser.laid_out(made)
            best = min(best, (laid_out, made.trial.number), key=lambda one: one[0].arena_bytes)
    return best if best[0] is not plan else None


def _known(trials: Sequence[Trial] | None, plan: Plan) -> Sequence[Trial] | None:
    """Return trials of another plan, if all that they compute by rows is in this one too."""
    nodes = {id(node) for node in plan.graph.nodes}
    is_there = trials is not None and all(id(node) in nodes for trial in trials for node in trial.region.nodes)
    return trials if is_there else None


def one_region_more(plan: Plan, most: float, chooser: Chooser) -> "list[_Made]":
    """Return the trials with one region more whose arenas are laid out."""
    found: list[_Made] = []
    least, shared = plan.arena_bytes, chooser.shared
    about = "trials", plan.io, plan.arena_bytes, chooser.memory(plan)
    trials = shared.once(plan.graph, about, lambda: sorted(trials_of(plan), key=lambda trial: trial.least))
    for trial in trials:  # the rest is not built if one is found
        if trial.least > least * (1 + CLOSE):
            break
        made = _made(plan, trial, most, chooser, plan.arena_bytes)
        if made is not None:
            found.append(made)
            least = min(least, made.bound)
    close = [made for made in _promising(found) if made.bound <= least * (1 + CLOSE)]
    return sorted(close, key=lambda made: (len(made.chosen.steps), made.bound))[:LAID_OUT]


def _made(plan: Plan, trial: Trial, most: float, chooser: Chooser, limit: float) -> "_Made | None":
    """Return the graph of a trial; None: it can't be made, costs more than `most`, or has `limit` live bytes."""
    rows = bound_to(with_line_buffers, plan.graph, trial.region, trial.chunks, trial.memory.rows, trial.turned)
    graph = chooser.shared.once(plan.graph, ("rows", trial.way), rows)
    if graph is None:
        return None
    chosen = chooser.steps(graph)
    if math.isinf(chosen.cost) or chosen.cost > most:
        return None
    bound, found = chooser.bound(graph, chosen)
    return _Made(trial, graph, chosen, bound, found) if bound < limit else None


def plan_of(plan: Plan, trial: Trial, most: float, chooser: Chooser, limit: float = math.inf) -> Plan | None:
    """Return the plan that a trial makes of one.

    Args:
        plan: without the region.
        trial: the region, and how many rows at a time.
        most: the instructions that it may cost, as estimated.
        chooser: of schedules.
        limit: the bytes that are to be live at no step.

    Returns:
        None: rows would begin within a word, a schedule that is asked for can't do its rows, or it is more.
    """
    made = _made(plan, trial, most, chooser, limit)
    return None if made is None else chooser.laid_out(made)


@dataclass(frozen=True, slots=True)
class _Made:
    """A trial whose graph is there; `storages` are those of its steps, if they are known."""

    trial: Trial
    graph: Graph
    chosen: _Chosen
    bound: int
    storages: Storages | None


def _promising(found: Iterable[_Made]) -> list[_Made]:
    """Return those whose region has a smaller peak outside than the best of the more promising regions as a whole."""
    ordered = sorted(found, key=lambda made: made.trial.number)
    result: list[_Made] = []
    for _, alike in itertools.groupby(ordered, key=lambda made: id(made.trial.region)):
        least = min((made.bound for made in result), default=math.inf)
        result += [made for made in alike if made.trial.outer < least]
    return result
