"""The operands of an expression that a pass has changed."""

from collections.abc import Sequence
from dataclasses import replace

from mtool.compiler.ir import Computation, Expr, Node
from mtool.compiler.kernels.registry import SPECIFICATIONS


def with_expression(node: Node, expr: Expr, inputs: Sequence[str]) -> Node:
    """Return a node of another expression, which reads `inputs`, without unread ones; a kernel keeps its own."""
    read, own = expr.operands(), len(SPECIFICATIONS[node.op].own(node))
    kept = [number for number in range(len(inputs)) if number < own or number in read]
    moved = expr.with_operands({old: new for new, old in enumerate(kept)})
    attrs = replace(Computation.of(node), expr=moved)
    return replace(node, inputs=tuple(inputs[number] for number in kept), attrs=attrs)
