"""The regions of a plan, and the numbers of rows, that may make its arena smaller: plan.partial tries them."""

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.node import View
from mtool.compiler.kernels.specification import RowReads
from mtool.compiler.plan.plan import Plan
from mtool.compiler.plan.region import Region, RegionMemory, region_memory
from mtool.compiler.plan.rows import row_reads

ROWS = (1, 2, 4, 8)  # of the region's result at a time
DIVISORS = (1, 2)  # what a chunk of the result needs of the values before it is made in so many parts
REGIONS = 8  # that are tried
REACH = 32  # operators before and after the peak that a region may have
CHUNKS = 1000  # that a region may be made in


@dataclass(frozen=True, slots=True)
class Trial:
    """A region, the peak outside it, how many rows at a time, and the memory that takes; `least` bytes are live.

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
        """What the graph that it makes depends on."""
        nodes = tuple((node.name, self.chunks[node.name]) for node in self.region.nodes)
        return nodes, tuple(self.memory.rows.items()), self.turned

    @property
    def least(self) -> int:
        """The fewest bytes that the arena can have."""
        return max(self.outer, self.memory.live_bytes)


Tried = dict[tuple[int, ...], Sequence[Trial]]
"""The trials that were worth a layout, by the numbers of those that had made the plan before."""


def trials_of(plan: Plan) -> Iterator[Trial]:
    """Yield what may make the arena smaller, the most promising regions first."""
    numbers = itertools.count()
    for outer, region in regions_at_peak(plan):
        if outer >= plan.arena_bytes:
            continue
        for chunks in chunkings(plan.graph, region):
            memory = region_memory(plan.graph, region, chunks, plan.io, plan.arena_bytes)
            if memory is not None:
                yield Trial(region, outer, chunks, memory, next(numbers))


def chunkings(graph: Graph, region: Region) -> Iterator[Mapping[str, int]]:
    """Yield how many rows of each node's result may be made at a time, by name."""
    seen: list[Mapping[str, int]] = []
    for rows in ROWS:
        for divisor in DIVISORS:
            chunks = _chunks(graph, region, rows, divisor)
            count = sum(graph.types[n.outputs[0]].shape[1] // chunks[n.name] for n in region.nodes)
            if chunks not in seen and count <= CHUNKS:
                seen.append(chunks)
                yield chunks


def _chunks(graph: Graph, region: Region, rows: int, divisor: int) -> Mapping[str, int]:
    """Return how many rows of each node's result are made at a time: in step with `rows` of the region's result."""
    height = {node.name: graph.types[node.outputs[0]].shape[1] for node in region.nodes}
    last = region.nodes[-1].name
    found = {}
    for name, rows_in_all in height.items():
        wanted = max(1, rows * rows_in_all // height[last] // (1 if name == last else divisor))
        wanted = min(wanted, rows_in_all)
        even = next(n for n in range(wanted, 0, -1) if rows_in_all % n == 0)
        found[name] = even if 2 * even >= wanted else wanted
    return found


def regions_at_peak(plan: Plan) -> list[tuple[int, Region]]:
    """Return regions that hold the operator at the peak, each with the peak outside it; the most promising first."""
    graph, nodes = plan.graph, plan.graph.nodes
    reads: dict[str, tuple[RowReads, ...]] = {}
    for node in nodes:
        rows = row_reads(node, graph)
        if rows is not None:
            reads[node.name] = rows
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
    found = []
    for first in range(low, at + 1):
        for last in range(max(at, first + 1), high + 1):
            inside = nodes[first : last + 1]
            region = Region(inside, {node.name: reads[node.name] for node in inside})
            if not is_closed(graph, region, readers) or any(region.fill(n.outputs[0]) is None for n in inside):
                continue
            names = {numbers[node.name] for node in inside}
            outer = max((b for n, b in enumerate(live) if n not in names), default=0)
            found.append((max(outer, _estimate(graph, region)), len(inside), first, outer, region))
    found.sort(key=lambda one: one[:3])
    return [(outer, region) for *_, outer, region in found[:REGIONS]]


def is_closed(graph: Graph, region: Region, readers: Mapping[str, list[Node]]) -> bool:
    """Tell whether what is made in a region is read there only, row by row, but for its result."""
    names = {node.name for node in region.nodes}
    between = {node.outputs[0] for node in region.nodes[:-1]}
    by_row = {(node.name, reads.input) for node in region.nodes for reads in region.reads[node.name]}
    whole = [
        value
        for node in region.nodes
        for place, value in enumerate(node.inputs)
        if value in between and (node.name, place) not in by_row
    ]
    alone = all(readers.get(value) and all(reader.name in names for reader in readers[value]) for value in between)
    return alone and not whole and not between & {*graph.outputs}


def _estimate(graph: Graph, region: Region) -> int:
    """Return about how many bytes are live in a region: its inputs or its result, and line buffers of a few rows."""
    made = {node.outputs[0] for node in region.nodes}
    outside = {value for node in region.nodes for value in node.inputs if value not in made | {*graph.constants}}
    ends = max(sum(graph.types[value].bytes for value in outside), graph.types[region.result].bytes)
    line_buffers = 0
    for value in made - {region.result}:
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
