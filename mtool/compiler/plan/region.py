"""A region of a graph that is computed a few rows at a time: in which order, in how much memory, and the graph of it.

Nothing is computed twice. The result is made in chunks of rows; before each, every operator before it makes as many
rows as are missing. It writes them into its line buffer, which holds as many rows as its readers have yet to read:
before the next rows are made, those are moved to the buffer's beginning. Padding rows are written into the buffer
as well, so that all chunks of an operator are alike and share one C function.

Sources: line buffers of image pipelines; patch-based inference of MCUNetV2 (arXiv 2110.15352) without the overlap
that is computed again.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

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


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes of a graph that follow each other there, and how each reads rows; only the last one's result goes out.

    `readers` are the nodes that read each value, and how.
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
        """The value that the region makes."""
        return self.nodes[-1].outputs[0]

    def fill(self, value: str) -> tuple[int, int, Fill] | None:
        """Return how many padding rows readers want above and below a value, and what they hold; None: it differs."""
        padding = [reads for _, reads in self.readers.get(value, ()) if reads.fill is not None]
        if len({reads.fill for reads in padding}) > 1:
            return None
        above, below = (max((getattr(r, side) for r in padding), default=0) for side in ("pad", "after"))
        return above, below, padding[0].fill if padding else None


class RowOrder:
    """Goes through the rows of a region in the order in which they are made.

    `chunk` is how many rows of each node's result are made at a time, by the node's name; `done` are the rows of each
    node that are made, `top` is the row of each value after the last that is at hand. Padding rows above count from
    below 0 on.
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
        """Whether all rows of the result are made."""
        return self.done[self.region.nodes[-1].name] == self.height[self.region.result]

    def make(self, node: Node) -> None:
        """Make the next rows of a node, and before them what they are made of."""
        first = self.done[node.name]
        count = min(self.chunk[node.name], self.height[node.outputs[0]] - first)
        for one in self.region.reads[node.name]:
            self.ensure(node.inputs[one.input], one.rows(first, count)[1])
        self.write(node, first, count)
        self.done[node.name] = first + count

    def ensure(self, value: str, end: int) -> None:
        """Make rows of a value until row `end` is reached, padding included; a value from outside is there."""
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

    def wanted(self, value: str) -> int:
        """Return the first row at hand of a value that a reader has yet to read; the next one if none has."""
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


@dataclass(frozen=True, slots=True)
class RegionMemory:
    """The memory that a region needs when it is computed chunk by chunk.

    rows: of each value, how many have to be at hand at once, padding rows counted.
    live_bytes: no arena can be smaller, as so many bytes are read or written at some step or wanted after it.
    """

    rows: Mapping[str, int]
    live_bytes: int


def region_memory(
    graph: Graph, region: Region, chunk: Mapping[str, int], io: Io, limit: float = math.inf
) -> RegionMemory | None:
    """Return the memory that a region needs, without making it; None: `limit` bytes or more are live.

    Args:
        graph: the region's.
        region: the nodes.
        chunk: how many rows of each node's result are made at a time, by the node's name.
        io: whether the model's inputs and outputs lie in the arena.
        limit: where that many bytes are live, the rest need not be known.
    """
    measure = _Measure(graph, region, chunk, io)
    while not measure.is_finished:
        measure.make(region.nodes[-1])
        if measure.live_bytes >= limit:
            return None
    return RegionMemory(measure.rows, measure.live_bytes)


class _Measure(RowOrder):
    """Counts the rows of a region that are at hand at a time."""

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
        if io == "external":  # where the result may lie too, as what comes from outside the region
            self.row_bytes[region.result] = 0
        self.live = dict.fromkeys(self.top, 0)  # bytes of each value, as of when `outdated` was last empty
        self.outdated = {*self.top}

    def write(self, node: Node, first: int, count: int) -> None:
        self.pad(node.outputs[0], count)
        self.outdated.update(value for value in node.inputs if value in self.top)

    def pad(self, value: str, count: int) -> None:
        """Count rows that are written to a value's end."""
        self.rows[value] = max(self.rows[value], self.top[value] - self.wanted(value) + count)
        self.top[value] += count
        for each in (*self.outdated, value):
            self.live[each] = self.live_rows(each, self.top[each]) * self.row_bytes[each]
        self.outdated.clear()
        self.live_bytes = max(self.live_bytes, sum(self.live.values()))

    def live_rows(self, value: str, top: int) -> int:
        """Return how many rows of a value, of those before `top`, some reader has yet to read; at least so many."""
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
    """The rows of a value that are at hand, from row `base` on.

    `row` is a row's elements, `rows` how many there is room for. With `is_turned` its newest row comes first, the
    others behind it, and `free` rows before it. `contents` are the values that the rows consist of, by their first row
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
        """Return where a row lies: in which buffer, and from which element on."""
        return f"line buffer of {self.value}", place * self.row


class _Builder(RowOrder):
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
        super().__init__(graph, region, chunk)
        self.is_early = turned is not None
        self.flipped: dict[str, str] = {}  # weights whose rows are in the order of a turned buffer
        self.rewriter = Rewriter(graph)
        self.addresses: dict[str, tuple[str, int]] = {}
        self.parts: list[str] = []  # of the result
        self.moved: dict[tuple[str, str], int] = {}  # how often rows of a node were copied, or padding was written
        self.buffers = {
            value: _LineBuffer(
                value, graph.types[value].count // height, rows[value], self.top[value], value in (turned or ())
            )
            for value, height in self.height.items()
        }

    def run(self) -> None:
        """Make the result."""
        last = self.region.nodes[-1]
        while not self.is_finished:
            self.make(last)
        self.view_node(self.parts, self.region.result, f"rows of {last.name}")
        self.addresses[self.region.result] = self.region.result, 0

    def make(self, node: Node) -> None:
        super().make(node)
        if self.is_early:
            for each in dict.fromkeys((*node.inputs, node.outputs[0])):
                self.make_way(each)

    def write(self, node: Node, first: int, count: int) -> None:
        out, inputs = node.outputs[0], list(node.inputs)
        for one in self.region.reads[node.name]:
            source = node.inputs[one.input]
            inputs[one.input] = self.view(node, one, *one.rows(first, count))
            if source in self.buffers and self.buffers[source].is_turned:
                inputs = self.with_flipped_weights(inputs, one)
        buffer = self.buffers[out]
        address = (out, first * buffer.row) if out == self.region.result else self.room(buffer, count)
        value = self.chunk_of(buffer, f"{out} rows", first, count, address)
        parts = -(-self.height[out] // self.chunk[node.name])
        attrs = attributes_of_rows(node, self.graph, count)
        name = node.name if first == 0 else f"{node.name}_row{first}"
        made = Node(node.op, name, tuple(inputs), (value,), attrs, node.origins, node.name, parts)
        self.rewriter.nodes.append(made)
        if out == self.region.result:
            self.parts.append(value)

    def make_way(self, value: str) -> None:
        """Move the rows of a buffer that are wanted yet out of the place of the next ones, if more have to come."""
        buffer, top = self.buffers.get(value), self.top.get(value, -1)
        if buffer is None or value == self.region.result or top < 0 or not buffer.contents:
            return
        ends = [
            one.rows(self.done[reader.name], min(self.chunk[reader.name], left))[1]
            for reader, one in self.region.readers.get(value, ())
            if (left := self.height[reader.outputs[0]] - self.done[reader.name]) > 0
        ]
        if not ends or min(ends) <= top:
            return  # no reader reads on, or one can with what is there
        left = self.height[value] - top
        count = min(self.chunk[self.producer[value].name], left) if left > 0 else self.padding[value][1]
        if top - self.wanted(value) + count <= buffer.rows:
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

    def room(self, buffer: _LineBuffer, count: int) -> tuple[str, int]:
        """Make room for `count` rows at the end of a buffer; returns their address in it, in elements."""
        top = self.top[buffer.value]
        if buffer.is_turned:
            if buffer.free < count:
                self.shift(buffer, count)
            return buffer.address(buffer.free - count)
        if top + count - buffer.base > buffer.rows:
            self.shift(buffer)
        return buffer.address(top - buffer.base)

    def shift(self, buffer: _LineBuffer, free: int = 0) -> None:
        """Move the rows that are wanted yet to the beginning of the buffer; of a turned one, behind so many free rows.

        There they are moved one by one, the last one first: C libraries are slow where a move overlaps upwards.
        """
        keep, top, before = self.wanted(buffer.value), self.top[buffer.value], len(buffer.contents)
        for first, end in [(row, row + 1) for row in range(keep, top)] if buffer.is_turned else [(keep, top)]:
            if first < end:
                source = self.rows_of(buffer, first, end)
                address = buffer.address(free + top - end if buffer.is_turned else 0)
                kept = self.chunk_of(buffer, f"{buffer.value} kept", first, end - first, address)
                self.copy(self.producer[buffer.value], "keep", source, kept)
        buffer.contents = buffer.contents[before:]
        buffer.base, buffer.free = keep, free

    def pad(self, value: str, count: int) -> None:
        buffer, fill, dtype = self.buffers[value], self.padding[value][2], self.graph.types[value].dtype
        assert fill is not None
        address = self.room(buffer, count)
        padding = self.chunk_of(buffer, f"{value} padding", self.top[value], count, address)
        self.loop(self.producer[value], "pad", (), padding, const(fill, dtype))

    def chunk_of(self, buffer: _LineBuffer, stem: str, first: int, count: int, address: tuple[str, int]) -> str:
        """Add a value of `count` rows from `first` on, and note that the buffer holds it."""
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
        """Return the value that has rows `start` to `end` of an input of a node."""
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
        rows: how many of each value have to be at hand at once (`region_memory`).
        turned: values whose newest row comes first in their line buffer (of all, rows are moved as soon as they can be,
            so that the place of the newest is free until the next one); None: none, and rows are moved only when they
            have to be.
    """
    made = _Builder(graph, region, chunk, rows, turned)
    made.run()
    first = graph.nodes.index(region.nodes[0])
    before, after = graph.nodes[:first], graph.nodes[first + len(region.nodes) :]
    rewriter = made.rewriter
    rewriter.nodes = [*before, *rewriter.nodes, *after]
    finished = rewriter.finish()
    used = {value: address for value, address in made.addresses.items() if value in finished.types}
    finished = replace(finished, line_buffers={**graph.line_buffers, **used})
    anywhere = _of_loops(finished) if graph.stream is not None else frozenset[str]()
    misplaced = (value for value, (_, offset) in aliases(finished).items() if offset % ALIGNMENT)
    return finished if anywhere.issuperset(misplaced) else None


def _of_loops(graph: Graph) -> frozenset[str]:
    """Return the values that only loops work with: element by element, so that they may begin at any element."""
    others = [node for node in graph.nodes if not isinstance(node.attrs, View | Loop)]
    return frozenset(graph.types) - {value for node in others for value in (*node.inputs, *node.outputs)}


# The rows of its inputs that an operator reads when it is computed a few rows at a time.


def row_reads(node: Node, graph: Graph) -> tuple[RowReads, ...] | None:
    """Return what rows a node reads of the inputs that have rows; None: it can't be computed a few rows at a time.

    Tensors are [1, H, W, C]; their rows lie one after the other.
    """
    if len(node.outputs) != 1 or node.whole:
        return None
    out = graph.types[node.outputs[0]].shape
    if len(out) != 4 or out[0] != 1 or out[1] < 2:
        return None
    row_wise = SPECIFICATIONS[node.op].row_wise
    found = row_wise.reads(node, graph) if row_wise else None
    expr = expression_of(node)
    if found is None or expr is None:
        return found
    operands = _operands(expr, node, graph, out)
    taken = {reads.input for reads in found}
    if operands is None or taken & {*operands}:
        return None
    return (*found, *(RowReads(number) for number in operands))


def _operands(expr: Expr, node: Node, graph: Graph, out: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the inputs that an expression reads at the row that it computes; None: it reads others, or knows its row.

    Inputs that are read as a whole, whatever the row, are not among them.
    """
    by_row: dict[int, bool] = {}
    for read in (part for part in expr.walk() if part.op == "load"):
        kind = graph.types[node.inputs[read.value]].shape
        own = len(kind) == 4 and read.args[1] == axis(1)
        if own and (kind[1] != out[1] or kind[0] != 1 or node.inputs[read.value] in graph.constants):
            return None
        rest = [arg for place, arg in enumerate(read.args) if not (own and place == 1)]
        if any(part == axis(1) for arg in rest for part in arg.walk()):
            return None
        if by_row.setdefault(read.value, own) != own:
            return None
    if any(part == axis(1) or part.op == "reduce" for part in expr.walk(indices=False)):
        return None
    return tuple(sorted(number for number, own in by_row.items() if own))


def attributes_of_rows(node: Node, graph: Graph, count: int) -> Attributes:
    """Return the attributes of a node that computes `count` rows, where padding rows lie in its input already."""
    row_wise = SPECIFICATIONS[node.op].row_wise
    assert row_wise is not None, f"{node.name} can't be computed by rows"
    return row_wise.attributes(node, graph, count)
