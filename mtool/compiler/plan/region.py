"""A region of a graph that is computed a few rows at a time: the order of rows, the memory, and the new graph.

Nothing is computed twice. The result is computed in chunks of rows; before each, every earlier operator computes the
rows that are missing. It writes them into its line buffer, which holds the rows that its readers have yet to read:
before the next rows are computed, these are moved to the start of the buffer. Padding rows are written into the buffer
as well, so that all chunks of an operator are alike and share one C function.

Sources: line buffers of image pipelines; patch-based inference of MCUNetV2 (arXiv 2110.15352), without computing the
overlap again.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mtool.base.frozen import frozen
from mtool.base.option_values import Io
from mtool.compiler.ir import Attributes, DType, Expr, Graph, Node
from mtool.compiler.ir.expr import axis, const, identity, load
from mtool.compiler.ir.graph import Rewriter
from mtool.compiler.ir.node import View, expression_of
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.registry import SPECIFICATIONS
from mtool.compiler.kernels.specification import Fill, RowReads
from mtool.compiler.plan.memory import ALIGNMENT, aliases

Readers = tuple[tuple[Node, RowReads], ...]


@frozen
class Region:
    """Consecutive nodes of a graph, and the rows that each reads; only the last one's result is read outside.

    `readers` are the nodes that read each value, and the rows they read.
    """

    nodes: tuple[Node, ...]
    reads: Mapping[str, tuple[RowReads, ...]]
    readers: Mapping[str, Readers] = field(init=False)

    def __post_init__(self) -> None:
        readers: dict[str, Readers] = {}
        for node in self.nodes:
            for reads in self.reads[node.name]:
                value = node.inputs[reads.input]
                readers[value] = (*readers.get(value, ()), (node, reads))
        object.__setattr__(self, "readers", readers)

    @property
    def result(self) -> str:
        """The value that the region computes."""
        return self.nodes[-1].outputs[0]

    def fill(self, value: str) -> tuple[int, int, Fill] | None:
        """Return the padding rows above and below a value that readers need, and their contents; None: they differ."""
        padding = [reads for _, reads in self.readers.get(value, ()) if reads.fill is not None]
        if len({reads.fill for reads in padding}) > 1:
            return None
        above, below = (max((getattr(r, side) for r in padding), default=0) for side in ("pad", "after"))
        return above, below, padding[0].fill if padding else None


class RowOrder:
    """Walks through the rows of a region in the order in which they are computed.

    `chunk` is the number of rows of each node's result that are computed at a time, by the node's name; `done` is the
    number of rows that each node has computed; `top` is one more than the last available row of each value. Padding
    rows above the image have negative numbers.
    """

    def __init__(self, graph: Graph, region: Region, chunk: Mapping[str, int]) -> None:
        self.graph, self.region, self.chunk = graph, region, chunk
        self.producer = {node.outputs[0]: node for node in region.nodes}
        self.padding = {value: region.fill(value) or (0, 0, None) for value in self.producer}
        self.height = {value: graph.types[value].shape[1] for value in self.producer}
        self.top = {value: -above for value, (above, _, _) in self.padding.items()}
        self.done = {node.name: 0 for node in region.nodes}

    @property
    def is_finished(self) -> bool:
        """Whether all rows of the result are computed."""
        return self.done[self.region.nodes[-1].name] == self.height[self.region.result]

    def make(self, node: Node) -> None:
        """Compute the next rows of a node, after the rows that they depend on."""
        first = self.done[node.name]
        count = min(self.chunk[node.name], self.height[node.outputs[0]] - first)
        for reads in self.region.reads[node.name]:
            self.ensure(node.inputs[reads.input], reads.rows(first, count)[1])
        self.write(node, first, count)
        self.done[node.name] = first + count

    def ensure(self, value: str, end: int) -> None:
        """Compute rows of a value up to row `end`, padding included; values from outside the region exist already."""
        if value not in self.producer:
            return
        above, below, _ = self.padding[value]
        if self.top[value] < 0:
            self.pad(value, above)
        while self.top[value] < end:
            if self.top[value] < self.height[value]:
                self.make(self.producer[value])
            else:
                self.pad(value, below)

    def first_needed(self, value: str) -> int:
        """Return the first available row of a value that a reader has yet to read; the next row if there is none."""
        top = self.top[value]
        starts = [
            reads.rows(self.done[node.name], 1)[0]
            for node, reads in self.region.readers.get(value, ())
            if self.done[node.name] < self.height[node.outputs[0]]
        ]
        return min(max(min(starts, default=top), -self.padding[value][0]), top)

    def write(self, node: Node, first: int, count: int) -> None:
        """Append rows of a node to its value."""
        raise NotImplementedError

    def pad(self, value: str, count: int) -> None:
        """Append padding rows to a value."""
        raise NotImplementedError


@frozen
class RegionMemory:
    """The memory that a region needs when it is computed chunk by chunk.

    rows: for each value, the number of rows that must be available at once, including padding.
    live_bytes: a lower bound of the arena: the most bytes that are live at one step.
    """

    rows: Mapping[str, int]
    live_bytes: int


def region_memory(
    graph: Graph, region: Region, chunk: Mapping[str, int], io: Io, limit: float = math.inf
) -> RegionMemory | None:
    """Return the memory that a region needs, without building it; None: `limit` bytes or more are live.

    Args:
        graph: the region's graph.
        region: the nodes.
        chunk: the rows of each node's result that are computed at a time, by the node's name.
        io: whether the model's inputs and outputs lie in the arena.
        limit: stop as soon as this number of bytes is live.
    """
    measure = _Measure(graph, region, chunk, io)
    while not measure.is_finished:
        measure.make(region.nodes[-1])
        if measure.live_bytes >= limit:
            return None
    return RegionMemory(measure.rows, measure.live_bytes)


class _Measure(RowOrder):
    """Counts the rows of a region that are available at a time."""

    def __init__(self, graph: Graph, region: Region, chunk: Mapping[str, int], io: Io) -> None:
        super().__init__(graph, region, chunk)
        self.rows = dict.fromkeys(self.producer, 0)
        self.live_bytes = 0
        if io == "arena":
            lies = aliases(graph)
            outside = {*graph.constants, *([graph.stream.value] if graph.stream else [])}
            sources = [v for v in region.readers if v not in self.top and lies.root(v) not in outside]
            self.top |= {value: graph.types[value].shape[1] for value in sources}
        self.row_bytes = {value: graph.types[value].bytes // graph.types[value].shape[1] for value in self.top}
        if io == "external":  # the result may lie there too, like values from outside the region
            self.row_bytes[region.result] = 0
        self.live = dict.fromkeys(self.top, 0)  # bytes of each value, as of when `outdated` was last empty
        self.outdated = {*self.top}

    def write(self, node: Node, first: int, count: int) -> None:
        self.pad(node.outputs[0], count)
        self.outdated.update(value for value in node.inputs if value in self.top)

    def pad(self, value: str, count: int) -> None:
        """Count padding rows that are appended to a value."""
        self.rows[value] = max(self.rows[value], self.top[value] - self.first_needed(value) + count)
        self.top[value] += count
        for changed in (*self.outdated, value):
            self.live[changed] = self.live_rows(changed, self.top[changed]) * self.row_bytes[changed]
        self.outdated.clear()
        self.live_bytes = max(self.live_bytes, sum(self.live.values()))

    def live_rows(self, value: str, top: int) -> int:
        """Return how many rows of a value before `top` some reader has yet to read (a lower bound)."""
        if value == self.region.result:
            return top
        live, lowest = 0, -self.padding[value][0] if value in self.padding else 0
        for node, reads in self.region.readers.get(value, ()):
            done, height = self.done[node.name], self.height[node.outputs[0]]
            if done < height:
                start, end = reads.rows(done, height - done if reads.stride <= reads.reach else 1)
                live = max(live, min(end, top) - max(start, lowest))
        return live


@dataclass(slots=True)
class _LineBuffer:
    """The available rows of a value, from row `base` on.

    `row` is the number of elements of a row, `rows` the capacity. With `is_turned` the newest row comes first, the
    others behind it, and `free` rows before it. `contents` are the values that make up the rows, by their first row
    and the one after the last.
    """

    value: str
    row: int
    rows: int
    base: int
    is_turned: bool
    free: int = 0
    contents: list[tuple[int, int, str]] = field(default_factory=list)

    def address(self, place: int) -> tuple[str, int]:
        """Return a row's buffer and its first element there."""
        return f"line buffer of {self.value}", place * self.row


class _Builder(RowOrder):
    """Builds the nodes of a region chunk by chunk, with line buffers of `rows` rows.

    The line buffers of the values `turned` have their newest row first; if it is None, rows are moved as late as
    possible.
    """

    def __init__(
        self,
        graph: Graph,
        region: Region,
        chunk: Mapping[str, int],
        rows: Mapping[str, int],
        turned: frozenset[str] | None,
    ) -> None:
        super().__init__(graph, region, chunk)
        self.is_early = turned is not None
        self.flipped: dict[str, str] = {}  # weights with rows in the order of a turned buffer
        self.rewriter = Rewriter(graph)
        self.addresses: dict[str, tuple[str, int]] = {}
        self.parts: list[str] = []  # parts of the result
        self.moved: dict[tuple[str, str], int] = {}  # the number of copies of a node's rows and of paddings
        self.buffers = {
            value: _LineBuffer(
                value, graph.types[value].count // height, rows[value], self.top[value], value in (turned or ())
            )
            for value, height in self.height.items()
        }

    def run(self) -> None:
        """Build the result."""
        last = self.region.nodes[-1]
        while not self.is_finished:
            self.make(last)
        self.view_node(self.parts, self.region.result, f"rows of {last.name}")
        self.addresses[self.region.result] = self.region.result, 0

    def make(self, node: Node) -> None:
        super().make(node)
        if self.is_early:
            for value in dict.fromkeys((*node.inputs, node.outputs[0])):
                self.make_way(value)

    def write(self, node: Node, first: int, count: int) -> None:
        out, inputs = node.outputs[0], list(node.inputs)
        for reads in self.region.reads[node.name]:
            source = node.inputs[reads.input]
            inputs[reads.input] = self.view(node, reads, *reads.rows(first, count))
            if source in self.buffers and self.buffers[source].is_turned:
                inputs = self.with_flipped_weights(inputs, reads)
        buffer = self.buffers[out]
        address = (out, first * buffer.row) if out == self.region.result else self.room(buffer, count)
        value = self.chunk_of(buffer, f"{out} rows", first, count, address)
        parts = -(-self.height[out] // self.chunk[node.name])
        attrs = attributes_of_rows(node, self.graph, count)
        name = node.name if first == 0 else f"{node.name}_row{first}"
        computed = Node(node.op, name, tuple(inputs), (value,), attrs, node.origins, node.name, parts)
        self.rewriter.nodes.append(computed)
        if out == self.region.result:
            self.parts.append(value)

    def make_way(self, value: str) -> None:
        """Move a buffer's rows that are still needed away from where the next rows are written."""
        buffer, top = self.buffers.get(value), self.top.get(value, -1)
        if buffer is None or value == self.region.result or top < 0 or not buffer.contents:
            return
        ends = [
            reads.rows(self.done[reader.name], min(self.chunk[reader.name], remaining))[1]
            for reader, reads in self.region.readers.get(value, ())
            if (remaining := self.height[reader.outputs[0]] - self.done[reader.name]) > 0
        ]
        if not ends or min(ends) <= top:
            return  # no reader is left, or one can go on with the available rows
        remaining = self.height[value] - top
        count = min(self.chunk[self.producer[value].name], remaining) if remaining > 0 else self.padding[value][1]
        if top - self.first_needed(value) + count <= buffer.rows:
            self.room(buffer, count)

    def with_flipped_weights(self, inputs: list[str], reads: RowReads) -> list[str]:
        """Return a node's inputs with flipped weights if it reads a turned buffer, whose rows are in reverse order."""
        if reads.reach == 1 or len(inputs) < 2 or inputs[1] not in self.rewriter.constants:
            return inputs
        weights = inputs[1]
        if weights not in self.flipped:
            data = np.ascontiguousarray(self.rewriter.constants[weights][:, ::-1])
            self.flipped[weights] = self.rewriter.constant(f"{weights} flipped", data)
        return [inputs[0], self.flipped[weights], *inputs[2:]]

    def room(self, buffer: _LineBuffer, count: int) -> tuple[str, int]:
        """Make room for `count` rows at the end of a buffer; return their address in it, in elements."""
        top = self.top[buffer.value]
        if buffer.is_turned:
            if buffer.free < count:
                self.shift(buffer, count)
            return buffer.address(buffer.free - count)
        if top + count - buffer.base > buffer.rows:
            self.shift(buffer)
        return buffer.address(top - buffer.base)

    def shift(self, buffer: _LineBuffer, free: int = 0) -> None:
        """Move the rows that are still needed to the start of the buffer; in a turned one, behind `free` rows.

        There they are moved one by one, the last one first: C libraries are slow at moves that overlap upwards.
        """
        keep, top, before = self.first_needed(buffer.value), self.top[buffer.value], len(buffer.contents)
        for first, end in [(row, row + 1) for row in range(keep, top)] if buffer.is_turned else [(keep, top)]:
            if first < end:
                source = self.rows_of(buffer, first, end)
                address = buffer.address(free + top - end if buffer.is_turned else 0)
                target = self.chunk_of(buffer, f"{buffer.value} kept", first, end - first, address)
                self.copy(self.producer[buffer.value], "keep", source, target)
        buffer.contents = buffer.contents[before:]
        buffer.base, buffer.free = keep, free

    def pad(self, value: str, count: int) -> None:
        buffer, fill, dtype = self.buffers[value], self.padding[value][2], self.graph.types[value].dtype
        assert fill is not None
        address = self.room(buffer, count)
        padding = self.chunk_of(buffer, f"{value} padding", self.top[value], count, address)
        self.loop(self.producer[value], "pad", (), padding, const(fill, dtype))

    def chunk_of(self, buffer: _LineBuffer, stem: str, first: int, count: int, address: tuple[str, int]) -> str:
        """Add a value of `count` rows from `first` on, and record it in the buffer."""
        value, end = self.rows_value(buffer.value, stem, count, address), first + count
        buffer.contents.append((first, end, value))
        if end > self.top[buffer.value]:
            self.top[buffer.value], buffer.free = end, buffer.free - count
        self.tell_source_of(buffer, value, first, end)
        return value

    def rows_value(self, like: str, stem: str, count: int, address: tuple[str, int]) -> str:
        kind = self.graph.types[like]
        value = self.rewriter.value(f"{stem} {len(self.addresses)}", kind.dtype, (1, count, *kind.shape[2:]))
        self.addresses[value] = address[0], address[1] * kind.dtype.size
        return value

    def tell_source_of(self, buffer: _LineBuffer, value: str, first: int, end: int) -> None:
        is_in_order = end - first == 1 or not buffer.is_turned
        if is_in_order and first >= 0 and end <= self.height[buffer.value]:
            self.tell_source(buffer.value, value, first, end)

    def tell_source(self, of: str, value: str, first: int, end: int) -> None:
        source = self.graph.sources.get(of)
        if source is not None:
            self.rewriter.sources[value] = source.then(("rows", (first, end)))

    def view(self, node: Node, reads: RowReads, start: int, end: int) -> str:
        """Return the value with rows `start` to `end` of a node's input."""
        source = node.inputs[reads.input]
        buffer = self.buffers.get(source)
        if buffer is not None:
            return self.rows_of(buffer, start, end)
        kind = self.graph.types[source]
        height, row = kind.shape[1], kind.count // kind.shape[1]
        first, last = max(start, 0), min(end, height)
        whole = self.rewriter.value(f"{source} rows {first}", kind.dtype, (1, last - first, *kind.shape[2:]))
        self.view_node([source], whole, f"view {whole}", View(first=first * row))
        self.tell_source(source, whole, first, last)
        if (start, end) == (first, last):
            return whole
        # At the image's edge: another buffer, with the rows and the padding.
        edge = f"edge of {source} {start}"
        assert reads.fill is not None
        pieces = []
        for begin, stop in ((start, first), (first, last), (last, end)):
            if begin < stop:
                piece = self.rows_value(source, f"{source} edge", stop - begin, (edge, (begin - start) * row))
                pieces.append(piece)
                if (begin, stop) == (first, last):
                    self.copy(node, "copy", whole, piece)
                else:
                    self.loop(node, "pad", (), piece, const(reads.fill, kind.dtype))
        return self.joined(source, pieces, end - start, (edge, 0))

    def rows_of(self, buffer: _LineBuffer, start: int, end: int) -> str:
        """Return a view of rows that a buffer holds."""
        top = self.top[buffer.value]
        assert buffer.base <= start and end <= top
        held = [value for first, last, value in buffer.contents if first < end and last > start]
        address = buffer.address(buffer.free + top - end if buffer.is_turned else start - buffer.base)
        view = self.joined(buffer.value, held, end - start, address)
        self.tell_source_of(buffer, view, start, end)
        return view

    def joined(self, like: str, pieces: Sequence[str], count: int, address: tuple[str, int]) -> str:
        view = self.rows_value(like, f"{like} rows", count, address)
        self.view_node(pieces, view, f"view {view}")
        return view

    def view_node(self, inputs: Sequence[str], output: str, stem: str, attrs: View | None = None) -> None:
        self.rewriter.nodes.append(Node("view", self.rewriter.unique(stem), tuple(inputs), (output,), attrs or View()))

    def copy(self, node: Node, label: str, source: str, to: str) -> None:
        kind = self.rewriter.types[to]
        self.loop(node, label, (source,), to, _element(kind.dtype, len(kind.shape)))

    def loop(self, node: Node, label: str, inputs: Sequence[str], output: str, expr: Expr) -> None:
        """Append a loop that copies or pads rows for a node."""
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
        graph: the graph, with its nodes in execution order, which is kept.
        region: the nodes.
        chunk: the rows of each node's result that are computed at a time, by the node's name.
        rows: the number of rows of each value that must be available at once (`region_memory`).
        turned: values whose newest row comes first in their line buffer (rows of all buffers are then moved as early as
            possible, so that the place of the newest is free until the next one); None: none, and rows are moved as
            late as possible.
    """
    builder = _Builder(graph, region, chunk, rows, turned)
    builder.run()
    first = graph.nodes.index(region.nodes[0])
    before, after = graph.nodes[:first], graph.nodes[first + len(region.nodes) :]
    rewriter = builder.rewriter
    rewriter.nodes = [*before, *rewriter.nodes, *after]
    finished = rewriter.finish()
    used = {value: address for value, address in builder.addresses.items() if value in finished.types}
    finished = replace(finished, line_buffers={**graph.line_buffers, **used})
    anywhere = _of_loops(finished) if graph.stream is not None else frozenset[str]()
    misplaced = (value for value, (_, offset) in aliases(finished).items() if offset % ALIGNMENT)
    return finished if anywhere.issuperset(misplaced) else None


def _of_loops(graph: Graph) -> frozenset[str]:
    """Return the values that only loops read and write, element by element: they may begin at any element."""
    others = [node for node in graph.nodes if not isinstance(node.attrs, View | Loop)]
    return frozenset(graph.types) - {value for node in others for value in (*node.inputs, *node.outputs)}


# The rows of its inputs that an operator reads when it is computed a few rows at a time.


def row_reads(node: Node, graph: Graph) -> tuple[RowReads, ...] | None:
    """Return the rows that a node reads of its inputs with rows; None: it can't be computed a few rows at a time.

    Tensors are [1, H, W, C]; their rows are contiguous.
    """
    if len(node.outputs) != 1 or node.whole:
        return None
    out = graph.types[node.outputs[0]].shape
    if len(out) != 4 or out[0] != 1 or out[1] < 2:
        return None
    row_wise = SPECIFICATIONS[node.op].row_wise
    reads = row_wise.reads(node, graph) if row_wise else None
    expr = expression_of(node)
    if reads is None or expr is None:
        return reads
    operands = _operands(expr, node, graph, out)
    inputs = {read.input for read in reads}
    if operands is None or inputs & {*operands}:
        return None
    return (*reads, *(RowReads(number) for number in operands))


def _operands(expr: Expr, node: Node, graph: Graph, out: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the inputs of which an expression reads the row that it computes; None: it reads others, or uses its row.

    Inputs that are read as a whole, whatever the row, are not included.
    """
    by_row: dict[int, bool] = {}
    for read in (part for part in expr.walk() if part.op == "load"):
        kind = graph.types[node.inputs[read.value]].shape
        same_row = len(kind) == 4 and read.args[1] == axis(1)
        if same_row and (kind[1] != out[1] or kind[0] != 1 or node.inputs[read.value] in graph.constants):
            return None
        rest = [arg for place, arg in enumerate(read.args) if not (same_row and place == 1)]
        if any(part == axis(1) for arg in rest for part in arg.walk()):
            return None
        if by_row.setdefault(read.value, same_row) != same_row:
            return None
    if any(part == axis(1) or part.op == "reduce" for part in expr.walk(indices=False)):
        return None
    return tuple(sorted(number for number, same_row in by_row.items() if same_row))


def attributes_of_rows(node: Node, graph: Graph, count: int) -> Attributes:
    """Return the attributes of a node that computes `count` rows, with padding rows already in its input."""
    row_wise = SPECIFICATIONS[node.op].row_wise
    assert row_wise is not None, f"{node.name} can't be computed by rows"
    return row_wise.attributes(node, graph, count)
