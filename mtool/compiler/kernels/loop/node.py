"""The nodes of loops: `loop`."""

from mtool.compiler.ir import Computation, Graph, Node
from mtool.compiler.kernels.specification import RowReads, RowWise, Specification


class Loop(Computation):
    """An expression for each element of the output, which may reduce over further axes."""


def _reads(node: Node, graph: Graph) -> tuple[RowReads, ...]:
    """None beside those of its expression."""
    return ()


SPECIFICATION = Specification(Loop, row_wise=RowWise(_reads))
