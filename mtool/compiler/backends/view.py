"""The two graphs of a network: the view, in which operators are recognised, and what is computed.

Both are of one file, with the same names for its tensors. The names of what states become are each graph's own.
"""

from dataclasses import replace

from mtool.compiler.ir import Graph


def aligned(view: Graph, graph: Graph) -> Graph:
    """Return a view with the names that a graph has for the last values of its states."""
    names = {given: last for _, given, last in graph.state_values}
    new = {last: names[given] for _, given, last in view.state_values if given in names}
    new = {old: name for old, name in new.items() if old != name and name not in view.types}
    if not new:
        return view

    def of(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new.get(value, value) for value in values)

    return replace(
        view,
        nodes=tuple(replace(node, inputs=of(node.inputs), outputs=of(node.outputs)) for node in view.nodes),
        outputs=of(view.outputs),
        types={new.get(value, value): kind for value, kind in view.types.items()},
        quant={new.get(value, value): quant for value, quant in view.quant.items()},
        sources={new.get(value, value): source for value, source in view.sources.items()},
    )
