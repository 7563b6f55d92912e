"""The loop operator: one expression an element, as one loop nest. Every simple operator becomes one."""

from math import prod

from mtool.compiler.ir import Expr, Graph, Node
from mtool.compiler.ir.expr import Reduction
from mtool.compiler.kernels.discovery import schedules_of
from mtool.compiler.kernels.loop.node import SPECIFICATION, Loop
from mtool.compiler.kernels.schedule import KernelOp


def _macs(node: Node, graph: Graph) -> int:
    """One for each step of a sum of products of two operands: a product of activations, weights that the run gives."""
    parts = Loop.of(node).expr.parts(leaves=("load",))
    sums: list[Reduction] = [part.value for part in parts if part.op == "reduce" and _sums_products(part)]
    return graph.types[node.outputs[0]].count * sum(prod(size for _, size in how.axes) for how in sums)


def _sums_products(part: Expr) -> bool:
    """Whether a reduction adds up products of different elements: not squares, nor multiples of constants."""
    if part.value.kind != "add":
        return False
    factors = [factor.args for factor in part.args[0].parts(leaves=("load",)) if factor.op == "mul"]
    pairs = [pair for pair in factors if pair[0] != pair[1]]
    return any(all(any(part.op == "load" for part in one.parts(leaves=("load",))) for one in pair) for pair in pairs)


KERNEL = KernelOp(SPECIFICATION, lambda node, _: Loop.of(node).label or "loop", schedules_of(__name__, __path__), _macs)
