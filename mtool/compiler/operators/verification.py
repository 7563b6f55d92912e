"""Verification: each node of a graph has a known kind and meets its kind's requirements."""

from mtool.compiler.ir import Graph, Node, control
from mtool.compiler.ir.graph import verify as verify_structure
from mtool.compiler.kernels.registry import SPECIFICATIONS
from mtool.compiler.operators import lowering_of


def verify(graph: Graph) -> None:
    """Check a graph, its nodes and the graphs in it.

    Raises:
        AssertionError: the graph is not valid, which is a bug in the pass that made it.
    """
    for inner in control.all_graphs(graph):
        verify_one_graph(inner)


def verify_one_graph(graph: Graph) -> None:
    """Check a graph and its nodes, but not the graphs in it.

    Raises:
        AssertionError: the graph is not valid, which is a bug in the pass that made it.
    """
    verify_structure(graph)
    for node in graph.nodes:
        _verify_node(node, graph)
        control.check(node, graph)


def _verify_node(node: Node, graph: Graph) -> None:
    if node.op in SPECIFICATIONS:
        SPECIFICATIONS[node.op].check(node, graph)
        return
    operator = lowering_of(node.op)
    assert operator is not None, f"{node.name} is of an unknown kind, {node.op}"
    actual, expected = type(node.attrs), operator.attributes
    assert actual is expected, f"{node.op} {node.name} has {actual.__name__}; expected {expected.__name__}"
