"""The epilogue of tiles whose results are the sums themselves: any expression, over int32 that are staged."""

from dataclasses import dataclass
from typing import Self

from mtool.compiler.ir import DType, Expr, Graph, Node
from mtool.compiler.ir.expr import axis, const
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.ir.scalar import ADD, Text
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.epilogues.integer import Int16Epilogue
from mtool.compiler.kernels.epilogues.tile import TileEpilogue
from mtool.compiler.kernels.expressions import element, is_identity, operand_names


@dataclass(frozen=True, slots=True)
class SumEpilogue(TileEpilogue):
    """An epilogue of int32 sums of int16: what it loads lies at the element, its channel or its row, or is one number.

    `bias` is the kernel's.
    """

    rest: Expr
    bias: Array

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self | None:
        """Return a node's epilogue; None: it reads other elements, or its kernel is none of int16 in int32."""
        bias, expr = graph.constants[node.inputs[2]], WithEpilogue.of(node).epilogue
        if graph.types[node.inputs[0]].dtype is not DType.INT16 or bias.dtype.name != "int32":
            return None
        shape = graph.types[node.outputs[0]].shape
        simple = (const(0, DType.INT32), axis(len(shape) - 1), *([axis(0)] if len(shape) == 2 or shape[0] == 1 else []))
        for part in expr.walk():
            if part.op == "reduce":
                return None
            if part.op == "load" and not all(index in simple for index in part.args):
                kind = graph.types[node.inputs[part.value]]
                if any(index.op == "axis" for index in part.args) and not is_identity(part, shape, kind.shape):
                    return None
        return cls(expr, bias)

    def rest_text(self, node: Node, graph: Graph, acc: str, offset: str, channel: str = "0", row: str = "0") -> str:
        """Return the C of the epilogue for the sum `acc` of the element at `offset`."""
        last = len(graph.types[node.outputs[0]].shape) - 1
        where = {0: Text(row), last: Text(channel, ADD if " " in channel else 0)}
        names = operand_names(node, graph, self.rest)
        return element(self.rest, node, graph, names, where.__getitem__, acc=acc, offset=offset)


def epilogue_of_int16(node: Node, graph: Graph) -> Int16Epilogue | SumEpilogue | None:
    """Return the epilogue of a kernel of int16, which scales sums if it can; None: it is neither."""
    return Int16Epilogue.of(node, graph) or SumEpilogue.of(node, graph)
