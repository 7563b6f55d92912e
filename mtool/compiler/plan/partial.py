"""Partial execution: compute a region of the network a few rows at a time where that makes the arena smaller.

The arena's peak is often at tensors that are far larger than all others, as in the head of an image network.
mtool.compiler.plan.region computes such a region without ever holding one of them whole; this module finds candidate
regions and numbers of rows at a time, tries them and takes the best.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from mtool.base.errors import UsageError
from mtool.base.frozen import frozen
from mtool.base.option_values import Io, Partial
from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.control import Control
from mtool.compiler.ir.node import View
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan.memory import Storages, live_bound, storages
from mtool.compiler.plan.plan import Plan
from mtool.compiler.plan.region import Region, RegionMemory, region_memory, row_reads, with_line_buffers
from mtool.compiler.plan.step import PlanOptions, Step
from mtool.compiler.plan.whole import lay_out_steps

# Results of one search for partial execution that others, with other limits or targets, can reuse.
#
# The order of rows and the resulting graph do not depend on the target; the memory layout depends only on the memory
# that each step needs.


_T = TypeVar("_T")


class PartialCache:
    """Caches results per graph, and keeps the graphs alive."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, Any] = {}
        self._kept: list[Graph] = []
        self._numbers: dict[Hashable, int] = {}
        self._alike: dict[int, tuple[Node, int]] = {}  # by the node's identity, which most graphs have in common

    def once(self, graph: Graph, about: Hashable, answer: Callable[[], _T]) -> _T:
        """Return `answer()`, cached for the graph under the key `about`."""
        key = id(graph), about
        if key not in self._answers:
            self._answers[key] = answer()
            self._kept.append(graph)  # so that no other graph gets its identity
        result: _T = self._answers[key]
        return result

    def canonical(self, graph: Graph) -> Graph:
        """Return the same graph object for all graphs with the same nodes in the same order, and the same values."""
        nodes = tuple(map(id, graph.nodes))
        key = nodes, id(graph.types), id(graph.constants), id(graph.line_buffers), id(graph.sources)
        result: Graph = self._answers.setdefault(key, graph)
        return result

    def number(self, key: Hashable) -> int:
        """Return a number for a key, the same for equal ones."""
        return self._numbers.setdefault(key, len(self._numbers))

    def likenesses(self, graph: Graph) -> Sequence[tuple[Node, int]]:
        """Return the nodes that compute something, each with the number of its likeness."""

        def likeness(node: Node) -> tuple[Node, int]:
            if id(node) not in self._alike:
                self._alike[id(node)] = node, self.number(graph.likeness(node))
            return self._alike[id(node)]

        def listed() -> list[tuple[Node, int]]:
            return [likeness(node) for node in graph.nodes if not isinstance(node.attrs, View)]

        return self.once(graph, "likenesses", listed)

    def memory(self, step: Step, graph: Graph) -> int:
        """Return a number that is equal for steps with the same scratch and the same overwritable inputs."""
        overwritten = tuple(step.schedule.overwrites(step.node, graph))
        return self.number((step.scratch_bytes, step.scratch_alignment, overwritten))


# Candidates: regions of a plan, with numbers of rows, that may make its arena smaller.


ROWS = (1, 2, 4, 8)  # rows of the region's result at a time
DIVISORS = (1, 2)  # the rows of earlier values that a chunk of the result needs are computed in this number of parts
REGIONS = 8  # regions to try
REACH = 32  # the most operators of a region before and after the peak
CHUNKS = 1000  # the most chunks of a region


@frozen
class Candidate:
    """A region, the peak outside it, the rows at a time, and its memory; at least `least` bytes are live.

    `turned` is as for with_line_buffers.
    """

    region: Region
    outer: int
    chunks: Mapping[str, int]
    memory: RegionMemory
    number: int
    turned: frozenset[str] | None = None

    @property
    def way(self) -> Hashable:
        """The key that determines the resulting graph."""
        nodes = tuple((node.name, self.chunks[node.name]) for node in self.region.nodes)
        return nodes, tuple(self.memory.rows.items()), self.turned

    @property
    def least(self) -> int:
        """The fewest bytes that the arena can have."""
        return max(self.outer, self.memory.live_bytes)


Tried = dict[tuple[int, ...], Sequence[Candidate]]
"""The candidates that were laid out, by the numbers of the candidates applied before."""
Chunkings = Callable[[Graph, Region], Iterator[Mapping[str, int]]]
"""Yields possible numbers of rows per chunk, by node name."""


def candidates_at_peak(plan: Plan) -> Iterator[Candidate]:
    """Yield candidates that may make the arena smaller, the most promising regions first."""
    regions = ((outer, region) for outer, region in regions_at_peak(plan) if outer < plan.arena_bytes)
    return candidates_of(plan, regions, chunkings, plan.arena_bytes)


def candidates_of(
    plan: Plan, regions: Iterable[tuple[int, Region]], ways: Chunkings, limit: float = math.inf
) -> Iterator[Candidate]:
    """Yield the ways to compute regions, each with the peak outside it, that need less memory than a limit."""
    numbers = itertools.count()
    for outer, region in regions:
        for chunks in ways(plan.graph, region):
            memory = region_memory(plan.graph, region, chunks, plan.io, limit)
            if memory is not None:
                yield Candidate(region, outer, chunks, memory, next(numbers))


def chunkings(graph: Graph, region: Region) -> Iterator[Mapping[str, int]]:
    """Yield possible numbers of rows per chunk, by node name."""
    height = {node.name: graph.types[node.outputs[0]].shape[1] for node in region.nodes}
    last = region.nodes[-1].name

    def of(name: str, rows: int, divisor: int) -> int:  # in step with `rows` of the region's result
        count = rows * height[name] // height[last] // (1 if name == last else divisor)
        return even_rows(max(1, count), height[name])

    ways = ({name: of(name, *way) for name in height} for way in itertools.product(ROWS, DIVISORS))
    return distinct(ways, height, CHUNKS)


def even_rows(most: int, height: int) -> int:
    """Return the rows at a time: a divisor of the height if there is one near `most`."""
    even = next(n for n in range(min(most, height), 0, -1) if height % n == 0)
    return even if 2 * even >= most else min(most, height)


def distinct(ways: Iterable[Mapping[str, int]], height: Mapping[str, int], most: int) -> Iterator[Mapping[str, int]]:
    """Yield each distinct choice of rows per chunk with at most `most` chunks of all nodes together."""
    seen: list[Mapping[str, int]] = []
    for chunks in ways:
        if chunks not in seen and sum(height[name] // rows for name, rows in chunks.items()) <= most:
            seen.append(chunks)
            yield chunks


def regions_at_peak(plan: Plan) -> list[tuple[int, Region]]:
    """Return regions that hold the operator at the peak, each with the peak outside it; the most promising first."""
    graph, nodes = plan.graph, plan.graph.nodes
    found_reads = ((node.name, row_reads(node, graph)) for node in nodes)
    reads = {name: rows for name, rows in found_reads if rows is not None}
    live = live_bytes(plan)
    peak = max(range(len(live)), key=lambda number: live[number])
    at = nodes.index(plan.steps[peak].node)
    numbers = {node.name: number for number, node in enumerate(n for n in nodes if not isinstance(n.attrs, View))}
    readers = graph.consumers()
    low = high = at
    while low > max(at - REACH, 0) and nodes[low - 1].name in reads:
        low -= 1
    while high + 1 < min(at + REACH, len(nodes)) and nodes[high + 1].name in reads:
        high += 1
    if nodes[at].name not in reads:
        return []
    candidates = []
    for first in range(low, at + 1):
        for last in range(max(at, first + 1), high + 1):
            inside = nodes[first : last + 1]
            region = Region(inside, reads)
            if not is_closed(graph, region, readers):
                continue
            names = {numbers[node.name] for node in inside}
            outer = max((b for n, b in enumerate(live) if n not in names), default=0)
            candidates.append((max(outer, _estimate(graph, region)), len(inside), first, outer, region))
    candidates.sort(key=lambda candidate: candidate[:3])
    return [(outer, region) for *_, outer, region in candidates[:REGIONS]]


def is_closed(graph: Graph, region: Region, readers: Mapping[str, list[Node]]) -> bool:
    """Whether all values of a region but its result are read only there, row by row and with the same padding."""
    names = {node.name for node in region.nodes}
    between = {node.outputs[0] for node in region.nodes[:-1]}
    by_row = {(node.name, reads.input) for node in region.nodes for reads in region.reads[node.name]}
    inputs = ((node.name, place, value) for node in region.nodes for place, value in enumerate(node.inputs))
    return (
        all(readers.get(value) and all(reader.name in names for reader in readers[value]) for value in between)
        and all((name, place) in by_row for name, place, value in inputs if value in between)
        and not between & {*graph.outputs}
        and all(region.fill(node.outputs[0]) is not None for node in region.nodes)
    )


def _estimate(graph: Graph, region: Region) -> int:
    """Estimate the live bytes in a region: its inputs or its result, and line buffers of a few rows."""
    produced = {node.outputs[0] for node in region.nodes}
    outside = {value for node in region.nodes for value in node.inputs if value not in produced | {*graph.constants}}
    ends = max(sum(graph.types[value].bytes for value in outside), graph.types[region.result].bytes)
    line_buffers = 0
    for value in produced - {region.result}:
        kind = graph.types[value]
        rows = max(reads.reach + reads.stride for _, reads in region.readers.get(value, ()))
        line_buffers += kind.bytes * min(rows, kind.shape[1]) // kind.shape[1]
    return ends + line_buffers


def live_bytes(plan: Plan) -> list[int]:
    """Return the bytes that are live at each step."""
    changes = [0] * (len(plan.steps) + 3)  # from before the first step on
    for piece, _ in plan.storages:
        for part in piece.parts:
            for first, end in part.spans():
                changes[first] += part.bytes
                changes[end] -= part.bytes
    return list(itertools.accumulate(changes))[1 : len(plan.steps) + 1]


CLOSE = 0.03  # the share of the peak that is given up for fewer steps
LAID_OUT = 4  # the number of candidates with nearly the least memory that are laid out
MOST_REGIONS = 3
LARGEST_SMALL = 0.01  # the share of the largest tensor up to which a loop may be moved forward
LEAST_GAIN = 0.1  # the share of the arena that "auto" has to save,
LEAST_BYTES = 2048  # and the bytes, since the calls take flash
MOST_COST = 0.05  # the share of instructions that "auto" may add, unless instructions are spent to save flash


def with_partial_execution(plan: Plan, options: PlanOptions, cache: PartialCache) -> Plan:
    """Return a plan with a smaller arena that computes regions a few rows at a time, or the plan as it is.

    Args:
        plan: the plan of the whole graph.
        options: `partial` is "auto": if the arena gets smaller by a tenth and at least 2 KB, and the schedules
            estimate at most a twentieth more instructions, none if some save flash already; "always": if it gets
            smaller; "never".
            A region stays whole if the requested schedules can't compute its rows.
        cache: the results of other searches.
    """
    partial = options.partial
    if partial == "never" or plan.graph.states or (partial == "auto" and plan.arena_bytes < LEAST_BYTES):
        return plan
    chooser = Chooser(plan, options, cache)
    plan = replace(plan, graph=chooser.cache.canonical(plan.graph))
    saves_flash = any(step.schedule.avoidable_cost(step.node, plan.graph) for step in plan.steps)
    limits = [plan.cost * (1 if saves_flash else 1 + MOST_COST), *([math.inf] if partial == "always" else [])]
    starts = [plan, *_small_loops_first(plan, chooser.cache)]
    plans = (with_regions(start, most, chooser) for start in starts for most in limits)
    best = min(plans, key=lambda candidate: candidate.arena_bytes)
    return best if is_worth(plan, best, partial) else plan


def is_worth(plan: Plan, other: Plan, partial: Partial) -> bool:
    """Whether another plan's arena is enough smaller to be worth its additional calls."""
    least = max(LEAST_GAIN * plan.arena_bytes, LEAST_BYTES) if partial == "auto" else 1
    return plan.arena_bytes - other.arena_bytes >= least


def _small_loops_first(plan: Plan, cache: PartialCache) -> list[Plan]:
    """Return the plan reordered so that small loops do not split regions, if that changes the order.

    A loop of very few elements (the gate of an epilogue) between operators that are computed by rows would split the
    region: it is moved forward to where its inputs are available.
    """
    graph = plan.graph
    most = LARGEST_SMALL * max((graph.types[value].bytes for node in graph.nodes for value in node.outputs), default=0)
    keys: dict[str, tuple[int, int, int]] = {}  # of each value: when it is computed
    order = []
    for number, node in enumerate(graph.nodes):
        small = isinstance(node.attrs, Loop) and graph.types[node.outputs[0]].bytes <= most
        latest = max((keys[value] for value in node.inputs if value in keys), default=(-1, 0, 0))
        key = (latest[0], 1, number) if small else (number, 0, number)
        keys.update(dict.fromkeys(node.outputs, key))
        order.append((key, node))
    nodes = tuple(node for _, node in sorted(order, key=lambda pair: pair[0]))
    if nodes == graph.nodes:
        return []
    numbers = {node.name: number for number, node in enumerate(nodes)}
    steps = tuple(sorted(plan.steps, key=lambda step: numbers[step.node.name]))
    return [lay_out_steps(cache.canonical(replace(graph, nodes=nodes)), steps, plan.target, plan.io)]


def with_regions(plan: Plan, most: float, chooser: "Chooser", tried: Tried | None = None) -> Plan:
    """Return a plan with regions that make its arena smaller, at the cost of at most `most` instructions.

    `tried` are the candidates that were laid out for a plan with the same possible regions: only these are tried.
    Newly found ones are added to it.
    """
    path: tuple[int, ...] = ()
    for _ in range(MOST_REGIONS):
        smaller = _smallest(plan, most, chooser, tried, path)
        if smaller is None:
            break
        plan, number = smaller
        path = *path, number
    return plan


@frozen
class _Chosen:
    """The steps of a graph, their cost (infinite: a requested schedule can't compute its rows), and their memory.

    `memory` has a number for each step: equal numbers for the same graph imply the same storages.
    """

    steps: tuple[Step, ...]
    cost: float
    memory: tuple[int, ...]


class Chooser:
    """Chooses schedules, once for nodes that are alike."""

    def __init__(self, plan: Plan, options: PlanOptions, cache: PartialCache) -> None:
        self.options, self.cache = options, cache
        self.target: Target = plan.target
        self.io: Io = plan.io
        self.cached: dict[int, tuple[Step, float, int]] = {}
        self.chosen: dict[int, Step] = {}  # by the identity of its node, which most graphs have in common
        for step in plan.steps:
            if isinstance(step.node.attrs, Control):  # its graphs are planned already
                self._add(cache.number(plan.graph.likeness(step.node)), step, plan.graph)

    def _add(self, likeness: int, step: Step, graph: Graph) -> tuple[Step, float, int]:
        cost = step.schedule.cost(step.node, graph, self.target)
        self.cached[likeness] = step, cost, self.cache.memory(step, graph)
        return self.cached[likeness]

    def memory(self, plan: Plan) -> tuple[int, ...]:
        """Return the memory number of each step of a plan (`PartialCache.memory`)."""
        return tuple(self.cache.memory(step, plan.graph) for step in plan.steps)

    def steps(self, graph: Graph) -> _Chosen:
        """Return the steps of a graph."""
        steps, total, memory = [], 0.0, []
        for node, likeness in self.cache.likenesses(graph):
            entry = self.cached.get(likeness)
            if entry is None:
                try:
                    step = self.options.step(node, graph, node.title)
                except UsageError:
                    return _Chosen((), math.inf, ())
                entry = self._add(likeness, step, graph)
            like, cost, needed = entry
            chosen_step = self.chosen.get(id(node))
            if chosen_step is None:
                chosen_step = Step(node, like.op, like.schedule, like.scratch_bytes, like.scratch_alignment)
                self.chosen[id(node)] = chosen_step
            steps.append(chosen_step)
            total += cost
            memory.append(needed)
        return _Chosen(tuple(steps), total, tuple(memory))

    def bound(self, graph: Graph, chosen: _Chosen) -> tuple[int, Storages | None]:
        """Return a lower bound of the arena, in bytes, and the steps' storages if these had to be computed."""
        results: list[Storages] = []

        def compute() -> int:
            results.append(storages(graph, chosen.steps, self.io))
            return live_bound(results[0][0])

        bound = self.cache.once(graph, ("bound", self.io, chosen.memory), compute)
        return bound, results[0] if results else None

    def laid_out(self, applied: "_Applied") -> Plan:
        """Return the plan of a candidate."""
        graph, steps = applied.graph, applied.chosen.steps
        plan = self.cache.once(
            graph,
            ("laid out", self.io, applied.chosen.memory),
            lambda: lay_out_steps(graph, steps, self.target, self.io, computed=applied.storages),
        )
        return replace(plan, steps=steps, target=self.target)


def _smallest(
    plan: Plan, most: float, chooser: Chooser, tried: Tried | None, path: tuple[int, ...]
) -> tuple[Plan, int] | None:
    """Return the plan with the smallest arena among those with one more region, and that candidate's number.

    None: none is smaller. `path` are the candidates applied so far.
    """
    candidates, ids = None if tried is None else tried.get(path), {id(node) for node in plan.graph.nodes}
    if candidates is None or not all(id(node) in ids for candidate in candidates for node in candidate.region.nodes):
        near = one_region_more(plan, most, chooser)
        if tried is not None:
            tried[path] = tuple(applied.candidate for applied in near)
    else:
        again = (_applied(plan, candidate, most, chooser, plan.arena_bytes) for candidate in candidates)
        near = [applied for applied in again if applied is not None]
    best = plan, 0
    for applied in near:
        if applied.bound < best[0].arena_bytes:  # otherwise its arena can't be smaller
            laid_out = chooser.laid_out(applied)
            best = min(best, (laid_out, applied.candidate.number), key=lambda pair: pair[0].arena_bytes)
    return best if best[0] is not plan else None


def one_region_more(plan: Plan, most: float, chooser: Chooser) -> "list[_Applied]":
    """Return the candidates with one more region that are worth a layout."""
    attempts: list[_Applied] = []
    least, cache = plan.arena_bytes, chooser.cache
    about = "candidates", plan.io, plan.arena_bytes, chooser.memory(plan)
    candidates = cache.once(plan.graph, about, lambda: sorted(candidates_at_peak(plan), key=lambda c: c.least))
    for candidate in candidates:  # stop at the first that is found
        if candidate.least > least * (1 + CLOSE):
            break
        applied = _applied(plan, candidate, most, chooser, plan.arena_bytes)
        if applied is not None:
            attempts.append(applied)
            least = min(least, applied.bound)
    close = [applied for applied in _promising(attempts) if applied.bound <= least * (1 + CLOSE)]
    return sorted(close, key=lambda applied: (len(applied.chosen.steps), applied.bound))[:LAID_OUT]


def _applied(plan: Plan, candidate: Candidate, most: float, chooser: Chooser, limit: float) -> "_Applied | None":
    """Return a candidate's graph; None: it is impossible, costs more than `most`, or reaches `limit` live bytes."""
    way = plan.graph, candidate.region, candidate.chunks, candidate.memory.rows, candidate.turned
    graph = chooser.cache.once(plan.graph, ("rows", candidate.way), lambda: with_line_buffers(*way))
    if graph is None:
        return None
    chosen = chooser.steps(graph)
    if math.isinf(chosen.cost) or chosen.cost > most:
        return None
    bound, pieces = chooser.bound(graph, chosen)
    return _Applied(candidate, graph, chosen, bound, pieces) if bound < limit else None


def plan_of(plan: Plan, candidate: Candidate, most: float, chooser: Chooser, limit: float = math.inf) -> Plan | None:
    """Return the plan with a candidate applied.

    Args:
        plan: the plan without the region.
        candidate: the region and its rows at a time.
        most: the most instructions that the plan may cost, as estimated.
        chooser: chooses the schedules.
        limit: the number of live bytes that no step may reach.

    Returns:
        None: rows would begin within a word, a requested schedule can't compute its rows, or a limit is exceeded.
    """
    applied = _applied(plan, candidate, most, chooser, limit)
    return None if applied is None else chooser.laid_out(applied)


@frozen
class _Applied:
    """A candidate with its graph; `storages` are those of its steps, if computed already."""

    candidate: Candidate
    graph: Graph
    chosen: _Chosen
    bound: int
    storages: Storages | None


def _promising(attempts: Iterable[_Applied]) -> list[_Applied]:
    """Return the candidates whose peak outside the region is below the best bound of more promising regions."""
    ordered = sorted(attempts, key=lambda applied: applied.candidate.number)
    result: list[_Applied] = []
    for _, alike in itertools.groupby(ordered, key=lambda applied: id(applied.candidate.region)):
        least = min((applied.bound for applied in result), default=math.inf)
        result += [applied for applied in alike if applied.candidate.outer < least]
    return result
