"""A part of a graph that is computed a few rows at a time, and how many rows of each value that takes at once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from mtool.base.option_values import Io
from mtool.compiler.ir import Attributes, Expr, Graph, Node
from mtool.compiler.ir.expr import axis
from mtool.compiler.ir.node import expression_of
from mtool.compiler.kernels.registry import SPECIFICATIONS
from mtool.compiler.kernels.specification import Fill, RowReads
from mtool.compiler.plan.memory import aliases

Readers = tuple[tuple[Node, RowReads], ...]


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes of a graph that follow each other there, and how each reads rows; only the last one's result goes out.

    `readers` are who reads each value, and how.
    """

    nodes: tuple[Node, ...]
    reads: Mapping[str, tuple[RowReads, ...]]
    readers: Mapping[str, Readers] = field(init=False)

    def __post_init__(self) -> None:
        readers: dict[str, list[tuple[Node, RowReads]]] = {}
        for node in self.nodes:
            for reads in self.reads[node.name]:
                readers.setdefault(node.inputs[reads.input], []).append((node, reads))
        object.__setattr__(self, "readers", {value: tuple(found) for value, found in readers.items()})

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


class Progress:
    """The progress of a region that is computed chunk by chunk: the rows of each node that are done."""

    def __init__(self, graph: Graph, region: Region) -> None:
        self.region = region
        self.done = {node.name: 0 for node in region.nodes}
        self.height = {node.outputs[0]: graph.types[node.outputs[0]].shape[1] for node in region.nodes}

    def wanted(self, value: str, top: int) -> int:
        """Return the first row of a value that somebody has yet to read; `top` if nobody has."""
        starts = [
            reads.rows(self.done[node.name], 1)[0]
            for node, reads in self.region.readers.get(value, ())
            if self.done[node.name] < self.height[node.outputs[0]]
        ]
        return min(starts, default=top)


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
    last = region.nodes[-1]
    while measure.progress.done[last.name] < measure.progress.height[region.result]:
        measure.make(last)
        if measure.live_bytes >= limit:
            return None
    return RegionMemory(measure.rows, measure.live_bytes)


class _Measure:
    """Goes through the chunks of a region in the order in which they will be made, and counts rows."""

    def __init__(self, graph: Graph, region: Region, chunk: Mapping[str, int], io: Io) -> None:
        self.region, self.chunk = region, chunk
        self.progress = Progress(graph, region)
        self.producer = {node.outputs[0]: node for node in region.nodes}
        self.padding = {value: region.fill(value) or (0, 0, None) for value in self.producer}
        self.top = {value: -above for value, (above, _, _) in self.padding.items()}
        self.rows = dict.fromkeys(self.producer, 0)
        self.live_bytes = 0
        if io == "arena":
            lies = aliases(graph)
            outside = {*graph.constants, *([graph.stream.value] if graph.stream else [])}
            sources = [v for v in region.readers if v not in self.top and lies.get(v, (v, 0))[0] not in outside]
            self.top |= {value: graph.types[value].shape[1] for value in sources}
        self.row_bytes = {value: graph.types[value].bytes // graph.types[value].shape[1] for value in self.top}
        if io == "external":  # where the result may lie too, as what comes from outside the region
            self.row_bytes[region.result] = 0
        self.live = dict.fromkeys(self.top, 0)  # bytes of each value, as of when `outdated` was last empty
        self.outdated = {*self.top}

    def make(self, node: Node) -> None:
        """Count the next rows of a node, and what has to be made before."""
        value, first = node.outputs[0], self.progress.done[node.name]
        count = min(self.chunk[node.name], self.progress.height[value] - first)
        for one in self.region.reads[node.name]:
            if node.inputs[one.input] in self.producer:
                self.ensure(node.inputs[one.input], one.rows(first, count)[1])
        self.append(value, count)
        self.progress.done[node.name] = first + count
        self.outdated.update(value for value in node.inputs if value in self.top)

    def ensure(self, value: str, end: int) -> None:
        above, below, _ = self.padding[value]
        if self.top[value] < 0:
            self.append(value, above)
        while self.top[value] < end:
            if self.top[value] < self.progress.height[value]:
                self.make(self.producer[value])
            else:
                self.append(value, below)

    def append(self, value: str, count: int) -> None:
        """Count rows that are written to a value's end."""
        top = self.top[value]
        keep = min(max(self.progress.wanted(value, top), -self.padding[value][0]), top)
        self.rows[value] = max(self.rows[value], top - keep + count)
        self.top[value] = top + count
        for each in (*self.outdated, value):
            self.live[each] = self.live_rows(each, self.top[each]) * self.row_bytes[each]
        self.outdated.clear()
        self.live_bytes = max(self.live_bytes, sum(self.live.values()))

    def live_rows(self, value: str, top: int) -> int:
        """Return how many rows of a value, of those before `top`, some reader has yet to read; at least so many."""
        if value == self.region.result:
            return top
        live = 0
        for node, reads in self.region.readers.get(value, ()):
            done, height = self.progress.done[node.name], self.progress.height[node.outputs[0]]
            if done < height:
                start, end = reads.rows(done, height - done if reads.stride <= reads.reach else 1)
                live = max(live, min(end, top) - max(start, -self.padding.get(value, (0, 0, None))[0]))
        return live


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
    for load in (part for part in expr.walk() if part.op == "load"):
        kind = graph.types[node.inputs[load.value]].shape
        own = len(kind) == 4 and load.args[1] == axis(1)
        if own and (kind[1] != out[1] or kind[0] != 1 or node.inputs[load.value] in graph.constants):
            return None
        rest = [arg for place, arg in enumerate(load.args) if not (own and place == 1)]
        if any(part == axis(1) for arg in rest for part in arg.walk()):
            return None
        if by_row.setdefault(load.value, own) != own:
            return None
    if any(part == axis(1) or part.op == "reduce" for part in expr.walk(indices=False)):
        return None
    return tuple(sorted(number for number, own in by_row.items() if own))


def attributes_of_rows(node: Node, graph: Graph, count: int) -> Attributes:
    """Return the attributes of a node that computes `count` rows, where padding rows lie in its input already."""
    row_wise = SPECIFICATIONS[node.op].row_wise
    assert row_wise is not None, f"{node.name} can't be computed by rows"
    return row_wise.attributes(node, graph, count)
