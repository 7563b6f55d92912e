"""In-place execution: the operands that a kernel's output may be written over."""

from mtool.compiler.ir import Expr, Graph, Node
from mtool.compiler.ir.node import WithEpilogue


def identity_loads(node: Node, graph: Graph, expr: Expr) -> tuple[int, ...]:
    """Return the inputs that `expr` reads only at the element that it computes, of the output's size.

    An output may be written over such an input, element by element.
    """
    out = graph.types[node.outputs[0]]
    found: dict[int, bool] = {}
    for load in (part for part in expr.walk() if part.op == "load"):
        kind = graph.types[node.inputs[load.value]]
        same = kind.shape == out.shape and kind.dtype.size == out.dtype.size
        plain = all(
            (index.op == "axis" and index.value == dim) or kind.shape[dim] == 1 for dim, index in enumerate(load.args)
        )
        found[load.value] = found.get(load.value, True) and same and plain
    return tuple(number for number, ok in sorted(found.items()) if ok and node.inputs[number] not in graph.constants)


def residual_operands(node: Node, graph: Graph) -> tuple[int, ...]:
    """Return the inputs that a kernel's output may be written over: read element by element, and not its own input."""
    loads = identity_loads(node, graph, WithEpilogue.of(node).epilogue)
    return tuple(number for number in loads if node.inputs[number] != node.inputs[0])
