"""The kinds that have no C of their own: `view`, of the same bytes, and `transpose`, which becomes a loop."""

from mtool.ir import Graph, Node
from mtool.ir.node import Transpose, View
from mtool.kernels.specification import Channels, Operand, Specification


def _channels(node: Node, graph: Graph) -> Channels:
    """Only sizes of 1 before the last one are added or dropped."""
    before, after = (graph.types[value] for value in (node.inputs[0], node.outputs[0]))
    keeps = before.shape[-1:] == after.shape[-1:] == (before.count,)
    return Channels.EACH if keeps else Channels.MIXED


VIEW = Specification(View, (Operand("input"),), takes_more=True, channels=_channels)
TRANSPOSE = Specification(Transpose, (Operand("input"),))
