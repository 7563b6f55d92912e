"""The nodes of concatenations: `concat`."""

from dataclasses import dataclass

from mtool.ir import Attributes, Graph, Node
from mtool.kernels.row_wise import RowReads, RowWise
from mtool.kernels.specification import Specification


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


SPECIFICATION = Specification(Concat, takes_more=True, row_wise=RowWise(_reads))
