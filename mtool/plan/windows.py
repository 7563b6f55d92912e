"""Compute a part of a graph a few rows at a time, in windows of memory that move down the images.

Nothing is computed twice. The result is made in chunks of rows; before each, every operator before it makes as many
rows as are missing. What an operator makes goes into its window, which holds as many rows as its readers still want:
before the next rows are made, those are moved to the window's beginning. Padding rows are written into the window as
well, so that all chunks of an operator are alike and share one C function.

Source: line buffers of image pipelines; patch-based inference of MCUNetV2 (arXiv 2110.15352) without the overlap
that is computed again.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from mtool.ir import DType, Expr, Graph, Node
from mtool.ir.expr import const, identity, load
from mtool.ir.graph import Rewriter
from mtool.ir.node import View
from mtool.kernels.by_rows import Fill, Reads
from mtool.ops.loop.node import Loop
from mtool.plan.memory import ALIGNMENT, places
from mtool.plan.region import Progress, Region
from mtool.plan.rows import of_rows


@dataclass(slots=True)
class _Window:
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
    contents: list[tuple[int, int, str]] = field(default_factory=list)


class _Rows:
    """Makes the nodes of a region chunk by chunk, in windows of so many `rows`."""

    def __init__(self, graph: Graph, region: Region, chunk: Mapping[str, int], rows: Mapping[str, int]) -> None:
        self.graph, self.region, self.chunk = graph, region, chunk
        self.rewriter = Rewriter(graph)
        self.places: dict[str, tuple[str, int]] = {}
        self.progress = Progress(graph, region)
        self.done, self.height = self.progress.done, self.progress.height  # rows of each
        self.producer = {node.outputs[0]: node for node in region.nodes}
        self.parts: list[str] = []  # of the result
        self.moved: dict[tuple[str, str], int] = {}  # how often rows of a node were copied, or padding was written
        self.windows: dict[str, _Window] = {}
        for value in self.producer:
            padding = region.fill(value)
            assert padding is not None
            above, below, fill = padding
            row = graph.types[value].count // self.height[value]
            window = _Window(value, self.height[value], row, above, below, fill, -above, -above)
            window.rows = rows[value]
            self.windows[value] = window

    def run(self) -> None:
        """Make the result."""
        last = self.region.nodes[-1]
        while self.done[last.name] < self.height[last.outputs[0]]:
            self.make(last)
        self.rewriter.nodes.append(
            Node("view", self.rewriter.unique(f"rows of {last.name}"), tuple(self.parts), last.outputs, View())
        )
        self.places[self.region.result] = self.region.result, 0

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
        window = self.windows[out]
        place = (out, first * window.row) if out == self.region.result else self.room(window, count)
        value = self.chunk_of(window, f"{out} rows", first, count, place)
        parts = -(-self.height[out] // self.chunk[node.name])
        attrs = of_rows(node, self.graph, count)
        name = node.name if first == 0 else f"{node.name}_row{first}"
        made = replace(node, name=name, inputs=tuple(inputs), outputs=(value,), attrs=attrs)
        self.rewriter.nodes.append(replace(made, whole=node.name, parts=parts))
        self.done[node.name] = first + count
        if out == self.region.result:
            self.parts.append(value)

    def ensure(self, value: str, end: int) -> None:
        """Make rows of a value until row `end` is reached, padding included; a value from outside is there."""
        window = self.windows.get(value)
        if window is None:
            return
        if window.top < 0:
            self.pad(window, window.above)
        while window.top < end:
            if window.top < window.height:
                self.make(self.producer[value])
            else:
                self.pad(window, window.below)

    def room(self, window: _Window, count: int) -> tuple[str, int]:
        """Make room for `count` rows at the end of a window; returns their place in it, in elements."""
        if window.top + count - window.base > window.rows:
            self.shift(window, min(max(self.progress.wanted(window.value, window.top), window.base), window.top))
        return f"window of {window.value}", (window.top - window.base) * window.row

    def shift(self, window: _Window, keep: int) -> None:
        """Move the rows from `keep` on to the beginning of the window."""
        if keep < window.top:
            source = self.rows_of(window, keep, window.top)
            place = f"window of {window.value}", 0
            window.contents = []
            kept = self.chunk_of(window, f"{window.value} kept", keep, window.top - keep, place)
            self.copy(self.producer[window.value], "keep", source, kept)
        window.base = keep

    def pad(self, window: _Window, count: int) -> None:
        """Append padding rows to a window."""
        assert window.fill is not None
        place = self.room(window, count)
        node, dtype = self.producer[window.value], self.graph.types[window.value].dtype
        value = self.chunk_of(window, f"{window.value} padding", window.top, count, place)
        self.loop(node, "pad", (), value, const(window.fill, dtype))

    def chunk_of(self, window: _Window, stem: str, first: int, count: int, place: tuple[str, int]) -> str:
        """Add a value of `count` rows from `first` on, and note that the window holds it."""
        value = self.rows_value(window.value, stem, count, place)
        window.contents.append((first, first + count, value))
        window.top = max(window.top, first + count)
        if first >= 0 and first + count <= window.height:
            self.tell_source(window.value, value, first, count)
        return value

    def rows_value(self, like: str, stem: str, count: int, place: tuple[str, int]) -> str:
        kind = self.graph.types[like]
        value = self.rewriter.value(f"{stem} {len(self.places)}", kind.dtype, (1, count, *kind.shape[2:]))
        self.places[value] = place[0], place[1] * kind.dtype.size
        return value

    def tell_source(self, of: str, value: str, first: int, count: int) -> None:
        source = self.graph.sources.get(of)
        if source is not None:
            self.rewriter.sources[value] = source.then(("rows", (first, first + count)))

    def view(self, node: Node, reads: Reads, start: int, end: int) -> str:
        """Return the value that has rows `start` to `end` of an input of a node."""
        source = node.inputs[reads.input]
        window = self.windows.get(source)
        if window is not None:
            return self.rows_of(window, start, end)
        height, row = self.graph.types[source].shape[1], self.graph.types[source].count
        row //= height
        inside = max(start, 0), min(end, height)
        whole = self.outside_rows(source, *inside, row)
        if (start, end) == inside:
            return whole
        # At the image's edge: a window of its own, with the rows and the padding.
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

    def rows_of(self, window: _Window, start: int, end: int) -> str:
        """Return a view of rows that a window holds."""
        assert window.base <= start and end <= window.top
        held = [value for first, last, value in window.contents if first < end and last > start]
        place = f"window of {window.value}", (start - window.base) * window.row
        view = self.joined(window.value, held, end - start, place)
        if start >= 0 and end <= window.height:
            self.tell_source(window.value, view, start, end - start)
        return view

    def joined(self, like: str, pieces: Sequence[str], count: int, place: tuple[str, int]) -> str:
        view = self.rows_value(like, f"{like} rows", count, place)
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


def in_windows(graph: Graph, region: Region, chunk: Mapping[str, int], rows: Mapping[str, int]) -> Graph | None:
    """Return a graph that computes a region a few rows at a time; None: rows would begin within a word.

    Args:
        graph: its nodes in the order of execution, which stays.
        region: the nodes.
        chunk: how many rows of each node's result are made at a time, by the node's name.
        rows: how many of each value have to be at hand at once (mtool.plan.region).
    """
    made = _Rows(graph, region, chunk, rows)
    made.run()
    inside = {node.name for node in region.nodes}
    first = next(number for number, node in enumerate(graph.nodes) if node.name in inside)
    before, after = graph.nodes[:first], graph.nodes[first + len(region.nodes) :]
    rewriter = made.rewriter
    rewriter.nodes = [*before, *rewriter.nodes, *after]
    finished = rewriter.finish()
    used = {value: place for value, place in made.places.items() if value in finished.types}
    finished = replace(finished, windows={**graph.windows, **used})
    return None if any(offset % ALIGNMENT for _, offset in places(finished).values()) else finished
