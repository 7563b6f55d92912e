"""Outputs whose size follows the run-time sizes: each gets another output that tells its size, as a count."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from mtool.compiler.ir import DType, Graph, Node, TensorType
from mtool.compiler.ir.expr import const
from mtool.compiler.ir.graph import Names
from mtool.compiler.kernels.loop.node import Loop


def varying_outputs(graphs: Collection[Graph]) -> dict[str, int]:
    """Return the outputs whose size follows the sizes, by their names in the model, and along which dimension first."""
    first, *_ = graphs
    found = {}
    for index, name in enumerate(first.output_names[: len(first.caller_outputs)]):
        shapes = [graph.types[graph.outputs[index]].shape for graph in graphs]
        varying = [axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1]
        if varying:
            found[name] = varying[0]
    return found


def with_counts(graph: Graph, outputs: Mapping[str, int]) -> Graph:
    """Return a graph with an output that tells the size of each of these, as those have whose size depends on data."""
    values = dict(zip(graph.output_names, graph.caller_outputs, strict=False))
    names = Names(lambda name: name in graph.types or any(node.name == name for node in graph.nodes))
    types, counts = dict(graph.types), dict(graph.counts)
    nodes: list[Node] = []
    counters, labels = [], []
    for name, axis in outputs.items():
        value = names.take(f"{name}_count")
        label = Names(lambda label: label in graph.output_names or label in graph.inputs).take(f"{name}_count")
        types[value] = TensorType(DType.INT32, ())
        size = const(graph.types[values[name]].shape[axis], DType.INT32)
        nodes.append(
            Node(
                "loop",
                names.take(f"count_{len(graph.nodes) + len(nodes)}"),
                (),
                (value,),
                Loop(expr=size, label="count"),
            )
        )
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
