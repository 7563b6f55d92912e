"""A streamed input: rows of an image are processed as they arrive, and the whole image is never in memory.

The head of the network, from the input on, is one region of row-wise execution (mtool.compiler.plan.partial),
which begins with an operator that takes a row from the caller. It is built in the order of rows: everything that a row
makes computable comes between the operator that takes it and the one that takes the next. The region extends as far
down the network as gives the smallest arena.
"""

import itertools
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mtool.base.errors import ModelError
from mtool.base.option_values import Partial
from mtool.compiler.ir import DType, Expr, Graph, Node
from mtool.compiler.ir.expr import Reduction, axis, identity, load
from mtool.compiler.ir.graph import Rewriter, rewritten
from mtool.compiler.ir.node import View
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.pool2d import Pool2d
from mtool.compiler.kernels.specification import RowReads
from mtool.compiler.plan.partial import (
    Candidate,
    Chooser,
    PartialCache,
    Tried,
    candidates_of,
    distinct,
    even_rows,
    is_closed,
    live_bytes,
    plan_of,
    with_regions,
)
from mtool.compiler.plan.plan import Plan
from mtool.compiler.plan.region import Region, row_reads
from mtool.compiler.plan.step import PlanOptions
from mtool.compiler.plan.whole import plan_whole

# Averages over a whole image as averages of bands of rows, which row-wise execution can compute one after the other.
#
# A global average reads all rows at once, so its whole input would be in memory. Sums over a few rows each are far
# smaller, and integers can be added in any order.


def with_split_averages(graph: Graph) -> Graph:
    """Return a graph in which integer averages over whole images are split into sums over bands of rows."""
    return rewritten(graph, _split, Pool2d)


def _band(node: Node, graph: Graph) -> int:
    """Return the rows of a band that minimize the bytes of a band and of all sums; 0: do not split."""
    attrs, kind = Pool2d.of(node), graph.types[node.inputs[0]]
    if attrs.kind != "average" or attrs.expr is None or kind.dtype.is_float or kind.shape[0] != 1:
        return 0
    height, width = kind.shape[1:3]
    is_whole = (attrs.kernel, attrs.dilations, attrs.pads) == ((height, width), (1, 1), (0, 0, 0, 0))
    reads = any(part.op == "load" and part.value == 0 for part in attrs.expr.walk())
    if not is_whole or reads or graph.types[node.outputs[0]].shape[1:3] != (1, 1):
        return 0
    size = {
        rows: rows * width * kind.dtype.size + 4 * (height // rows) for rows in range(1, height) if not height % rows
    }
    best = min(size, key=lambda rows: size[rows], default=0)
    return best if best and height // best > 1 and size[best] < height * width * kind.dtype.size else 0


def _split(rewriter: Rewriter, node: Node) -> Node | None:
    """Append the sums over bands and the average of those; return the node if it isn't split."""
    attrs, graph = Pool2d.of(node), rewriter.graph
    rows = _band(node, graph)
    if not rows:
        return node
    _, height, width, channels = graph.types[node.inputs[0]].shape
    bands = height // rows
    sums = rewriter.value(f"{node.outputs[0]} sums", DType.INT32, (1, bands, 1, channels))
    band_attrs = replace(
        attrs,
        kernel=(rows, width),
        strides=(rows, width),
        limits=(height, width),
        expr=Expr("acc", DType.INT32),
        label="",
    )
    rewriter.nodes.append(replace(node, inputs=node.inputs[:1], outputs=(sums,), attrs=band_attrs))
    element = load(0, DType.INT32, (axis(0), axis(4), axis(2), axis(3)))
    total = Expr("reduce", DType.INT32, (element,), Reduction("add", ((4, bands),)))
    assert attrs.expr is not None
    expr = attrs.expr.rewrite(lambda part: total if part.op == "acc" else part)
    name = rewriter.unique(f"{node.name}_mean")
    average = Loop(expr=expr, label="+".join(filter(None, ["mean", attrs.label])))
    rewriter.nodes.append(Node("loop", name, (sums, *node.inputs[1:]), node.outputs, average, node.origins))
    return None


log = logging.getLogger(__name__)
ROWS = (1, 2, 4)  # rows that each operator computes at a time,
MOST_ROWS = (2, 4, 5, 8)  # or rows of the operators with the most rows, the others in proportion
TURNED = 2  # the number of smallest plans for which turned line buffers are tried,
MOST_TURNED = 4  # and the most line buffers that are turned
MOST_STEPS = 4000  # the most steps of a region
MOST_COST = 0.08  # the share of instructions that "auto" may add for the smallest arena


def plan_streamed(graph: Graph, options: PlanOptions) -> Plan:
    """Return the plan with the smallest arena found for a graph with a streamed input.

    Args:
        graph: as the passes leave it.
        options: `partial` is "auto": row-wise execution adds at most 8% of instructions, as the schedules
            estimate, unless there is no other way; "always": no limit; "never": only the streamed part is computed
            by rows. Inputs and outputs lie in the arena.

    Raises:
        ModelError: the operators that read the input can't be computed row by row; the message names the first.
        UsageError: a requested schedule's node does not exist, or the schedule can't compute it.
    """
    options = replace(options, io="arena")
    split = with_split_averages(graph)
    ways = [graph] if split.nodes == graph.nodes else [graph, split]
    plans = (_planned(way, options) for way in ways)
    plan = min(plans, key=lambda candidate: candidate.arena_bytes)
    stream = plan.graph.stream
    assert stream is not None
    log.info("stream: %d rows of %s, computed as they arrive as far as %s", stream.rows, stream.value, stream.until)
    return plan


def _planned(graph: Graph, options: PlanOptions) -> Plan:
    graph, entry = _with_entry(graph)
    whole, partial = plan_whole(graph, options), options.partial
    chooser = Chooser(whole, options, PartialCache())
    candidates = [*candidates_of(whole, _regions(whole, entry), _chunkings)]
    most = math.inf if partial == "always" else whole.cost * (1 + MOST_COST)
    tries = (_smallest(whole, candidates, limit, chooser, partial) for limit in (most, math.inf))
    plan = next(filter(None, tries), None)
    if plan is None:
        raise _not_by_rows(whole, entry)
    return plan


def _with_entry(graph: Graph) -> tuple[Graph, str]:
    """Return the graph with an operator that takes the caller's rows, and its name.

    It is the input's reader if that is a loop over a row; otherwise a copy is inserted before the readers.

    Raises:
        ModelError: the input is not an image, or is not read by rows.
    """
    assert graph.stream is not None
    value, readers = graph.stream.value, graph.consumers()
    while [type(node.attrs) for node in readers.get(value, ())] == [View]:
        value = readers[value][0].outputs[0]
    kind = graph.types[value]
    rows = kind.shape[1] if len(kind.shape) == 4 and kind.shape[0] == 1 else 0
    if rows > MOST_STEPS:
        raise _refusal(graph, f"has {rows:,} rows; at most {MOST_STEPS:,} can be streamed")
    if rows < 2 or value in graph.outputs:
        where = readers.get(value) or readers.get(graph.stream.value) or ()
        read = [f"by {node.name}{_origins(node)}" for node in where[:1]]
        raise _refusal(graph, f"can't be streamed: it is read as {kind}, {_why_not(kind.shape)}", read)
    graph = replace(graph, stream=replace(graph.stream, rows=rows))
    of_it = readers.get(value, ())
    if len(of_it) == 1 and isinstance(of_it[0].attrs, Loop):
        reads = row_reads(of_it[0], graph)
        matches = [read for read in reads or () if of_it[0].inputs[read.input] == value]
        if len(matches) == 1 and matches[0] == RowReads(matches[0].input):
            return graph, of_it[0].name
    rewriter = Rewriter(graph)
    name, copy = rewriter.unique("take_row"), rewriter.value(f"{value} rows", kind.dtype, kind.shape)
    if value in graph.sources:
        rewriter.sources[copy] = graph.sources[value]
    attrs = Loop(expr=load(0, kind.dtype, identity(4)), label="take rows")
    entry = Node("loop", name, (value,), (copy,), attrs)
    is_there = value in graph.inputs
    for node in graph.nodes:
        if is_there:
            rewriter.nodes.append(entry)
            is_there = False
        inputs = tuple(copy if source == value else source for source in node.inputs)
        rewriter.nodes.append(replace(node, inputs=inputs))
        is_there = value in node.outputs
    return rewriter.finish(), name


def _why_not(shape: Sequence[int]) -> str:
    """Explain why a value of this shape is not an image that can be streamed by rows."""
    if len(shape) != 4:
        return "which has no rows; expected [1, height, width, channels]"
    if shape[0] != 1:
        return f"a batch of {shape[0]}; only a single image can be streamed"
    return "of height 1: one row is the whole input" if shape[1] == 1 else "and is itself an output"


def _smallest(
    whole: Plan, candidates: Sequence[Candidate], most: float, chooser: Chooser, partial: Partial
) -> Plan | None:
    """Return the plan with the smallest arena found, with `partial` execution after the stream."""
    results: list[tuple[int, Candidate, Plan]] = []

    def attempt(candidate: Candidate, tried: Tried | None = None) -> None:
        limit = min((size for size, *_ in results), default=math.inf)
        if candidate.memory.live_bytes >= limit or (partial == "never" and candidate.least >= limit):
            return
        plan = plan_of(whole, candidate, most, chooser, limit if partial == "never" else math.inf)
        if plan is not None:
            plan = plan if partial == "never" else with_regions(plan, most, chooser, tried)
            results.append((plan.arena_bytes, candidate, plan))

    for candidate in sorted(candidates, key=lambda candidate: candidate.memory.live_bytes):
        attempt(candidate)
    for _, candidate, _ in sorted(results, key=lambda item: item[0])[:TURNED]:
        tried: Tried = {}  # since the operators after the region are the same in all of them
        for turned in _turned(candidate, whole.graph):
            attempt(replace(candidate, turned=turned), tried)
    if not results:
        return None
    _, candidate, plan = min(results, key=lambda item: item[0])
    assert plan.graph.stream is not None
    stream = replace(plan.graph.stream, until=candidate.region.nodes[-1].name)
    return replace(plan, graph=replace(plan.graph, stream=stream))


def _turned(candidate: Candidate, graph: Graph) -> Iterator[frozenset[str]]:
    """Yield sets of line buffers that may have their newest row first, next to the end of another buffer."""
    region, values = candidate.region, list[str]()
    for node in region.nodes[:-1]:
        value = node.outputs[0]
        readers = region.readers.get(value, ())
        alone = candidate.chunks[node.name] == 1 and all(candidate.chunks[reader.name] == 1 for reader, _ in readers)
        if (
            alone
            and candidate.memory.rows[value] > 1
            and all(_may_turn(reader, reads, graph) for reader, reads in readers)
        ):
            values.append(value)
    largest = sorted(values, key=lambda value: -graph.types[value].bytes // graph.types[value].shape[1])[:MOST_TURNED]
    for count in range(len(largest) // 2 + 2):
        yield from map(frozenset, itertools.combinations(largest, count))


def _may_turn(node: Node, reads: RowReads, graph: Graph) -> bool:
    """Whether a node can read rows in reverse order: its weights can be flipped, or the order does not matter."""
    if reads.reach == 1:
        return True
    return isinstance(node.attrs, Conv2d) and reads.input == 0 and node.inputs[1] in graph.constants


def _regions(plan: Plan, entry: str) -> Iterator[tuple[int, Region]]:
    """Yield the regions that begin with the entry, each with the peak outside it."""
    graph, nodes, live = plan.graph, _by_rows(plan, entry), live_bytes(plan)
    reads, readers = {node.name: row_reads(node, graph) or () for node in nodes}, graph.consumers()
    names = [step.node.name for step in plan.steps]
    for end in range(1, len(nodes) + 1):
        region = Region(tuple(nodes[:end]), reads)
        if is_closed(graph, region, readers):
            after = names.index(nodes[end - 1].name) + 1
            yield max((*live[: names.index(entry)], *live[after:]), default=0), region


def _by_rows(plan: Plan, entry: str) -> list[Node]:
    """Return the nodes from the entry on that can be computed row by row."""
    graph = plan.graph
    nodes = itertools.dropwhile(lambda node: node.name != entry, graph.nodes)
    return [*itertools.takewhile(lambda node: row_reads(node, graph) is not None, nodes)]


def _chunkings(graph: Graph, region: Region) -> Iterator[Mapping[str, int]]:
    """Yield possible numbers of rows per chunk, by node name; the entry takes one row at a time, as they arrive."""
    entry = region.nodes[0].name
    heights = {node.name: graph.types[node.outputs[0]].shape[1] for node in region.nodes}
    most = max((height for name, height in heights.items() if name != entry), default=1)
    ways = [dict.fromkeys(heights, rows) for rows in ROWS]
    ways += [{name: max(1, rows * height // most) for name, height in heights.items()} for rows in MOST_ROWS]
    even = ({name: even_rows(way[name], height) for name, height in heights.items()} | {entry: 1} for way in ways)
    return distinct(even, heights, MOST_STEPS)


def _not_by_rows(plan: Plan, entry: str) -> ModelError:
    """Return the error that names the operator that needs the whole input."""
    nodes = plan.graph.nodes
    at = next(n for n, node in enumerate(nodes) if node.name == entry) + len(_by_rows(plan, entry))
    where = [f"{nodes[at].name}{_origins(nodes[at])} needs all rows at once"] if at < len(nodes) else []
    return _refusal(plan.graph, "can't be streamed: an operator needs the whole input", where)


def _refusal(graph: Graph, why: str, details: Sequence[str] = ()) -> ModelError:
    assert graph.stream is not None
    hint = "omit --interface-api feed and --stream"
    return ModelError(f"{graph.stream.value} {why}", details=details, hint=hint)


def _origins(node: Node) -> str:
    return f" ({', '.join(node.origins[:2])})" if node.origins else ""
