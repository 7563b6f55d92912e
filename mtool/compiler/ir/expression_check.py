"""The check of a node's expression: whether what it reads is there, and of the types that it says."""

import functools
from dataclasses import dataclass

from mtool.compiler.ir.expr import Expr
from mtool.compiler.ir.graph import Graph
from mtool.compiler.ir.node import Node, WithEpilogue
from mtool.compiler.ir.types import DType


@dataclass(frozen=True, slots=True)
class _Reads:
    """What an expression reads.

    loads: the number of an input, the type of its elements, how many indices it has.
    axes: the numbers of axes that no reduction in it declares.
    accumulators: the types of what a kernel computed.
    """

    loads: frozenset[tuple[int, DType, int]]
    axes: frozenset[int]
    accumulators: frozenset[DType]


@functools.lru_cache(maxsize=1024)
def _reads_of(expr: Expr) -> _Reads:
    parts = [*expr.parts()]
    declared = {number for part in parts if part.op == "reduce" for number, _ in part.value.axes}
    return _Reads(
        frozenset((part.value, part.dtype, len(part.args)) for part in parts if part.op == "load"),
        frozenset(part.value for part in parts if part.op == "axis") - declared,
        frozenset(part.dtype for part in parts if part.op == "acc"),
    )


def accumulators(expr: Expr) -> frozenset[DType]:
    """Return the types that an epilogue reads what its kernel computed as: one, or none if it does not read it."""
    return _reads_of(expr).accumulators


def check_expression(node: Node, graph: Graph, expr: Expr) -> None:
    """Check that a node's expression fits its inputs and its (first) output.

    Raises:
        AssertionError: it does not; a bug of the pass that made it.
    """
    where, made, reads = f"{node.op} {node.name}", graph.types[node.outputs[0]], _reads_of(expr)
    assert expr.dtype is made.dtype, f"{where} computes {expr.dtype.label}; its output is {made}"
    for number, dtype, rank in reads.loads:
        assert number < len(node.inputs), f"{where} loads input {number}, which it lacks"
        kind = graph.types[node.inputs[number]]
        right = kind.dtype is dtype and len(kind.shape) == rank
        assert right, f"{where} loads {dtype.label} by {rank} indices from input {number}, which is {kind}"
    last = max(reads.axes, default=-1)
    assert last < len(made.shape), f"{where} has no axis {last}: its output is {made}"
    has_acc = isinstance(node.attrs, WithEpilogue)
    assert has_acc or not reads.accumulators, f"{where} reads an accumulator, and is no kernel"
