"""Rewrites moves of elements at the end of an open dimension so that their numbers follow the sizes.

A Gather of the last row and a Pad after it read tables of indices, which would differ for each size. A Slice begins
where a formula puts it, and a Concat needs no table.
"""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from mtool.base.formulas import Point
from mtool.compiler.ir import Attributes, DType, Graph, Node, TensorType
from mtool.compiler.ir.graph import Names
from mtool.compiler.ir.parametric import DifferError
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.lowering import AlongAxis
from mtool.compiler.operators.movement import Pad, Slice

# Points: values of the run-time sizes at which a model is imported and lowered, and its C compared.

FEW = 4  # below it, other kernels may be chosen
STRUCTURE = 5
"""The number of values of a size at which a graph is lowered."""
MORE_STRUCTURE = 18
"""The same if those are too few to determine which quotient the numbers follow."""
_SMALL = (1, 2, 3, 5)  # at which the model is also imported
_BETWEEN = 3  # sizes between the smallest and those near the largest, at which it is imported too
_DENSE = 64  # sizes at which a model is imported if it follows no formula at the few
_SMALLEST = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 32, 48, 64)  # candidates for a model's smallest size
_EMITTED = (*range(1, 20), 31, 32, 33, 48, 63, 64, 65, 80)  # for which C is also compared
_EMITTED_BEYOND = 19  # for any largest size


def with_size(point: Point, index: int, size: int) -> Point:
    """Return a point with another value for one size."""
    return (*point[:index], size, *point[index + 1 :])


def is_within(point: Point, top: Point) -> bool:
    """Return whether no size is larger than the requested maximum."""
    return all(size <= most for size, most in zip(point, top, strict=True))


def smallest_sizes(most: int) -> tuple[int, ...]:
    """Return the sizes to try, in order, to find the smallest that a model accepts."""
    return (*(size for size in _SMALLEST if size < most), most)


def small_points(top: Point, least: Point) -> Iterator[Point]:
    """Yield further points at which the model is imported to check its formulas: each size on its own."""
    for index, (low, most) in enumerate(zip(least, top, strict=True)):
        between = [low + (most - low) * part // (2 * _BETWEEN + 1) for part in range(1, _BETWEEN + 1)]
        for size in dict.fromkeys((*_SMALL, *between)):
            if low <= size < most:
                yield with_size(top, index, size)


def dense_points(top: Point, least: Point) -> Iterator[Point]:
    """Yield every size on its own, or many of them: a formula that is not simple has to hold at all of these."""
    for index, (low, most) in enumerate(zip(least, top, strict=True)):
        for part in range(min(most - low, _DENSE)):
            yield with_size(top, index, low + part * (most - low) // min(most - low, _DENSE))


def structural_points(top: Point, least: Point, excluded: Collection[int], count: int = STRUCTURE) -> Iterator[Point]:
    """Yield points at which the graph is lowered: `count` of each size on its own, then several together."""
    values = [_values(most, low, excluded)[:count] for most, low in zip(top, least, strict=True)]
    for index, sizes in enumerate(values):
        for size in sizes:
            yield with_size(top, index, size)
    if len(top) > 1:
        yield from itertools.product(*(sizes[:3] for sizes in values))


def _values(most: int, least: int, excluded: Collection[int]) -> list[int]:
    """Return values of a size at which graphs are compared.

    They are near the largest, because passes may choose other kernels for a few rows; none equals the size of another
    dimension, for which it could be mistaken.
    """
    parts = [most - 1, most - 2, most // 2 + 1, most * 2 // 3, most * 3 // 4, most - 3, most // 2 - 1, most // 3]
    below = [size for size in dict.fromkeys([*parts, *range(most - 4, max(most - 40, 1), -1)]) if least <= size < most]
    beyond = [most + step for step in (1, 2, 3, 5, 7, 9, 10, 11, 13)]
    return [size for size in (*below, *beyond) if size not in excluded and size >= FEW]


def emitted_points(graphs: Collection[Point], least: Point, top: Point) -> list[Point]:
    """Return the points for which C is compared, the largest first."""
    points = dict.fromkeys([top, *graphs])
    base = tuple(max(most, FEW) for most in top)
    for index, (low, most) in enumerate(zip(least, top, strict=True)):
        first = low if len(top) == 1 else max(low, 2)
        small = [size for size in _EMITTED if first <= size <= max(most, _EMITTED_BEYOND)]
        points |= dict.fromkeys(with_size(base, index, size) for size in small)
    if len(top) > 1:  # every remainder of one size with every one of the other
        firsts = [max(FEW, low + 1) for low in least]
        points |= dict.fromkeys(itertools.product(*(range(first, first + FEW) for first in firsts)))
    return list(points)


_MAX_ROWS = 16  # rows that are moved one by one


def with_open_moves(graphs: Mapping[Point, Graph]) -> dict[Point, Graph]:
    """Return graphs of one model at several sizes with such moves rewritten.

    A node is rewritten at all sizes or at none.
    """
    first = next(iter(graphs.values()))
    chosen: dict[str, tuple[int, ...]] = {}
    for node in first.nodes:
        shapes = [graph.types[node.inputs[0]].shape for graph in graphs.values()] if node.op in _FORMS else []
        varying = tuple(axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1)
        if varying and all(_is_open(node, graph, varying) for graph in graphs.values()):
            chosen[node.name] = varying
    return {point: _written(graph, chosen) for point, graph in graphs.items()} if chosen else dict(graphs)


def check_mirrors(graphs: Sequence[Graph]) -> None:
    """Check that no Pad mirrors more elements of an open dimension than it has.

    Args:
        graphs: those of one model, with the same structure.

    Raises:
        DifferError: one does, so it would go back and forth.
    """
    for nodes in zip(*(graph.nodes for graph in graphs), strict=True):
        if not isinstance(nodes[0].attrs, Pad) or nodes[0].attrs.mode != "reflect":
            continue
        shapes = [graph.types[node.inputs[0]].shape for node, graph in zip(nodes, graphs, strict=True)]
        for node, graph, shape in zip(nodes, graphs, shapes, strict=True):
            sides = zip(Pad.of(node).before, _behind(node, graph), strict=True)
            for axis, (count, most) in enumerate(zip(shape, map(max, sides), strict=True)):
                if most >= count and any(other[axis] != count for other in shapes):
                    raise DifferError(f"{node.name} mirrors {most} elements of {count}")


def _is_open(node: Node, graph: Graph, varying: Collection[int]) -> bool:
    """Return whether a node moves elements at the end of a varying dimension and can be rewritten at this size."""
    if isinstance(node.attrs, Pad):
        return _is_open_pad(node, graph, varying)
    indices = graph.constants.get(node.inputs[1])
    is_known = indices is not None and 0 < indices.size <= _MAX_ROWS and bool((indices < 0).any())
    return is_known and AlongAxis.of(node).axis in varying


def _is_open_pad(node: Node, graph: Graph, varying: Collection[int]) -> bool:
    attrs, size = Pad.of(node), graph.types[node.inputs[0]].shape
    behind = _behind(node, graph)
    for axis in varying:
        before, after = attrs.before[axis], behind[axis]
        furthest = size[axis] - 1 if attrs.mode == "reflect" else _MAX_ROWS
        if not (0 <= before <= furthest and 0 <= after <= furthest):
            return False
    return len(node.inputs) == 1 and attrs.mode != "wrap" and any(behind[axis] for axis in varying)


def _behind(node: Node, graph: Graph) -> list[int]:
    """Return how many elements a Pad appends to each dimension."""
    shapes = (graph.types[value].shape for value in (node.inputs[0], node.outputs[0]))
    return [total - size - before for size, total, before in zip(*shapes, Pad.of(node).before, strict=True)]


def _written(graph: Graph, chosen: Mapping[str, tuple[int, ...]]) -> Graph:
    """Return a graph with the chosen nodes rewritten along the dimensions that vary."""
    writing = _Writing(graph)
    for node in graph.nodes:
        if node.name in chosen:
            _FORMS[node.op](writing, node, chosen[node.name])
        else:
            writing.nodes.append(node)
    return replace(graph, nodes=tuple(writing.nodes), types=writing.types, constants=writing.constants)


@dataclass(slots=True)
class _Writing:
    """A graph under construction: its nodes so far, with all values and constants."""

    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    types: dict[str, TensorType] = field(init=False)
    constants: dict[str, Array] = field(init=False)
    names: Names = field(init=False)

    def __post_init__(self) -> None:
        self.types, self.constants = dict(self.graph.types), dict(self.graph.constants)
        used = {node.name for node in self.graph.nodes}
        self.names = Names(lambda name: name in self.types or name in used)

    def node(self, like: Node, op: str, inputs: Sequence[str], attrs: Attributes, shape: Sequence[int]) -> str:
        """Append a node and return its output, which has the type of its first input."""
        value = self.names.take(f"{like.outputs[0]}.part")
        self.types[value] = TensorType(self.types[inputs[0]].dtype, tuple(shape))
        name = self.names.take(f"{like.name}.{op.lower()}")
        self.nodes.append(Node(op, name, tuple(inputs), (value,), attrs, like.origins))
        return value

    def last(self, like: Node, op: str, inputs: Sequence[str], attrs: Attributes) -> None:
        """Append the node that writes the output of another one."""
        self.nodes.append(Node(op, like.name, tuple(inputs), like.outputs, attrs, like.origins))

    def rows(self, like: Node, value: str, axis: int, first: int, count: int, stride: int = 1) -> str:
        """Return some rows along a dimension, from a first one on."""
        shape = list(self.types[value].shape)
        shape[axis] = count
        firsts, strides = [0] * len(shape), [1] * len(shape)
        firsts[axis], strides[axis] = first, stride
        return self.node(like, "Slice", [value], Slice(first=tuple(firsts), stride=tuple(strides)), shape)

    def block(self, like: Node, value: str, axis: int, count: int, element: float) -> str:
        """Return rows with one number; after a dequantization they are dequantized too, so that integers are moved."""
        kind, shape = self.types[value], list(self.types[value].shape)
        shape[axis] = count
        maker = next((node for node in self.graph.nodes if value in node.outputs), None)
        if element or maker is None or maker.op != "DequantizeLinear" or len(maker.inputs) < 3:
            return self.constant(f"{value}.block", np.full(shape, element, kind.dtype.numpy))
        point = self.constants.get(maker.inputs[2])
        if point is None or point.size != 1:
            return self.constant(f"{value}.block", np.full(shape, element, kind.dtype.numpy))
        zeros = self.constant(f"{value}.block", np.full(shape, point.item(), point.dtype))
        output = self.names.take(f"{value}.zeros")
        self.types[output] = TensorType(kind.dtype, tuple(shape))
        name = self.names.take(f"{like.name}.zeros")
        self.nodes.append(replace(maker, name=name, inputs=(zeros, *maker.inputs[1:]), outputs=(output,)))
        return output

    def constant(self, name: str, data: Array) -> str:
        """Return a constant's name."""
        name = self.names.take(name)
        self.types[name], self.constants[name] = TensorType(DType.of(data.dtype), data.shape), data
        return name


def _gather(writing: _Writing, node: Node, varying: Collection[int]) -> None:
    """Gather: each index is a slice of one row."""
    value, axis = node.inputs[0], AlongAxis.of(node).axis
    size = writing.types[value].shape[axis]
    indices = writing.constants[node.inputs[1]].reshape(-1).tolist()
    parts = [writing.rows(node, value, axis, index + size if index < 0 else index, 1) for index in indices]
    shape = list(writing.types[value].shape)
    shape[axis] = len(parts)
    joined = parts[0] if len(parts) == 1 else writing.node(node, "Concat", parts, AlongAxis(axis=axis), shape)
    writing.last(node, "Reshape", [joined], Attributes())


def _pad(writing: _Writing, node: Node, varying: Collection[int]) -> None:
    """Pad: a Concat along each dimension that varies, after a Pad of the others."""
    value, attrs, behind = node.inputs[0], Pad.of(node), _behind(node, writing.graph)
    ends = writing.types[node.outputs[0]].shape
    shape = [size if axis in varying else ends[axis] for axis, size in enumerate(writing.types[value].shape)]
    if tuple(shape) != writing.types[value].shape:
        before = tuple(0 if axis in varying else count for axis, count in enumerate(attrs.before))
        value = writing.node(node, "Pad", [value], replace(attrs, before=before), shape)
    for axis in varying:
        sides = attrs.before[axis], behind[axis]
        parts = [_border(writing, node, value, axis, count, is_end=bool(end)) for end, count in enumerate(sides)]
        shape[axis] += sum(sides)
        value = writing.node(node, "Concat", [*parts[0], value, *parts[1]], AlongAxis(axis=axis), shape)
    assert prod(shape) == writing.types[node.outputs[0]].count
    writing.last(node, "Reshape", [value], Attributes())


def _border(writing: _Writing, node: Node, value: str, axis: int, count: int, *, is_end: bool) -> list[str]:
    """Return the rows that a Pad adds before or after a dimension."""
    if not count:
        return []
    attrs, size = Pad.of(node), writing.types[value].shape[axis]
    if attrs.mode == "constant":
        return [writing.block(node, value, axis, count, attrs.value)]
    if attrs.mode == "edge":
        return [writing.rows(node, value, axis, size - 1 if is_end else 0, 1)] * count
    return [writing.rows(node, value, axis, size - 2 if is_end else count, count, -1)]


_FORMS = {"Gather": _gather, "Pad": _pad}
