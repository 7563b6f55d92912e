"""Sliding windows: rows that equal rows of the call before are kept instead of computed again.

Where an input is a window that moves by a hop between two calls, most rows of the values that depend on it equal rows
of the call before, further on by the hop (divided by the strides since). They are kept in a state, and operators
compute the other rows alone: the new ones, and those that padding touches. An operator that needs all rows at once
reads them from the state. The input becomes its new rows. A window may also be the model's own: a state,
joined with new rows, whose last rows are the next state.

The analysis goes forward for the rows that are equal, then backward for the rows that readers need.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from mtool.base import plural, spelling
from mtool.base.errors import UsageError
from mtool.base.escaping import argument
from mtool.base.frozen import frozen
from mtool.compiler.ir import (
    Array,
    Attributes,
    Expr,
    Graph,
    Node,
    Rewriter,
    Slide,
    State,
    TensorType,
    View,
    axis,
    identity,
    load,
)
from mtool.compiler.ir.node import Computation, expression_of
from mtool.compiler.ir.ranges import affine
from mtool.compiler.kernels.concat import Concat
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.kernels.dense import Dense
from mtool.compiler.kernels.evaluation import computed
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.pool2d import Pool2d
from mtool.compiler.kernels.specification import RowReads
from mtool.compiler.passes.streamed_input import axes_of_image

log = logging.getLogger(__name__)
ALIGNMENT = 4  # bytes: kernels read words

# The inputs that are windows.


def with_slides(graph: Graph) -> Graph:
    """Return a graph of canonical ONNX operators with the axes and lengths of the windows that its inputs are.

    Raises:
        UsageError: an input or axis does not exist, an input is named twice, or is not longer than the hop.
    """
    slides: list[Slide] = []
    for motion in graph.slides:
        name, hop, along = spelling.whole_name(motion.value, graph.caller_inputs), motion.hop, motion.axis
        option = f"--slide {name}={hop}" + (f"@{along}" if along is not None else "")
        if any(other.value == name for other in slides):
            raise UsageError(f"{option}: the input is named twice", hint="a window has one hop: omit one of the two")
        if name not in graph.caller_inputs:
            raise UsageError(
                f"{option}: unknown input {name}",
                details=[f"the model has {', '.join(graph.caller_inputs) or 'none'}"],
                hint=spelling.did_you_mean(name, graph.caller_inputs),
            )
        kind = graph.types[name]
        time_axis = _axis_of_time(graph, name) if along is None else along
        if time_axis >= len(kind.shape):
            raise UsageError(
                f"{option}: axis {time_axis} does not exist",
                details=[f"expected  0 to {len(kind.shape) - 1}, of {kind}"] if kind.shape else [f"{name} is {kind}"],
                hint=f"omit the axis: --slide {argument(name)}={hop}" if kind.shape else "",
            )
        rows = kind.shape[time_axis]
        if not 0 < hop < rows:
            raise UsageError(
                f"{option}: the window has {plural.count(rows, 'row')} along axis {time_axis}, "
                + (f"so the hop must be 1 to {rows - 1}" if rows > 1 else "and can't slide along it"),
                details=[f"{name} is {kind}"],
                hint=f"name another hop or axis: --slide {argument(name)}=HOP@AXIS",
            )
        slides.append(Slide(name, hop, time_axis, rows))
    return replace(graph, slides=tuple(slides))


def _axis_of_time(graph: Graph, value: str) -> int:
    """Return the vertical axis of the first image; of a signal or another tensor, the first axis that has a length."""
    shape = graph.types[value].shape
    axes = axes_of_image(graph, value, tuple(range(len(shape)))) or ()
    ways = [*axes[2:], *range(len(shape))]
    return next((axis for axis in ways if shape[axis] > 1), 0)


@frozen
class Window:
    """A window: the value of its new rows, and its contents before the first call; `state`: the model keeps it."""

    slide: Slide
    new: str
    before: Array
    state: State | None = None


def _windows(graph: Graph) -> Iterator[Window]:
    """Yield the inputs that are windows, and the windows that the model keeps itself.

    Of these only the ones from which operators compute products: to keep the results of cheaper ones would not pay.
    """
    for motion in graph.slides:
        kind = graph.types[motion.value]
        yield Window(motion, motion.value, np.full(kind.shape, motion.zero, kind.dtype.numpy))
    readers, makers = graph.consumers(), graph.producers()
    for state in graph.states:
        joins, maker = [*readers.get(state.input, ())], makers.get(state.output)
        if maker is None or [type(node.attrs) for node in joins] != [Concat] or state.output in readers:
            continue
        node, along = joins[0], Concat.of(joins[0]).axis
        new, value, kind = node.inputs[-1], node.outputs[0], graph.types[node.outputs[0]]
        motion = Slide(value, graph.types[new].shape[along], along, kind.shape[along])
        is_kept = isinstance(maker.attrs, Loop) and maker.attrs.expr == _moved_by(motion.hop, along, kind)
        if node.inputs != (state.input, new) or maker.inputs != (value,) or not is_kept:
            continue
        sliding = _Analysis.of(graph, [motion]).sliding
        keeping = {value for value, slid in sliding.items() if slid.end}
        if any(isinstance(node.attrs, Conv2d | Dense) and node.outputs[0] in keeping for node in graph.nodes):
            initial = state.initial
            initial = np.zeros(graph.types[state.input].shape) if initial is None else initial
            before = initial.take([max(row - motion.hop, 0) for row in range(motion.rows)], along)
            yield Window(motion, new, before.astype(kind.dtype.numpy), state)


def _moved_by(rows: int, along: int, kind: TensorType) -> Expr:
    """Return the expression of a value without its first rows."""
    index = list(identity(len(kind.shape)))
    index[along] = index[along] + rows
    return load(0, kind.dtype, tuple(index))


# Forward: which rows of a value equal rows of the call before.


@frozen
class Sliding:
    """A value whose rows from `first` to `end` along an axis equal those `by` rows further on of the call before.

    If `end` is 0, no row does, but each is computed from some rows of its inputs, which may slide.
    """

    axis: int
    by: int = 0
    first: int = 0
    end: int = 0


class NotSlidingError(Exception):
    """A node's result does not slide; the message is the reason.

    `reads`: the rows of its inputs from which those of its result along `axis` are computed; None: all.
    """

    def __init__(self, reason: str, axis: int = 0, reads: tuple[RowReads, ...] | None = None) -> None:
        super().__init__(reason)
        self.axis, self.reads = axis, reads


def slide(graph: Graph) -> Graph:
    """Return a graph that computes the new rows alone where inputs slide.

    Raises:
        UsageError: the model itself keeps earlier rows of an input that slides.
    """
    _check_states(graph)
    zeros = {name: q.zero_point[0] for name, q in graph.quant.items() if graph.types[name].dtype.is_integer}
    graph = replace(graph, slides=tuple(replace(s, zero=zeros.get(s.value, 0)) for s in graph.slides))
    windows = {window.slide.value: window for window in _windows(graph)}
    return _Slider(graph, windows).run() if windows else graph


def _check_states(graph: Graph) -> None:
    states = {state.input for state in graph.states}
    for motion in graph.slides if states else ():
        sliding = _Analysis.of(graph, [motion]).sliding
        for node, attrs in ((node, node.attrs) for node in graph.nodes if isinstance(node.attrs, Concat)):
            joined = states.intersection(node.inputs)
            if joined and any(value in sliding and sliding[value].axis == attrs.axis for value in node.inputs):
                raise UsageError(
                    f"--slide {motion.value}={motion.hop}: the model keeps earlier rows of {motion.value} itself",
                    details=[f"they are in its state {', '.join(sorted(joined))}"],
                    hint=f"omit --slide: all rows of {motion.value} are new in each call",
                )


@frozen
class _Analysis:
    """The values that slide with windows, the rows that each node reads of them, and why nodes keep no rows."""

    sliding: Mapping[str, Sliding]
    reads: Mapping[str, tuple[RowReads, ...]]
    reasons: Sequence[str]

    @classmethod
    def of(cls, graph: Graph, windows: Iterable[Slide]) -> Self:
        """Return the analysis of a graph."""
        sliding = {w.value: Sliding(w.axis or 0, w.hop, 0, w.rows - w.hop) for w in windows}
        reads, reasons = dict[str, tuple[RowReads, ...]](), list[str]()
        following = {state.output for state in graph.states}
        for node in graph.nodes:
            if sliding.keys().isdisjoint(node.inputs) or not following.isdisjoint(node.outputs):
                continue
            try:
                rows, result = _of_node(node, graph, sliding)
            except NotSlidingError as error:
                reasons.append(f"{', '.join(node.origins) or node.name} keeps no rows: {error}")
                if error.reads is None:
                    continue
                rows, result = error.reads, Sliding(error.axis)
            reads[node.name], sliding[node.outputs[0]] = rows, result
        return cls(sliding, reads, reasons)


def _of_node(node: Node, graph: Graph, sliding: Mapping[str, Sliding]) -> tuple[tuple[RowReads, ...], Sliding]:
    """Return the rows of its inputs that a node's rows are computed from, and how its result slides.

    Raises:
        NotSlidingError: it does not slide.
    """
    if len(node.outputs) != 1:
        raise NotSlidingError("it has several results")
    if isinstance(node.attrs, View):
        return (), _of_view(
            graph.types[node.inputs[0]].shape, graph.types[node.outputs[0]].shape, sliding[node.inputs[0]]
        )
    along, reads = _reads(node, graph, sliding)
    size = graph.types[node.outputs[0]].shape[along]
    first, end, steps = 0, size, set[int]()
    for read in reads:
        slid = sliding[node.inputs[read.input]]
        if not slid.end:
            raise NotSlidingError("an input has no rows of the call before", along, reads)
        if slid.by % read.stride:
            nearest = sorted({slid.by // read.stride * read.stride, -(-slid.by // read.stride) * read.stride} - {0})
            reason = f"its stride {read.stride} does not divide {slid.by} rows; it would divide "
            raise NotSlidingError(reason + " or ".join(map(str, nearest)), along, reads)
        steps.add(slid.by // read.stride)
        first = max(first, -(-(slid.first + read.pad) // read.stride))
        end = min(end, (slid.end + read.pad - read.reach) // read.stride + 1)
    if len(steps) > 1:
        raise NotSlidingError(f"its inputs slide by {' and '.join(map(str, sorted(steps)))} rows", along, reads)
    (by,) = steps
    end = min(end, size - by)
    if first >= end:
        raise NotSlidingError("none of its rows is computed from rows of the call before alone", along, reads)
    return reads, Sliding(along, by, first, end)


def _of_view(before: Sequence[int], after: Sequence[int], slid: Sliding) -> Sliding:
    """Return how a value slides under another shape: along the axis that begins at the same element."""
    outer, inner = math.prod(before[: slid.axis]), math.prod(before[slid.axis + 1 :])
    for along, size in enumerate(after):
        rest = math.prod(after[along + 1 :])
        if math.prod(after[:along]) != outer or size == 1:
            continue
        whole = rest % inner == 0 or inner % rest == 0
        if whole and slid.by * inner % rest == 0:
            first, end = -(-slid.first * inner // rest), slid.end * inner // rest
            if first < end or not slid.end:
                return Sliding(along, slid.by * inner // rest, first, end)
    raise NotSlidingError("its shape splits the rows")


def _reads(node: Node, graph: Graph, sliding: Mapping[str, Sliding]) -> tuple[int, tuple[RowReads, ...]]:
    """Return the axis along which a node's result slides, and the rows that it reads of each input that slides."""
    attrs, (first, *_) = node.attrs, [number for number, value in enumerate(node.inputs) if value in sliding]
    along = sliding[node.inputs[first]].axis
    rows: tuple[RowReads, ...] = ()
    if isinstance(attrs, Conv2d | Pool2d):
        if first or along not in (1, 2) or (isinstance(attrs, Pool2d) and 0 in attrs.expr.operands()):
            raise NotSlidingError("its windows do not move along these rows")
        n = along - 1
        reach = (attrs.kernel[n] - 1) * attrs.dilations[n] + 1
        rows = (RowReads(0, attrs.strides[n], reach, attrs.pads[n]),)
    elif isinstance(attrs, Dense):
        if first or along:
            raise NotSlidingError("it needs all rows at once")
        rows = (RowReads(0),)
    elif isinstance(attrs, Concat):
        if along == attrs.axis or any(value not in sliding or sliding[value].axis != along for value in node.inputs):
            raise NotSlidingError("it joins them with others")
        return along, tuple(RowReads(number) for number in range(len(node.inputs)))
    elif isinstance(attrs, Loop):
        along = _axis_of_loop(node, graph, sliding)
    else:
        raise NotSlidingError("it needs all rows at once")
    expr = expression_of(node)
    assert expr is not None
    return along, (*rows, *_of_expression(expr, along, node, graph, sliding))


def _axis_of_loop(node: Node, graph: Graph, sliding: Mapping[str, Sliding]) -> int:
    """Return the axis of a loop's result that follows the rows of the first input that slides."""
    rank = len(graph.types[node.outputs[0]].shape)
    for part in Loop.of(node).expr.parts():
        slid = sliding.get(node.inputs[part.value]) if part.op == "load" else None
        if slid is not None:
            axes = {index.value for index in part.args[slid.axis].walk(indices=False) if index.op == "axis"}
            numbers = [number for number in axes if number < rank]
            if len(numbers) == 1:
                return int(numbers[0])
            break
    raise NotSlidingError("it needs all rows at once")


def _of_expression(
    expr: Expr, along: int, node: Node, graph: Graph, sliding: Mapping[str, Sliding]
) -> Iterator[RowReads]:
    """Yield the rows that an expression reads of inputs that slide, to compute a row along an axis.

    Raises:
        NotSlidingError: it depends on the number of its row, or on values that change in another way.
    """
    sizes = dict(enumerate(graph.types[node.outputs[0]].shape))
    sizes |= {number: size for part in expr.parts() if part.op == "reduce" for number, size in part.value.axes}
    for part in expr.walk(indices=False):
        if part.op == "axis" and part.value == along:
            raise NotSlidingError("it depends on the number of its row")
    for part in expr.parts():
        if part.op != "load":
            continue
        value = node.inputs[part.value]
        slid = sliding.get(value)
        if slid is None and value not in graph.constants:
            raise NotSlidingError("it reads another value too")
        for place, index in enumerate(part.args):
            if slid is not None and place == slid.axis:
                yield _linear(index, part.value, along, sizes)
            elif any(inner == axis(along) for inner in index.walk(indices=False)):
                raise NotSlidingError("a constant or index differs from row to row")


def _linear(index: Expr, number: int, along: int, sizes: Mapping[int, int]) -> RowReads:
    """Return the rows that an index reads: a multiple of the row, and a range."""
    form = affine(index)
    stride = form.steps.get(along, 0) if form else 0
    if form is None or stride < 1:
        raise NotSlidingError("it reads rows by a computed number")
    others = [step * (sizes[number] - 1) for number, step in form.steps.items() if number != along]
    low, high = (form.first + sum(end(offset, 0) for offset in others) for end in (min, max))
    return RowReads(number, stride, high - low + 1, -low)


# Backward: which rows readers need, and which of them are kept; then the new graph.


@dataclass(slots=True)
class _Rows:
    """The ranges of rows of a value that are needed, apart and in order, and the values that hold some of them."""

    ranges: list[tuple[int, int]] = field(default_factory=list)
    pieces: list[tuple[int, int, str]] = field(default_factory=list)

    @property
    def first(self) -> int:
        """The first row that is needed."""
        return self.ranges[0][0]

    @property
    def end(self) -> int:
        """The row after the last that is needed."""
        return self.ranges[-1][1]

    def add_needed(self, first: int, end: int) -> None:
        """Add a range."""
        ranges = [*self.ranges]
        self.ranges = []
        for start, stop in sorted([*ranges, (first, end)]):
            if self.ranges and start <= self.end:
                start, stop = self.ranges[-1][0], max(self.end, stop)
                self.ranges.pop()
            self.ranges.append((start, stop))


class _Slider(Rewriter):
    """Builds the graph that computes new rows."""

    def __init__(self, graph: Graph, windows: Mapping[str, Window]) -> None:
        super().__init__(graph)
        self.windows = windows
        self.replaced = {window.state.output: window.state for window in windows.values() if window.state}
        analysis = _Analysis.of(graph, [window.slide for window in windows.values()])
        self.sliding, self.reads = analysis.sliding, analysis.reads
        for reason in analysis.reasons:
            log.info("slide: %s", reason)
        self.rows: dict[str, _Rows] = {}
        self.kept_states: list[tuple[State, str, str]] = []
        self.zeros = self.initial_values()
        self.find_needed()

    def initial_values(self) -> dict[str, Array]:
        """Return the values that slide for the windows before the first call, of which rows are kept."""
        values = {value: window.before for value, window in self.windows.items()}
        for node in self.graph.nodes:
            if node.outputs[0] in self.sliding and node.outputs[0] not in self.windows:
                inputs = [values[value] if value in values else self.graph.constants[value] for value in node.inputs]
                values[node.outputs[0]] = computed(node, self.graph, inputs)
        return values

    def find_needed(self) -> None:
        """Find the rows that are needed, from the outputs back."""
        for value in self.graph.outputs:
            self.add_needed(value, 0, self.size(value))
        for node in reversed(self.graph.nodes):
            out = node.outputs[0]
            if out in self.windows:
                self.add_needed(self.windows[out].new, 0, self.size(self.windows[out].new))
            elif out not in self.sliding and out not in self.replaced:
                for value in node.inputs:
                    self.add_needed(value, 0, self.size(value))
            elif out in self.rows:
                for first, end in self.computed(node):
                    for number, (start, stop) in self.read(node, first, end).items():
                        self.add_needed(node.inputs[number], start, stop)

    def size(self, value: str) -> int:
        """Return the number of rows of a value; 0: it does not slide."""
        return self.graph.types[value].shape[self.sliding[value].axis] if value in self.sliding else 0

    def add_needed(self, value: str, first: int, end: int) -> None:
        if value in self.sliding:
            self.rows.setdefault(value, _Rows()).add_needed(first, end)

    def kept_rows(self, value: str) -> tuple[int, int]:
        """Return the rows of a value that are kept from the call before; none if no reader needs one of them.

        All rows between those that are needed are then there, and those that are kept in the next call.
        """
        rows, slid = self.rows[value], self.sliding[value]
        first, end = max(rows.first, slid.first), slid.end
        if not any(start < end and stop > first for start, stop in rows.ranges):
            return 0, 0
        rows.ranges = [(rows.first, max(rows.end, end + slid.by))]
        return first, end

    def computed(self, node: Node) -> list[tuple[int, int]]:
        """Return the rows of a node that are computed in each call: all that are needed, except those that are kept."""
        rows = self.rows[node.outputs[0]]
        if isinstance(node.attrs, View):  # whole rows of its input
            before, after = self.row_sizes(node)
            unit = max(before // after, 1)
            return [(first // unit * unit, -(-end // unit) * unit) for first, end in rows.ranges]
        first, end = self.kept_rows(node.outputs[0])
        parts = ((rows.first, first), (end, rows.end)) if end else rows.ranges
        return [(start, stop) for start, stop in parts if start < stop]

    def row_sizes(self, node: Node) -> tuple[int, int]:
        """Return the elements of a row of a view's input, and of its output."""
        before, after = (
            math.prod(self.graph.types[value].shape[self.sliding[value].axis + 1 :])
            for value in (node.inputs[0], node.outputs[0])
        )
        return before, after

    def read(self, node: Node, first: int, end: int) -> dict[int, tuple[int, int]]:
        """Return the rows of each input that slides which a node reads to compute rows, without padding."""
        if isinstance(node.attrs, View):
            before, after = self.row_sizes(node)
            return {0: (first * after // before, end * after // before)}
        ranges: dict[int, tuple[int, int]] = {}
        for read in self.reads[node.name]:
            start, stop = read.rows(first, end - first)
            size = self.size(node.inputs[read.input])
            start = min(max(start, 0), size - 1)
            stop = max(min(stop, size), start + 1)  # one that is not needed, if all are padding
            low, high = ranges.get(read.input, (start, stop))
            ranges[read.input] = min(low, start), max(high, stop)
        return ranges

    def run(self) -> Graph:
        """Build the graph."""
        for motion in self.graph.slides:
            kind, slid = self.types[motion.value], self.sliding[motion.value]
            self.types[motion.value] = replace(kind, shape=_with(kind.shape, slid.axis, slid.by))
            self.new_rows(motion.value)
        for node in self.graph.nodes:
            out = node.outputs[0]
            if out in self.windows:
                self.new_rows(out)
            elif out not in self.sliding and out not in self.replaced:
                self.nodes.append(replace(node, inputs=tuple(self.all_rows(value) for value in node.inputs)))
            elif out in self.rows:
                for first, end in self.computed(node):
                    self.rows[out].pieces.append((first, end, self.compute(node, first, end)))
                self.join(out, node)
        of_inputs = {*self.replaced, *(f"{value} next" for value in self.windows)}
        of_inputs |= {
            f"{node.outputs[0]} next"
            for node in self.graph.nodes
            if isinstance(node.attrs, Loop) and node.attrs.expr.op == "load"
        }
        if self.graph.slides and of_inputs.issuperset(state.output for state, _, _ in self.kept_states):
            log.warning("--slide saves no computation: only rows of the input are kept (-v: why)")
        graph, ends = self.graph, [state.input for state in self.replaced.values()]
        outputs = [self.all_rows(value) for value in self.outputs if value not in self.replaced]
        inputs = [value for value in graph.inputs if value not in ends]
        states = [state for state in graph.states if state.output not in self.replaced]
        self.outputs = (*outputs, *(output for _, _, output in self.kept_states))
        self.graph = replace(
            graph,
            inputs=(*inputs, *(value for _, value, _ in self.kept_states)),
            states=(*states, *(state for state, _, _ in self.kept_states)),
        )
        return self.finish()

    def all_rows(self, value: str) -> str:
        """Return the value with all rows of another."""
        return self.part(value, 0, self.size(value)) if value in self.sliding else value

    def new_rows(self, value: str) -> None:
        """Add the new rows of a window to those that are kept."""
        if value in self.rows:
            slid, new = self.sliding[value], self.windows[value].new
            self.kept_rows(value)
            self.rows[value].pieces.append((slid.end, slid.end + slid.by, new if new == value else self.all_rows(new)))
            self.join(value, None)

    def piece(self, value: str, stem: str, first: int, end: int) -> str:
        """Add a value for rows of another; return its name."""
        slid, kind = self.sliding[value], self.graph.types[value]
        name = self.value(f"{value} {stem}", kind.dtype, _with(kind.shape, slid.axis, end - first))
        if value in self.graph.quant:
            self.quant[name] = self.graph.quant[value]
        if value in self.graph.sources and slid.axis == 1:
            self.sources[name] = self.graph.sources[value].then(("rows", (first, end)))
        return name

    def join(self, value: str, node: Node | None) -> None:
        """Add the rows that are kept to those that are computed, and keep rows for the next call."""
        slid, rows = self.sliding[value], self.rows[value]
        first, end = (0, 0) if node is not None and isinstance(node.attrs, View) else self.kept_rows(value)
        if first == end:
            return
        earlier, name = self.piece(value, "kept", first, end), f"{value} next"
        self.sources.pop(earlier, None)
        state = self.windows[value].state if value in self.windows else None
        if state is not None:  # under its names in the model
            self.types[state.input] = self.types[earlier]
            earlier, name = state.input, state.output
        pieces = sorted([*rows.pieces, (first, end, earlier)])
        whole = self.piece(value, "window", rows.first, rows.end)
        self.node("concat", [name for _, _, name in pieces], [whole], Concat(axis=slid.axis), like=node)
        rows.pieces.append((rows.first, rows.end, whole))
        following = self.part(value, first + slid.by, end + slid.by, copies=True)
        rows_kept = (slice(None),) * slid.axis + (slice(first + slid.by, end + slid.by),)
        initial = np.ascontiguousarray(self.zeros[value][rows_kept])
        self.kept_states.append((State(name, earlier, initial if initial.any() else None), earlier, following))

    def part(self, value: str, first: int, end: int, *, copies: bool = False) -> str:
        """Return the value that holds rows of another; a view or a copy of a piece unless a piece is just these."""
        slid, pieces = self.sliding[value], self.rows[value].pieces
        start, stop, source = min(
            ((a, b, name) for a, b, name in pieces if a <= first and end <= b), key=lambda piece: piece[1] - piece[0]
        )
        if (start, stop) == (first, end) and not copies:
            return source
        kind = self.types[source]
        inner = math.prod(kind.shape[slid.axis + 1 :])
        output = self.piece(value, "part", first, end)
        skipped = (first - start) * inner
        is_aligned = skipped * kind.dtype.size % ALIGNMENT == 0
        if math.prod(kind.shape[: slid.axis]) == 1 and is_aligned and not copies:
            self.node("view", [source], [output], View(first=skipped))
        else:
            moved = _moved_by(first - start, slid.axis, kind)
            self.node("loop", [source], [output], Loop(expr=moved, label="keep" if copies else "rows"))
        if not copies:
            pieces.append((first, end, output))
        return output

    def compute(self, node: Node, first: int, end: int) -> str:
        """Append a node that computes rows of another; return the value."""
        inputs, ranges = list(node.inputs), self.read(node, first, end)
        for number, (start, stop) in ranges.items():
            inputs[number] = self.part(node.inputs[number], start, stop)
        output = self.piece(node.outputs[0], "new", first, end)
        self.node(node.op, inputs, [output], self.attributes(node, first, end, ranges), like=node)
        return output

    def attributes(self, node: Node, first: int, end: int, ranges: Mapping[int, tuple[int, int]]) -> Attributes:
        """Return a node's attributes to compute rows, from these rows of its inputs."""
        attrs = node.attrs
        if isinstance(attrs, Conv2d | Pool2d):
            n, (start, stop) = self.sliding[node.outputs[0]].axis - 1, ranges[0]
            begin, behind = self.reads[node.name][0].rows(first, end - first)
            top, left, bottom, right = attrs.pads
            pads = (start - begin, behind - stop)
            attrs = replace(attrs, pads=(top, pads[0], bottom, pads[1]) if n else (pads[0], left, pads[1], right))
            if isinstance(attrs, Pool2d):
                limits = attrs.limits[0] - (start if n == 0 else 0), attrs.limits[1] - (start if n else 0)
                attrs = replace(attrs, limits=limits)
            else:
                attrs = replace(attrs, macs=attrs.macs_of_rows(end - first, self.size(node.outputs[0])))
        if isinstance(attrs, Computation):
            attrs = replace(attrs, expr=self.moved(attrs.expr, node, first, ranges))
        return attrs

    def moved(self, expr: Expr, node: Node, first: int, ranges: Mapping[int, tuple[int, int]]) -> Expr:
        """Return an expression that computes rows from `first` on."""
        strides = {read.input: read.stride for read in self.reads.get(node.name, ())}

        def change(part: Expr) -> Expr:
            if part.op != "load" or part.value not in ranges:
                return part
            place, index = self.sliding[node.inputs[part.value]].axis, [*part.args]
            index[place] = _plus(index[place], strides[part.value] * first - ranges[part.value][0])
            return replace(part, args=tuple(index))

        return expr.rewrite(change)


def _plus(index: Expr, more: int) -> Expr:
    """Return an index plus a constant."""
    if index.op in ("add", "sub") and index.args[1].op == "const":
        constant = int(index.args[1].value)
        return index.args[0] + (more + (constant if index.op == "add" else -constant))
    return index + more


def _with(numbers: tuple[int, ...], place: int, number: int) -> tuple[int, ...]:
    return (*numbers[:place], number, *numbers[place + 1 :])
