"""Compute a part of a graph a few rows at a time, in line buffers that move down the images.

Nothing is computed twice. The result is made in chunks of rows; before each, every operator before it makes as many
rows as are missing. It writes them into its line buffer, which holds as many rows as its readers have yet to read:
before the next rows are made, those are moved to the buffer's beginning. Padding rows are written into the buffer as
well, so that all chunks of an operator are alike and share one C function.

Sources: line buffers of image pipelines; patch-based inference of MCUNetV2 (arXiv 2110.15352) without the overlap
that is computed again.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mtool.compiler.ir import DType, Expr, Graph, Node
from mtool.compiler.ir.expr import const, identity, load
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.ir.node import View
from mtool.compiler.kernels.loop.node import Loop
from mtool.compiler.kernels.specification import Fill, RowReads
from mtool.compiler.plan.memory import ALIGNMENT, aliases
from mtool.compiler.plan.region import Progress, Region
from mtool.compiler.plan.rows import attributes_of_rows


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
