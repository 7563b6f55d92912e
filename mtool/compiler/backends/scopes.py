"""The graphs of a network: the whole, and those inside of its branches and loops, each parted by itself."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from mtool.compiler.backends.layout import put_channels_last
from mtool.compiler.backends.operation import Operation
from mtool.compiler.backends.reading import operations_of
from mtool.compiler.ir import Graph
from mtool.compiler.ir.control import Control


@dataclass(frozen=True, slots=True)
class Scope:
    """A graph of a network.

    path: the control nodes around it and which of their graphs it is, "" of the whole: "loop_3/body/".
    view: the graph where integers are rounded as in ONNX.
    graph: the same, rounded as it is to be computed.
    operations: those of the view; their names begin with the path.
    """

    path: str
    view: Graph
    graph: Graph
    operations: tuple[Operation, ...]


def scope_of(view: Graph, graph: Graph, path: str, *, is_channels_last: bool) -> Scope:
    """Return a graph as a scope, laid out as backends want it."""
    if is_channels_last:
        is_same = view is graph
        view = put_channels_last(view)
        graph = view if is_same else put_channels_last(graph)
    operations = tuple(replace(one, name=f"{path}{one.name}") for one in operations_of(view))
    return Scope(path, view, graph, operations)


def inner_scopes(scope: Scope, claimed: Collection[str], *, is_channels_last: bool) -> Iterator[Scope]:
    """Yield the scopes of the graphs of a scope's control nodes, but for those that are claimed, by their paths."""
    exact = {node.name: node.attrs for node in scope.graph.nodes}
    for node in scope.view.nodes:
        attrs, other = node.attrs, exact.get(node.name)
        if not isinstance(attrs, Control) or not isinstance(other, Control) or f"{scope.path}{node.name}" in claimed:
            continue
        for name, view, graph in zip(attrs.names, attrs.bodies, other.bodies, strict=True):
            path = f"{scope.path}{node.name}/{name}/"
            yield scope_of(view, graph, path, is_channels_last=is_channels_last)


def put_together(path: str, graphs: Mapping[str, Graph]) -> Graph:
    """Return the graph of a path, whose control nodes have the graphs of the paths below it."""
    graph = graphs[path]
    if len(graphs) == 1:
        return graph
    nodes = []
    for node in graph.nodes:
        attrs = node.attrs
        paths = [f"{path}{node.name}/{name}/" for name in attrs.names] if isinstance(attrs, Control) else []
        if isinstance(attrs, Control) and all(one in graphs for one in paths):
            node = replace(node, attrs=attrs.with_bodies([put_together(one, graphs) for one in paths]))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes))
