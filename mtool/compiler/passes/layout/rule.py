"""The type of a layout rule, and queries that several rules make."""

from collections.abc import Callable, Collection
from dataclasses import replace

from mtool.compiler.ir import Expr, Node
from mtool.compiler.ir.editor import Editor
from mtool.compiler.ir.expr import axis, identity
from mtool.compiler.kernels.loop.node import Loop

Shape = tuple[int, ...]

Change = Callable[[Editor, Node], object]
"""What is done in place of a node: nodes that are appended take its place."""


Rule = Callable[[Editor, Node], Change | None]
"""What a rule changes at a node; None: it does not fit there."""


def inverse(perm: Shape) -> Shape:
    """Return the permutation that turns what `perm` turned back."""
    return tuple(perm.index(dim) for dim in range(len(perm)))


def whole_operands(node: Node, graph: Editor) -> list[str]:
    """Return the values of the output's shape that a loop reads."""
    shape = graph.types[node.outputs[0]].shape
    values = dict.fromkeys(node.inputs)
    return [value for value in values if graph.types[value].shape == shape and value not in graph.constants]


def reads_own_element(node: Node, graph: Editor, values: list[str]) -> bool:
    """Whether a loop without reductions reads no element of `values` but that which it writes."""
    expr = Loop.of(node).expr
    return not any(part.op == "reduce" for part in expr.walk()) and all(
        index == axis(dim) or (index.op == "const" and graph.types[node.inputs[part.value]].shape[dim] == 1)
        for part in expr.walk()
        if part.op == "load" and node.inputs[part.value] in values
        for dim, index in enumerate(part.args)
    )


def own_element(expr: Expr, node: Node, values: Collection[str], rank: int) -> Expr:
    """Make loads of `values` read the loop's own element, in a loop of `rank` axes."""

    def fix(part: Expr) -> Expr:
        if part.op == "load" and node.inputs[part.value] in values:
            return replace(part, args=identity(rank))
        return part

    return expr.rewrite(fix)
