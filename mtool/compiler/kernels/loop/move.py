"""Loops that only copy, with RISC-V vectors."""

import math

from mtool.compiler.ir import Expr, Graph, Node
from mtool.compiler.ir.expr import axis
from mtool.compiler.kernels.loop.node import Loop
from mtool.compiler.kernels.schedule import Argument, Kernel, Schedule
from mtool.compiler.kernels.target import Target

# Loops that only copy: one memmove.


class Move(Schedule):
    """One memmove, for copies between states and line buffers, which may overlap."""

    name = "c99_move"
    core = ""  # the feature or property of a target that it needs
    function = "memmove"
    headers: tuple[str, ...] = ()

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """A copy of elements that lie side by side and are not constant, in a model with states or line buffers."""
        has_core = not self.core or target.has(self.core)
        return has_core and bool(graph.states or graph.line_buffers) and copied_range(node, graph) is not None

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input: memmove copies between ranges that overlap."""
        return (0,)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """A quarter of an instruction a byte."""
        return graph.types[node.outputs[0]].bytes / 4

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the call."""
        out, start = graph.types[node.outputs[0]], copied_range(node, graph)
        arguments = (Argument("input", out.dtype.c, ("input", 0)), Argument("output", out.dtype.c, "output"))
        call = f"{self.function}(output, input{f' + {start}' if start else ''}, {out.c_bytes});"
        return Kernel(arguments, f"    {call}", headers=self.headers)


def copied_range(node: Node, graph: Graph) -> int | None:
    """Return where the elements begin that a loop copies as they lie side by side; None: it does something else."""
    expr = Loop.of(node).expr
    if expr.op != "load" or node.inputs[expr.value] in graph.constants:
        return None
    source, out = graph.types[node.inputs[expr.value]], graph.types[node.outputs[0]]
    if source.dtype != out.dtype or len(source.shape) != len(out.shape):
        return None
    start, whole = 0, True  # whether all dimensions so far are taken whole, from the last one up
    for dim in reversed(range(len(out.shape))):
        first = _first(expr.args[dim], dim, out.shape[dim])
        if first is None or (not whole and out.shape[dim] != 1):
            return None
        start += first * math.prod(source.shape[dim + 1 :])
        whole = whole and source.shape[dim] == out.shape[dim]
    return start


def _first(index: Expr, dim: int, size: int) -> int | None:
    """Return n of an index `axis + n`, or of a constant n where the axis has but one element."""
    if index.op == "const":
        return int(index.value) if size == 1 else None
    if index == axis(dim):
        return 0
    if index.op == "add" and index.args[0] == axis(dim) and index.args[1].op == "const":
        return int(index.args[1].value)
    return None


# Loops that only copy, with Helium: 16 bytes at a time.


class MveMove(Move):
    """The same copies, by vectors: mt_mve_move.h."""

    name = "mve_move"
    core = "has_mve"
    function = "mt_mve_move"
    headers = ("mt_mve_move.h",)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Three instructions for 16 bytes."""
        return graph.types[node.outputs[0]].bytes * 3 / 16


class RvvMove(Move):
    """The same copies, by vectors: mt_rvv.h."""

    name = "rvv_move"
    core = "has_rvv"
    function = "mt_rvv_move"
    headers = ("mt_rvv.h",)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """8 instructions for eight registers, and for the call."""
        return 8 + graph.types[node.outputs[0]].bytes / 16


SCHEDULES = (Move(), MveMove(), RvvMove())
