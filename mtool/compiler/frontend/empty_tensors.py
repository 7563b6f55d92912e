"""Tensors without elements: their value is known, so whatever depends on nothing else is a constant."""

from dataclasses import replace

from mtool.compiler.ir import Graph


def without_empty_inputs(graph: Graph) -> Graph:
    """Replace inputs without elements by constants where operators read them; the interface keeps them."""
    empty: dict[str, str] = {}
    for value in graph.inputs:
        if value in graph.constants:
            empty[value] = f"{value}/empty"
            while empty[value] in graph.types:
                empty[value] += "/empty"
    if not empty:
        return graph
    nodes = (replace(node, inputs=tuple(empty.get(value, value) for value in node.inputs)) for node in graph.nodes)
    return replace(
        graph,
        nodes=tuple(nodes),
        types={**graph.types, **{new: graph.types[old] for old, new in empty.items()}},
        constants={empty.get(value, value): data for value, data in graph.constants.items()},
    )
