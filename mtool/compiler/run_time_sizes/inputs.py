"""The sizes become inputs of the graph at the largest, and of its operators that depend on them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mtool.base.formulas import Point
from mtool.compiler.ir import DType, Graph, Node, RunTimeSize, TensorType
from mtool.compiler.ir.control import Rounds, bodies_of
from mtool.compiler.ir.graph import Names
from mtool.compiler.ir.node import View
from mtool.compiler.run_time_sizes.points import is_within
from mtool.compiler.run_time_sizes.refusals import Refusals


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


def check(graph: Graph, samples: Sequence[tuple[Point, Graph]], refusals: Refusals) -> None:
    """Refuse what has no form that follows the sizes, and what would not fit where the largest does."""
    states = {value for _, *pair in graph.state_values for value in pair}
    for point, sample in samples:
        for value, kind in sample.types.items():
            if value in states and kind != graph.types[value]:
                raise refusals.error(
                    f"the size of the state {value!r} depends on its sizes",
                    [f"{graph.types[value]}, for {refusals.text_of(point)} {kind}"],
                )
            if is_within(point, samples[0][0]) and kind.bytes > graph.types[value].bytes:
                raise refusals.error(
                    f"{value!r} grows as a size shrinks",
                    [f"{graph.types[value]}, for {refusals.text_of(point)} {kind}"],
                )
        for node, other in zip(graph.nodes, sample.nodes, strict=True):
            where = f"{node.op} {', '.join(node.origins[:3])}"
            if isinstance(node.attrs, View) and View.of(node).first != View.of(other).first:
                raise refusals.error("where a part begins depends on its sizes", [where])
            if any(one is not two for one, two in zip(bodies_of(node), bodies_of(other), strict=True)):
                raise refusals.error("tensors inside of control flow depend on its sizes", [where])


def _signature(node: Node, graph: Graph) -> tuple[object, ...]:
    """Return what an operator's C depends on."""
    attrs = node.attrs if not isinstance(node.attrs, Rounds) else node.attrs.most
    return attrs, [graph.types[value] for value in (*node.inputs, *node.outputs) if value]


def _fixed_sizes(graphs: Sequence[Graph]) -> frozenset[int]:
    """Return the sizes of dimensions that are the same in all graphs."""
    found = set()
    for value, kind in graphs[0].types.items():
        for axis, size in enumerate(kind.shape):
            if all(graph.types[value].shape[axis] == size for graph in graphs):
                found.add(size)
    return frozenset(found)
