"""Loops that only copy, with RISC-V vectors."""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.loop.c99.move import Move
from mtool.compiler.kernels.target import Target


class VectorMove(Move):
    """The same copies, by vectors: mt_rvv.h."""

    name = "rvv_move"
    function = "mt_rvv_move"
    headers = ("mt_rvv.h",)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """A copy of elements that lie side by side and are not constant, in a model with states or line buffers."""
        return target.has_rvv and super().supports(node, graph, target)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """8 instructions for eight registers, and for the call."""
        return 8 + graph.types[node.outputs[0]].bytes / 16


SCHEDULE = VectorMove()
