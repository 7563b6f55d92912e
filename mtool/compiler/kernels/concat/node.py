"""The nodes of concatenations: `concat`."""

from dataclasses import dataclass

from mtool.compiler.ir import Attributes, Graph, Node
from mtool.compiler.kernels.row_wise import RowReads, RowWise
from mtool.compiler.kernels.specification import Specification


@dataclass(frozen=True, slots=True, kw_only=True)
class Concat(Attributes):
    """A concatenation of values of one type.

    axis: the dimension along which they are joined, from 0 on.
    appends: the output lies over the first input, which then is not copied; the planner says so.
    """

    axis: int
    appends: bool = False


def _reads(node: Node, graph: Graph) -> tuple[RowReads, ...] | None:
    """Of channels, row by row."""
    if Concat.of(node).axis != 3 or any(value in graph.constants for value in node.inputs):
        return None
    return tuple(RowReads(number) for number in range(len(node.inputs)))


def _agree(node: Node, graph: Graph) -> None:
    """What is joined is alike but for the size along the axis, which is that of the output together."""
    axis, made = Concat.of(node).axis, graph.types[node.outputs[0]]
    kinds = [graph.types[value] for value in node.inputs]
    where = f"{node.op} {node.name} of {', '.join(map(str, kinds))} along {axis} -> {made}"
    assert 0 <= axis < len(made.shape), where
    assert sum(kind.shape[axis] for kind in kinds if len(kind.shape) > axis) == made.shape[axis], where
    for kind in kinds:
        like = (*made.shape[:axis], *kind.shape[axis : axis + 1], *made.shape[axis + 1 :])
        assert (kind.dtype, kind.shape) == (made.dtype, like), where


SPECIFICATION = Specification(Concat, takes_more=True, agree=_agree, row_wise=RowWise(_reads))
