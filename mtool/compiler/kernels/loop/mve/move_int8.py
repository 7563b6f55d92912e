"""Loops that only copy, with Helium: 16 bytes at a time."""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.loop.c99.move import Move
from mtool.compiler.kernels.target import Target


class VectorMove(Move):
    """The same copies, by vectors: mt_mve_move.h."""

    name = "mve_move"
    function = "mt_mve_move"
    headers = ("mt_mve_move.h",)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """A copy of elements that lie side by side and are not constant, in a model with states or line buffers."""
        return target.has_mve and super().supports(node, graph, target)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Three instructions for 16 bytes."""
        return graph.types[node.outputs[0]].bytes * 3 / 16


SCHEDULE = VectorMove()
