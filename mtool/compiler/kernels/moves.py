"""The kinds of node that no C is written for: `view`, of the same bytes, and `transpose`, which becomes a loop."""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.node import Transpose, View
from mtool.compiler.kernels.specification import Channels, Operand, Specification


def _channels(node: Node, graph: Graph) -> Channels:
    """Only sizes of 1 before the last one are added or dropped."""
    before, after = (graph.types[value] for value in (node.inputs[0], node.outputs[0]))
    keeps = before.shape[-1:] == after.shape[-1:] == (before.count,)
    return Channels.EACH if keeps else Channels.MIXED


def _inside(node: Node, graph: Graph) -> None:
    """A view is of bytes that are there."""
    first, made = View.of(node).first, graph.types[node.outputs[0]]
    kinds = [graph.types[value] for value in node.inputs]
    inside = 0 <= first <= first + made.count <= sum(kind.count for kind in kinds)
    right = inside and all(kind.dtype is made.dtype for kind in kinds)
    assert right, f"{node.op} {node.name} of {', '.join(map(str, kinds))} from {first} on -> {made}"


def _permuted(node: Node, graph: Graph) -> None:
    """Each dimension of the input is one of the output."""
    perm = Transpose.of(node).perm
    before, made = (graph.types[value] for value in (node.inputs[0], node.outputs[0]))
    right = sorted(perm) == [*range(len(before.shape))] and before.dtype is made.dtype
    right = right and tuple(before.shape[number] for number in perm) == made.shape
    assert right, f"{node.op} {node.name} of {before} by {perm} -> {made}"


VIEW = Specification(View, (Operand("input"),), takes_more=True, agree=_inside, channels=_channels)
TRANSPOSE = Specification(Transpose, (Operand("input"),), agree=_permuted)
