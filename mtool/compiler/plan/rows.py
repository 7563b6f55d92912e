"""The rows of its inputs that an operator reads when it is computed a few rows at a time."""

from mtool.compiler.ir import Attributes, Expr, Graph, Node
from mtool.compiler.ir.expr import axis
from mtool.compiler.ir.node import expression_of
from mtool.compiler.kernels.registry import SPECIFICATIONS
from mtool.compiler.kernels.specification import RowReads


def row_reads(node: Node, graph: Graph) -> tuple[RowReads, ...] | None:
    """Return what rows a node reads of the inputs that have rows; None: it can't be computed a few rows at a time.

    Tensors are [1, H, W, C]; their rows lie one after the other.
    """
    if len(node.outputs) != 1 or node.whole:
        return None
    out = graph.types[node.outputs[0]].shape
    if len(out) != 4 or out[0] != 1 or out[1] < 2:
        return None
    row_wise = SPECIFICATIONS[node.op].row_wise
    found = row_wise.reads(node, graph) if row_wise else None
    expr = expression_of(node)
    if found is None or expr is None:
        return found
    operands = _operands(expr, node, graph, out)
    taken = {reads.input for reads in found}
    if operands is None or taken & {*operands}:
        return None
    return (*found, *(RowReads(number) for number in operands))


def _operands(expr: Expr, node: Node, graph: Graph, out: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the inputs that an expression reads at the row that it computes; None: it reads others, or knows its row.

    Inputs that are read as a whole, whatever the row, are not among them.
    """
    by_row: dict[int, bool] = {}
    for load in (part for part in expr.walk() if part.op == "load"):
        kind = graph.types[node.inputs[load.value]].shape
        own = len(kind) == 4 and load.args[1] == axis(1)
        if own and (kind[1] != out[1] or kind[0] != 1 or node.inputs[load.value] in graph.constants):
            return None
        rest = [arg for place, arg in enumerate(load.args) if not (own and place == 1)]
        if any(part == axis(1) for arg in rest for part in arg.walk()):
            return None
        if by_row.setdefault(load.value, own) != own:
            return None
    if any(part == axis(1) or part.op == "reduce" for part in expr.walk(indices=False)):
        return None
    return tuple(sorted(number for number, own in by_row.items() if own))


def attributes_of_rows(node: Node, graph: Graph, count: int) -> Attributes:
    """Return the attributes of a node that computes `count` rows, where padding rows lie in its input already."""
    row_wise = SPECIFICATIONS[node.op].row_wise
    assert row_wise is not None, f"{node.name} can't be computed by rows"
    return row_wise.attributes(node, graph, count)
