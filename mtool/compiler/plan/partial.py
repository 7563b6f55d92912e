"""Partial execution: compute a region of the network a few rows at a time, where that makes the arena smaller.

Where tensors before the first reductions are far larger than all others, as in the head of an image network, they are
the arena's peak. mtool.compiler.plan.partial computes such a region without ever having one of them whole;
mtool.compiler.plan.partial says which may be worth it, and in how many rows at a time; this module makes
them and takes the best.
"""

import functools
import itertools
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial as bound_to
from typing import Any, TypeVar

import numpy as np

from mtool.base.errors import UsageError
from mtool.base.option_values import Io, Partial
from mtool.compiler.ir import DType, Expr, Graph, Node
from mtool.compiler.ir.control import Control
from mtool.compiler.ir.expr import const, identity, load
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.ir.node import View
from mtool.compiler.kernels.loop.node import Loop
from mtool.compiler.kernels.specification import Fill, RowReads
from mtool.compiler.kernels.target import Target
from mtool.compiler.plan.choice import Choices
from mtool.compiler.plan.memory import ALIGNMENT, Storages, aliases, live_bound, storages
from mtool.compiler.plan.plan import Plan
from mtool.compiler.plan.region import Progress, Region, RegionMemory, attributes_of_rows, region_memory, row_reads
from mtool.compiler.plan.step import Step, choose_schedule
from mtool.compiler.plan.whole import lay_out_steps

# What one search for partial execution has found and others may take: those of other limits, and of other targets.
#
# Which rows are made when, and the graph that comes of it, do not depend on the target; where its bytes lie depends
# on no more of the steps than the memory that they need.


_T = TypeVar("_T")


class Shared:
    """Keeps answers, and the graphs that they are about, as long as it lives."""

    def __init__(self) -> None:
        self._answers: dict[Hashable, Any] = {}
        self._kept: list[Graph] = []
        self._numbers: dict[Hashable, int] = {}
        self._alike: dict[int, tuple[Node, int]] = {}  # by the node's identity, which most graphs have in common

    def once(self, graph: Graph, about: Hashable, answer: Callable[[], _T]) -> _T:
        """Return the answer to what is asked about a graph; it is found once."""
        key = id(graph), about
        if key not in self._answers:
            self._answers[key] = answer()
            self._kept.append(graph)  # no other graph gets its identity
        found: _T = self._answers[key]
        return found

    def one(self, graph: Graph) -> Graph:
        """Return the same graph for all that have the same nodes in the same order, and the same values."""
        nodes = tuple(map(id, graph.nodes))
        key = nodes, id(graph.types), id(graph.constants), id(graph.line_buffers), id(graph.sources)
        if key not in self._answers:
            self._answers[key] = graph
        found: Graph = self._answers[key]
        return found

    def number(self, key: Hashable) -> int:
        """Return a number for a key, the same for equal ones."""
        return self._numbers.setdefault(key, len(self._numbers))

    def likenesses(self, graph: Graph) -> Sequence[tuple[Node, int]]:
        """Return the nodes that compute something, each with the number of its likeness."""

        def found() -> list[tuple[Node, int]]:
            return [self._likeness(graph, node) for node in graph.nodes if not isinstance(node.attrs, View)]

        return self.once(graph, "likenesses", found)

    def _likeness(self, graph: Graph, node: Node) -> tuple[Node, int]:
        known = self._alike.get(id(node))
        if known is None:
            known = self._alike[id(node)] = node, self.number(graph.likeness(node))
        return known

    def memory(self, step: Step, graph: Graph) -> int:
        """Return a number that steps share if they need the same memory: scratch, and what they may overwrite."""
        overwritten = tuple(step.schedule.overwrites(step.node, graph))
        return self.number((step.scratch_bytes, step.scratch_alignment, overwritten))


# The regions of a plan, and the numbers of rows, that may make its arena smaller: plan.partial tries them.


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


# Compute a part of a graph a few rows at a time, in line buffers that move down the images.
#
# Nothing is computed twice. The result is made in chunks of rows; before each, every operator before it makes as many
# rows as are missing. It writes them into its line buffer, which holds as many rows as its readers have yet to read:
# before the next rows are made, those are moved to the buffer's beginning. Padding rows are written into the buffer
# as well, so that all chunks of an operator are alike and share one C function.
#
# Sources: line buffers of image pipelines; patch-based inference of MCUNetV2 (arXiv 2110.15352) without the overlap
# that is computed again.


@dataclass(slots=True)
class _LineBuffer:
    """The rows of a value that are at hand: from row `base` to row `top`, with padding rows counted (from below 0).

    `contents` are the values that they consist of, by their first row and the one after the last.
    """

    value: str
    height: int
    row: int  # elements
    above: int
    below: int
    fill: Fill
    base: int = 0
    top: int = 0
    rows: int = 0  # that it has room for
    is_turned: bool = False  # its newest row comes first, the others behind it
    free: int = 0  # rows before the newest one, of a turned buffer
    contents: list[tuple[int, int, str]] = field(default_factory=list)


class _RegionBuilder:
    """Makes the nodes of a region chunk by chunk, in line buffers of so many `rows`.

    The line buffers of the values `turned` have their newest row first; of None rows are moved as late as possible.
    """

    def __init__(
        self,
        graph: Graph,
        region: Region,
        chunk: Mapping[str, int],
        rows: Mapping[str, int],
        turned: frozenset[str] | None,
    ) -> None:
        self.graph, self.region, self.chunk = graph, region, chunk
        self.is_early = turned is not None
        self.flipped: dict[str, str] = {}  # weights whose rows are in the order of a turned buffer
        self.rewriter = Rewriter(graph)
        self.addresses: dict[str, tuple[str, int]] = {}
        self.progress = Progress(graph, region)
        self.done, self.height = self.progress.done, self.progress.height  # rows of each
        self.producer = {node.outputs[0]: node for node in region.nodes}
        self.parts: list[str] = []  # of the result
        self.moved: dict[tuple[str, str], int] = {}  # how often rows of a node were copied, or padding was written
        self.buffers: dict[str, _LineBuffer] = {}
        for value in self.producer:
            padding = region.fill(value)
            assert padding is not None
            above, below, fill = padding
            row = graph.types[value].count // self.height[value]
            buffer = _LineBuffer(value, self.height[value], row, above, below, fill, -above, -above)
            buffer.rows = rows[value]
            buffer.is_turned = turned is not None and value in turned
            self.buffers[value] = buffer

    def run(self) -> None:
        """Make the result."""
        last = self.region.nodes[-1]
        while self.done[last.name] < self.height[last.outputs[0]]:
            self.make(last)
        self.rewriter.nodes.append(
            Node("view", self.rewriter.unique(f"rows of {last.name}"), tuple(self.parts), last.outputs, View())
        )
        self.addresses[self.region.result] = self.region.result, 0

    def make(self, node: Node) -> None:
        """Make the next rows of a node."""
        out, first = node.outputs[0], self.done[node.name]
        count = min(self.chunk[node.name], self.height[out] - first)
        reads = self.region.reads[node.name]
        spans = [one.rows(first, count) for one in reads]
        for one, (_, end) in zip(reads, spans, strict=True):
            self.ensure(node.inputs[one.input], end)
        inputs = list(node.inputs)
        for one, (start, end) in zip(reads, spans, strict=True):
            inputs[one.input] = self.view(node, one, start, end)
            if node.inputs[one.input] in self.buffers and self.buffers[node.inputs[one.input]].is_turned:
                inputs = self.with_flipped_weights(inputs, one)
        buffer = self.buffers[out]
        address = (out, first * buffer.row) if out == self.region.result else self.room(buffer, count)
        value = self.chunk_of(buffer, f"{out} rows", first, count, address)
        parts = -(-self.height[out] // self.chunk[node.name])
        attrs = attributes_of_rows(node, self.graph, count)
        name = node.name if first == 0 else f"{node.name}_row{first}"
        made = replace(node, name=name, inputs=tuple(inputs), outputs=(value,), attrs=attrs)
        self.rewriter.nodes.append(replace(made, whole=node.name, parts=parts))
        self.done[node.name] = first + count
        if out == self.region.result:
            self.parts.append(value)
        if self.is_early:
            for each in dict.fromkeys((*node.inputs, out)):
                self.make_way(each)

    def make_way(self, value: str) -> None:
        """Move the rows of a buffer that are wanted yet out of the place of the next ones, if more have to come."""
        buffer = self.buffers.get(value)
        if buffer is None or value == self.region.result or buffer.top < 0 or not buffer.contents:
            return
        ends = [
            one.rows(self.done[reader.name], min(self.chunk[reader.name], left))[1]
            for reader, one in self.region.readers.get(value, ())
            if (left := self.height[reader.outputs[0]] - self.done[reader.name]) > 0
        ]
        if not ends or min(ends) <= buffer.top:
            return  # nobody reads on, or somebody can with what is there
        left = buffer.height - buffer.top
        count = min(self.chunk[self.producer[value].name], left) if left > 0 else buffer.below
        keep = min(max(self.progress.wanted(value, buffer.top), buffer.base), buffer.top)
        if buffer.top - keep + count <= buffer.rows:
            self.room(buffer, count)

    def with_flipped_weights(self, inputs: list[str], reads: RowReads) -> list[str]:
        """Return the inputs of a node that reads a turned buffer, in which rows have the other order."""
        if reads.reach == 1 or len(inputs) < 2 or inputs[1] not in self.rewriter.constants:
            return inputs
        weights = inputs[1]
        if weights not in self.flipped:
            data = np.ascontiguousarray(self.rewriter.constants[weights][:, ::-1])
            self.flipped[weights] = self.rewriter.constant(f"{weights} flipped", data)
        return [inputs[0], self.flipped[weights], *inputs[2:]]

    def ensure(self, value: str, end: int) -> None:
        """Make rows of a value until row `end` is reached, padding included; a value from outside is there."""
        buffer = self.buffers.get(value)
        if buffer is None:
            return
        if buffer.top < 0:
            self.pad(buffer, buffer.above)
        while buffer.top < end:
            if buffer.top < buffer.height:
                self.make(self.producer[value])
            else:
                self.pad(buffer, buffer.below)

    def room(self, buffer: _LineBuffer, count: int) -> tuple[str, int]:
        """Make room for `count` rows at the end of a buffer; returns their address in it, in elements."""
        if buffer.is_turned:
            if buffer.free < count:
                self.shift(
                    buffer, min(max(self.progress.wanted(buffer.value, buffer.top), buffer.base), buffer.top), count
                )
            return f"line buffer of {buffer.value}", (buffer.free - count) * buffer.row
        if buffer.top + count - buffer.base > buffer.rows:
            self.shift(buffer, min(max(self.progress.wanted(buffer.value, buffer.top), buffer.base), buffer.top))
        return f"line buffer of {buffer.value}", (buffer.top - buffer.base) * buffer.row

    def shift(self, buffer: _LineBuffer, keep: int, free: int = 0) -> None:
        """Move the rows from `keep` on to the beginning of the buffer; of a turned one, behind so many free rows.

        There they are moved one by one, the last one first: C libraries are slow where a move overlaps upwards.
        """
        name, top, before = f"line buffer of {buffer.value}", buffer.top, len(buffer.contents)
        for first, end in [(row, row + 1) for row in range(keep, top)] if buffer.is_turned else [(keep, top)]:
            if first < end:
                source = self.rows_of(buffer, first, end)
                place = free + top - end if buffer.is_turned else 0
                kept = self.chunk_of(buffer, f"{buffer.value} kept", first, end - first, (name, place * buffer.row))
                self.copy(self.producer[buffer.value], "keep", source, kept)
        buffer.contents = buffer.contents[before:]
        buffer.base, buffer.free = keep, free

    def pad(self, buffer: _LineBuffer, count: int) -> None:
        """Append padding rows to a buffer."""
        assert buffer.fill is not None
        address = self.room(buffer, count)
        node, dtype = self.producer[buffer.value], self.graph.types[buffer.value].dtype
        value = self.chunk_of(buffer, f"{buffer.value} padding", buffer.top, count, address)
        self.loop(node, "pad", (), value, const(buffer.fill, dtype))

    def chunk_of(self, buffer: _LineBuffer, stem: str, first: int, count: int, address: tuple[str, int]) -> str:
        """Add a value of `count` rows from `first` on, and note that the buffer holds it."""
        value = self.rows_value(buffer.value, stem, count, address)
        buffer.contents.append((first, first + count, value))
        if first + count > buffer.top:
            buffer.top, buffer.free = first + count, buffer.free - count
        if (count == 1 or not buffer.is_turned) and first >= 0 and first + count <= buffer.height:
            self.tell_source(buffer.value, value, first, count)
        return value

    def rows_value(self, like: str, stem: str, count: int, address: tuple[str, int]) -> str:
        kind = self.graph.types[like]
        value = self.rewriter.value(f"{stem} {len(self.addresses)}", kind.dtype, (1, count, *kind.shape[2:]))
        self.addresses[value] = address[0], address[1] * kind.dtype.size
        return value

    def tell_source(self, of: str, value: str, first: int, count: int) -> None:
        source = self.graph.sources.get(of)
        if source is not None:
            self.rewriter.sources[value] = source.then(("rows", (first, first + count)))

    def view(self, node: Node, reads: RowReads, start: int, end: int) -> str:
        """Return the value that has rows `start` to `end` of an input of a node."""
        source = node.inputs[reads.input]
        buffer = self.buffers.get(source)
        if buffer is not None:
            return self.rows_of(buffer, start, end)
        height, row = self.graph.types[source].shape[1], self.graph.types[source].count
        row //= height
        inside = max(start, 0), min(end, height)
        whole = self.outside_rows(source, *inside, row)
        if (start, end) == inside:
            return whole
        # At the image's edge: another buffer, with the rows and the padding.
        edge = f"edge of {source} {start}"
        assert reads.fill is not None
        pieces, dtype = [], self.graph.types[source].dtype
        for first, last in ((start, inside[0]), inside, (inside[1], end)):
            if first < last:
                piece = self.rows_value(source, f"{source} edge", last - first, (edge, (first - start) * row))
                pieces.append(piece)
                if (first, last) == inside:
                    self.copy(node, "copy", whole, piece)
                else:
                    self.loop(node, "pad", (), piece, const(reads.fill, dtype))
        return self.joined(source, pieces, end - start, (edge, 0))

    def outside_rows(self, source: str, first: int, last: int, row: int) -> str:
        """Return a view of rows of a value that was there before."""
        kind = self.graph.types[source]
        view = self.rewriter.value(f"{source} rows {first}", kind.dtype, (1, last - first, *kind.shape[2:]))
        attrs = View(first=first * row)
        self.rewriter.nodes.append(Node("view", self.rewriter.unique(f"view {view}"), (source,), (view,), attrs))
        self.tell_source(source, view, first, last - first)
        return view

    def rows_of(self, buffer: _LineBuffer, start: int, end: int) -> str:
        """Return a view of rows that a buffer holds."""
        assert buffer.base <= start and end <= buffer.top
        held = [value for first, last, value in buffer.contents if first < end and last > start]
        place = buffer.free + buffer.top - end if buffer.is_turned else start - buffer.base
        address = f"line buffer of {buffer.value}", place * buffer.row
        view = self.joined(buffer.value, held, end - start, address)
        if (end - start == 1 or not buffer.is_turned) and start >= 0 and end <= buffer.height:
            self.tell_source(buffer.value, view, start, end - start)
        return view

    def joined(self, like: str, pieces: Sequence[str], count: int, address: tuple[str, int]) -> str:
        view = self.rows_value(like, f"{like} rows", count, address)
        self.rewriter.nodes.append(Node("view", self.rewriter.unique(f"view {view}"), tuple(pieces), (view,), View()))
        return view

    def copy(self, node: Node, label: str, source: str, to: str) -> None:
        kind = self.rewriter.types[to]
        self.loop(node, label, (source,), to, _element(kind.dtype, len(kind.shape)))

    def loop(self, node: Node, label: str, inputs: Sequence[str], output: str, expr: Expr) -> None:
        """Append a loop that has to do with the rows of a node."""
        number = self.moved.get((label, node.name), 0)
        self.moved[label, node.name] = number + 1
        whole = f"{label}_{node.name}"
        name = f"{whole}_{number}" if number else whole
        attrs = Loop(expr=expr, label=f"{label} rows")
        self.rewriter.nodes.append(Node("loop", name, tuple(inputs), (output,), attrs, node.origins, whole))


@functools.cache
def _element(dtype: DType, rank: int) -> Expr:
    return load(0, dtype, identity(rank))


def with_line_buffers(
    graph: Graph,
    region: Region,
    chunk: Mapping[str, int],
    rows: Mapping[str, int],
    turned: frozenset[str] | None = None,
) -> Graph | None:
    """Return a graph that computes a region a few rows at a time; None: rows would begin within a word.

    Args:
        graph: its nodes in the order of execution, which stays.
        region: the nodes.
        chunk: how many rows of each node's result are made at a time, by the node's name.
        rows: how many of each value have to be at hand at once (mtool.compiler.plan.region).
        turned: values whose newest row comes first in their line buffer (of all, rows are moved as soon as they can be,
            so that the place of the newest is free until the next one); None: none, and rows are moved only when they
            have to be.
    """
    made = _RegionBuilder(graph, region, chunk, rows, turned)
    made.run()
    inside = {node.name for node in region.nodes}
    first = next(number for number, node in enumerate(graph.nodes) if node.name in inside)
    before, after = graph.nodes[:first], graph.nodes[first + len(region.nodes) :]
    rewriter = made.rewriter
    rewriter.nodes = [*before, *rewriter.nodes, *after]
    finished = rewriter.finish()
    used = {value: address for value, address in made.addresses.items() if value in finished.types}
    finished = replace(finished, line_buffers={**graph.line_buffers, **used})
    lies, anywhere = aliases(finished), _of_loops(finished) if graph.stream is not None else frozenset[str]()
    return None if any(offset % ALIGNMENT for value, (_, offset) in lies.items() if value not in anywhere) else finished


def _of_loops(graph: Graph) -> frozenset[str]:
    """Return the values that only loops work with: element by element, so that they may begin at any element."""
    others = [node for node in graph.nodes if not isinstance(node.attrs, View | Loop)]
    return frozenset(graph.types) - {value for node in others for value in (*node.inputs, *node.outputs)}


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
        grown: the operators that may have constants larger than their weights (plan.pools.for_time); None: all.
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
