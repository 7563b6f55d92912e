"""A model at several values of its run-time sizes, imported, lowered and joined."""

import itertools
import keyword
import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

import numpy as np

from mtool.base import plural
from mtool.base.errors import ModelError, UsageError
from mtool.base.escaping import argument
from mtool.base.formulas import Point
from mtool.base.frozen import frozen
from mtool.base.identifiers import tensor_names
from mtool.compiler import frontend, passes
from mtool.compiler.frontend.options import ModelOptions
from mtool.compiler.ir import DType, Graph, Node, RunTimeSize, TensorType
from mtool.compiler.ir.control import Rounds, bodies_of
from mtool.compiler.ir.expr import const
from mtool.compiler.ir.graph import Names
from mtool.compiler.ir.node import Computation, View
from mtool.compiler.ir.parametric import DifferError, Joined, Joiner
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.loop import Loop
from mtool.compiler.kernels.registry import SPECIFICATIONS
from mtool.compiler.kernels.target import Target
from mtool.compiler.run_time_sizes.moves import (
    MORE_STRUCTURE,
    STRUCTURE,
    check_mirrors,
    dense_points,
    emitted_points,
    is_within,
    small_points,
    smallest_sizes,
    structural_points,
    with_open_moves,
    with_size,
)

# Constants of one model at several sizes: equal ones are held once, and tables have their largest size everywhere.


def sharing(graph: Graph, other: Graph) -> Graph:
    """Return a graph that shares equal constants with another graph."""

    def shared(name: str, data: Array) -> Array:
        twin = other.constants.get(name)
        return twin if twin is not None and twin.dtype == data.dtype and _is_same(twin, data) else data

    return replace(graph, constants={name: shared(name, data) for name, data in graph.constants.items()})


def with_large_tables(graphs: Sequence[Graph]) -> list[Graph]:
    """Use the largest of constants that are read element by element everywhere, if the others are prefixes of it."""
    first = graphs[0]
    readers: dict[str, list[bool]] = {}
    for node in first.nodes:
        operands = len(SPECIFICATIONS[node.op].fixed_operands(node)) if node.op in SPECIFICATIONS else len(node.inputs)
        for index, value in enumerate(node.inputs):
            by_element = isinstance(node.attrs, Computation) and index >= operands
            readers.setdefault(value, []).append(by_element)
    chosen = list(graphs)
    for name, data in first.constants.items():
        tables = [graph.constants.get(name) for graph in graphs]
        if any(table is None or table.ndim != data.ndim for table in tables) or not all(readers.get(name, [False])):
            continue
        present = [table for table in tables if table is not None]
        longest = max(present, key=lambda table: table.size)
        if all(table.shape == data.shape for table in present) or not all(_begins(longest, table) for table in present):
            continue
        kind = TensorType(DType.of(longest.dtype), longest.shape)
        chosen = [
            replace(graph, constants={**graph.constants, name: longest}, types={**graph.types, name: kind})
            for graph in chosen
        ]
    return chosen


def _begins(longest: Array, table: Array) -> bool:
    return _is_same(longest[tuple(slice(size) for size in table.shape)], table)


def _is_same(a: Array, b: Array) -> bool:
    return np.array_equal(a, b, equal_nan=b.dtype.kind == "f")


# Outputs whose size depends on the run-time sizes: each gets another output with its size, as a count.


def varying_outputs(graphs: Collection[Graph]) -> dict[str, int]:
    """Return the outputs with run-time sizes, by their names in the model, and the first such dimension of each."""
    first, *_ = graphs
    axes = {}
    for index, name in enumerate(first.output_names[: len(first.caller_outputs)]):
        shapes = [graph.types[graph.outputs[index]].shape for graph in graphs]
        varying = [axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1]
        if varying:
            axes[name] = varying[0]
    return axes


def with_counts(graph: Graph, outputs: Mapping[str, int]) -> Graph:
    """Return a graph with a count output for each of these, as for outputs whose size depends on data."""
    values = dict(zip(graph.output_names, graph.caller_outputs, strict=False))
    names = Names(lambda name: name in graph.types or any(node.name == name for node in graph.nodes))
    types, counts = dict(graph.types), dict(graph.counts)
    nodes: list[Node] = []
    counters, labels = [], []
    for name, axis in outputs.items():
        value = names.take(f"{name}_count")
        label = Names(lambda label: label in graph.output_names or label in graph.inputs).take(f"{name}_count")
        types[value] = TensorType(DType.INT32, ())
        size = Loop(expr=const(graph.types[values[name]].shape[axis], DType.INT32), label="count")
        nodes.append(Node("loop", names.take(f"count_{len(graph.nodes) + len(nodes)}"), (), (value,), size))
        counters.append(value)
        labels.append(label)
        counts[name] = label, axis
    count = len(graph.caller_outputs)  # the states follow them
    return replace(
        graph,
        types=types,
        nodes=(*graph.nodes, *nodes),
        outputs=(*graph.outputs[:count], *counters, *graph.outputs[count:]),
        output_names=(*graph.output_names[:count], *labels, *graph.output_names[count:]),
        counts=counts,
    )


# The sizes become inputs of the graph at the largest, and of its operators that depend on them.


def with_sizes(
    graph: Graph,
    samples: Sequence[tuple[Point, Graph]],
    symbols: Sequence[str],
    ranges: Mapping[str, tuple[int, int]],
) -> Graph:
    """Return the graph at the largest sizes, which become inputs of it and of the nodes that depend on them."""
    names = Names(lambda name: name in graph.types)
    sizes = tuple(
        RunTimeSize(name, symbol, names.take(symbol), *ranges[name])
        for name, symbol in zip(ranges, symbols, strict=True)
    )
    values = tuple(size.value for size in sizes)
    by_name = [{node.name: node for node in sample.nodes} for _, sample in samples]
    nodes = []
    for node in graph.nodes:
        at_points = [(nodes_at[node.name], sample) for nodes_at, (_, sample) in zip(by_name, samples, strict=True)]
        depends = any(_signature(other, sample) != _signature(node, graph) for other, sample in at_points)
        depends = depends and not isinstance(node.attrs, View)
        nodes.append(replace(node, inputs=(*node.inputs, *values)) if depends else node)
    count = len(graph.caller_inputs)
    return replace(
        graph,
        inputs=(*graph.inputs[:count], *values, *graph.inputs[count:]),
        types={**graph.types, **dict.fromkeys(values, TensorType(DType.INT32, ()))},
        nodes=tuple(nodes),
        sizes=sizes,
        samples=tuple((point, replace(sample, is_sample=True)) for point, sample in samples),
        fixed_sizes=_fixed_sizes([sample for _, sample in samples]),
    )


def _signature(node: Node, graph: Graph) -> tuple[object, ...]:
    """Return what an operator's C depends on."""
    attrs = node.attrs if not isinstance(node.attrs, Rounds) else node.attrs.most
    return attrs, [graph.types[value] for value in (*node.inputs, *node.outputs) if value]


def _fixed_sizes(graphs: Sequence[Graph]) -> frozenset[int]:
    """Return the sizes of dimensions that are equal in all graphs."""
    sizes = set()
    for value, kind in graphs[0].types.items():
        for axis, size in enumerate(kind.shape):
            if all(graph.types[value].shape[axis] == size for graph in graphs):
                sizes.add(size)
    return frozenset(sizes)


_MAX_SIZES = 2
_FEWEST = 3  # sizes that have to be left
log = logging.getLogger(__name__)
Imports = dict[Point, Graph]


def lowered(path: Path, target: Target, options: ModelOptions, maxima: Mapping[str, int]) -> tuple[Graph, Graph]:
    """Read a model whose dimensions `maxima` are run-time sizes, and lower it to kernels and loops.

    Returns:
        The imported graph at the largest sizes; the lowered graph for all sizes.

    Raises:
        UsageError: a largest size is not a positive number.
        ModelError: the model can't be compiled at some sizes, or depends on them in a way that no formula describes.
    """
    if len(maxima) > _MAX_SIZES:
        raise UsageError(
            f"--max is given for {plural.count(len(maxima), 'input dimension')}; at most {_MAX_SIZES} are supported"
        )
    of_data = {name: most for name, most in options.maxima.items() if name not in maxima}
    names = tuple(maxima)
    symbols = tuple(f"{name}_" if keyword.iskeyword(name) else name for name in tensor_names(names))
    model = _Model(path, replace(options, maxima=of_data, keeps_rounds=True), names, tuple(maxima.values()), symbols)
    least = model.following(model.least())
    graphs, joined = model.lowered(least, target)
    points = [point for point in emitted_points(graphs, least, model.top) if model.is_known(joined, point)]
    samples = [(point, model.at(joined, point)) for point in points]
    graph = dict(samples)[model.top]
    model.check_outputs(joined)
    model.check(graph, samples)
    ranges = dict(zip(names, zip(least, model.top, strict=True), strict=True))
    return model.imported[model.top], with_sizes(graph, samples, symbols, ranges)


@frozen
class _Model:
    """A model with run-time sizes: their names in the model, largest values and names in formulas; its imports.

    The smallest sizes may behave differently: a slice of 5 rows is cut short if there are fewer, and a window that is
    wider than its input is padded. The run-time sizes then start above those.
    """

    path: Path
    options: ModelOptions
    names: tuple[str, ...]
    top: Point
    symbols: tuple[str, ...]
    imported: Imports = field(default_factory=dict)

    def error(self, reason: str, details: Sequence[str]) -> ModelError:
        """Return the error for a model that can't be compiled for all sizes."""
        return ModelError(
            f"{self.path.name} can't be compiled with run-time sizes ({', '.join(self.names)}): {reason}",
            details=details,
            hint="give such a dimension a fixed size: " + " ".join(f"--dim {argument(name)}=N" for name in self.names),
        )

    def text_of(self, point: Point) -> str:
        """Return the values of the sizes as text."""
        return ", ".join(f"{name} = {size}" for name, size in zip(self.names, point, strict=True))

    def load(self, point: Point) -> Graph:
        """Return the graph at some sizes."""
        dims = {**self.options.dims, **dict(zip(self.names, point, strict=True))}
        graph = frontend.load(self.path, replace(self.options, dims=dims))
        return sharing(graph, self.imported[self.top]) if self.imported else graph

    def add(self, point: Point) -> bool:
        """Import the model at some sizes; it may refuse sizes above the requested maximum."""
        if point in self.imported:
            return True
        try:
            self.imported[point] = self.load(point)
        except ModelError as refused:
            if is_within(point, self.top):
                reason = f"it can't be compiled for {self.text_of(point)}"
                raise self.error(reason, [refused.what, *refused.details]) from None
            return False
        return True

    def least(self) -> Point:
        """Import the model at several points; return the smallest sizes that it accepts, each size on its own."""
        top = self.imported[self.top] = self.load(self.top)
        least, structure = [], [_outline(node) for node in top.nodes]
        for index, most in enumerate(self.top):
            for size in smallest_sizes(most):
                point = with_size(self.top, index, size)
                try:
                    graph = self.imported.get(point) or self.load(point)
                except ModelError:
                    continue
                if size == most or [_outline(node) for node in graph.nodes] == structure:
                    self.imported[point] = graph
                    least.append(size)
                    break
        self.structural(tuple(least))
        for point in small_points(self.top, tuple(least)):
            self.add(point)
        return tuple(least)

    def structural(self, least: Point, count: int = STRUCTURE) -> list[Point]:
        """Return the points at which the graph is lowered, the largest first; import the model there."""
        sizes = {size for kind in self.imported[self.top].types.values() for size in kind.shape}
        points = [point for point in structural_points(self.top, least, sizes, count) if self.add(point)]
        return list(dict.fromkeys([self.top, *points]))

    def following(self, least: Point) -> Point:
        """Return the smallest sizes from which on all imports follow formulas; drop the imports below.

        Raises:
            ModelError: there are none: the model follows no formulas even near the largest sizes.
        """
        if self.follows(least):
            return least
        self.structural(least, MORE_STRUCTURE)
        raised = least
        try:
            self.check_imports(self.imported)
        except ModelError:
            start = self.raised(least)
            if start is None:
                raise
            self.structural(start, MORE_STRUCTURE)
            raised = self.lowest(least, start)
        for point in dense_points(self.top, raised):
            self.add(point)
        above = self.above(raised)
        self.check_imports(above)
        for name, before, size in zip(self.names, least, raised, strict=True):
            if size > before:
                log.warning("%s starts at %d: below that, shapes or operators differ", name, size)
        self.imported.clear()
        self.imported.update(above)
        return raised

    def above(self, least: Point) -> Imports:
        """Return the imports at these sizes and above."""
        return {point: graph for point, graph in self.imported.items() if is_within(least, point)}

    def follows(self, least: Point) -> bool:
        """Whether all imports follow formulas from these sizes on."""
        try:
            self.check_imports(self.above(least))
        except ModelError:
            return False
        return True

    def raised(self, least: Point) -> Point | None:
        """Return the smallest imported sizes from which on all follow formulas; None: there are none."""
        choices = []
        for index, (low, most) in enumerate(zip(least, self.top, strict=True)):
            sizes = sorted({point[index] for point in self.imported})[: 1 - _FEWEST]
            choices.append(sorted({low, *(size for size in sizes if size <= most)}))
        points = sorted(itertools.product(*choices), key=sum)
        return next((point for point in points if point != least and self.follows(point)), None)

    def lowest(self, least: Point, start: Point) -> Point:
        """Return the smallest sizes from which on the model follows formulas, between those that were imported."""
        for index, good in enumerate(start):
            low = max((point[index] for point in self.imported if point[index] < good), default=least[index] - 1)
            high = good
            while high - low > 1:
                size = (low + high) // 2
                self.add(with_size(self.top, index, size))
                if self.follows(with_size(start, index, size)):
                    high = size
                else:
                    low = size
            start = with_size(start, index, high)
        return start

    def other_structure(self, graphs: Sequence[Graph], points: Sequence[Point], error: DifferError) -> ModelError:
        """Return the error for graphs with different structures; it names an operator that differs."""
        first = graphs[0]
        for graph, point in zip(graphs[1:], points[1:], strict=True):
            for node, other in zip(first.nodes, graph.nodes, strict=False):
                if _outline(node) != _outline(other):
                    return self.error(
                        "its operators are not the same at all sizes",
                        [
                            f"{self.text_of(points[0])}: {node.op} {node.name}",
                            f"{self.text_of(point)}: {other.op} {other.name}",
                        ],
                    )
        return self.error("an operator depends on the run-time sizes in a way that no formula describes", [str(error)])

    def lowered(self, least: Point, target: Target) -> tuple[Imports, Joined]:
        """Lower the graph at some sizes, at more if those are too few; return these graphs, and the joined one."""
        graphs: Imports = {}
        for count in (STRUCTURE, MORE_STRUCTURE):
            structural = self.structural(least, count)
            outputs = varying_outputs(self.imported.values())
            moved = with_open_moves({point: self.imported[point] for point in structural})
            for point, graph in moved.items():
                if point not in graphs:
                    graphs[point] = with_counts(passes.run(graph, target), outputs)
            try:
                return graphs, self.joined(graphs)
            except ModelError:
                if count == MORE_STRUCTURE:
                    raise
        raise AssertionError

    def check_imports(self, imported: Mapping[Point, Graph]) -> None:
        """Check that all imports have one structure, and that their shapes follow formulas, at small sizes too."""
        points, graphs = tuple(imported), list(imported.values())
        joiner = Joiner(self.symbols, points)
        try:
            if len({len(graph.nodes) for graph in graphs}) > 1:
                raise DifferError("there are more operators at some sizes than at others")
            for nodes in zip(*(graph.nodes for graph in graphs), strict=True):
                joiner.join(nodes, f"{nodes[0].op} {', '.join(nodes[0].origins[:3]) or nodes[0].name}")
            check_mirrors(graphs)
        except DifferError as error:
            raise self.other_structure(graphs, points, error) from None
        read = {value for node in graphs[0].nodes for value in node.inputs} | {*graphs[0].outputs}
        for name in (name for name in graphs[0].constants if name in read):
            try:
                joiner.join([graph.constants[name] for graph in graphs], name)
            except (DifferError, KeyError) as error:
                raise self.error("a constant depends on the run-time sizes", [str(error)]) from None
        for value, kind in graphs[0].types.items():
            kinds = [graph.types.get(value, kind) for graph in graphs]
            try:
                joiner.join(kinds, value)
            except DifferError:
                raise self.error(
                    f"the shape of {value!r} is not a formula of the run-time sizes",
                    [f"{self.text_of(point)}: {shape}" for point, shape in zip(points[:5], kinds, strict=False)],
                ) from None

    def joined(self, graphs: Mapping[Point, Graph]) -> Joined:
        """Return the lowered graph for all sizes."""
        failed: DifferError | None = None
        others = tuple(point for point in graphs if point != self.top)
        beyond = any(is_within(self.top, point) for point in others)
        for points in (tuple(graphs), *([others] if beyond else [])):  # the largest may meet another dimension's
            chosen = with_large_tables([graphs[point] for point in points])
            try:
                return Joiner(self.symbols, points, scales=chosen[0].scales).join(chosen)
            except DifferError as error:
                failed = failed or error
        details = [*_operator_of(next(iter(graphs.values())), str(failed)), str(failed)]
        raise self.error("an operator depends on the run-time sizes in a way that no formula describes", details)

    def check_outputs(self, joined: Joined) -> None:
        """Check that the outputs of the joined graph have the same shapes as in the imports."""
        for point, graph in self.imported.items():
            if not is_within(point, self.top):
                continue
            actual = self.at(joined, point)
            for label, value in zip(graph.output_names, graph.outputs, strict=True):
                output = dict(zip(actual.output_names, actual.outputs, strict=True))[label]
                if graph.types[value].shape != actual.types[output].shape:
                    raise self.error(
                        f"the shape of {label!r} is not a formula of the run-time sizes",
                        [f"{self.text_of(point)}: {graph.types[value]}, by the formula {actual.types[output]}"],
                    )

    def at(self, joined: Joined, point: Point) -> Graph:
        """Return the lowered graph at some sizes."""
        try:
            graph: Graph = joined.at(dict(zip(self.symbols, point, strict=True)))
        except DifferError as error:
            raise self.error("a constant depends on the run-time sizes", [str(error)]) from None
        return graph

    def is_known(self, joined: Joined, point: Point) -> bool:
        """Return whether the graph is valid at some sizes: tables may end where the largest sizes need no more."""
        if is_within(point, self.top):
            return True
        try:
            joined.at(dict(zip(self.symbols, point, strict=True)))
        except DifferError:
            return False
        return True

    def check(self, graph: Graph, samples: Sequence[tuple[Point, Graph]]) -> None:
        """Refuse graphs with parts that can't follow the sizes, or that need more memory at smaller sizes."""
        states = {value for _, *pair in graph.state_values for value in pair}
        for point, sample in samples:
            for value, kind in sample.types.items():
                if value in states and kind != graph.types[value]:
                    raise self.error(
                        f"the size of the state {value!r} depends on the run-time sizes",
                        [f"{graph.types[value]}, for {self.text_of(point)} {kind}"],
                    )
                if is_within(point, samples[0][0]) and kind.bytes > graph.types[value].bytes:
                    raise self.error(
                        f"{value!r} grows as a size shrinks",
                        [f"{graph.types[value]}, for {self.text_of(point)} {kind}"],
                    )
            for node, other in zip(graph.nodes, sample.nodes, strict=True):
                where = f"{node.op} {', '.join(node.origins[:3])}"
                if isinstance(node.attrs, View) and View.of(node).first != View.of(other).first:
                    raise self.error("the start of a slice depends on the run-time sizes", [where])
                if any(a is not b for a, b in zip(bodies_of(node), bodies_of(other), strict=True)):
                    raise self.error("tensors inside control flow depend on the run-time sizes", [where])


def _outline(node: Node) -> tuple[object, ...]:
    """Return the parts of an operator that must be equal at all sizes."""
    return node.op, node.inputs, node.outputs, type(node.attrs)


def _operator_of(graph: Graph, where: str) -> list[str]:
    """Return the operator that a difference is in, as far as the place where it was found shows it."""
    number = re.match(r"nodes\[(\d+)\]", where)
    readers = [
        node
        for index, node in enumerate(graph.nodes)
        if (number and index == int(number[1]))
        or any(where.startswith((f"constants {value}:", f"types {value}.")) for value in node.inputs)
    ]
    return [f"operator {', '.join(node.origins[:3]) or node.name}" for node in readers[:1]]
