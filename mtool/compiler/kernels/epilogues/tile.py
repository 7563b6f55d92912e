"""Epilogues of the runtime's tiles, and what may follow them: an expression over the stored results."""

from mtool.compiler.ir import DType, Expr, Graph, Node
from mtool.compiler.ir.expr import const
from mtool.compiler.ir.scalar import Text
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.expressions import (
    element,
    is_identity,
    needs_math,
    operand_arguments,
    operand_constants,
    operand_names,
)
from mtool.compiler.kernels.schedule import Argument, Kernel
from mtool.compiler.kernels.weighted_sum import WeightedSum


class TileEpilogue:
    """An epilogue that tiles of the runtime know by heart, but for `rest`: an expression over their stored results.

    What it loads lies at the element itself, in a table, or (of a dense layer) at the output's channel. None: nothing.
    """

    __slots__ = ()
    rest: Expr | None

    def rest_text(self, node: Node, graph: Graph, acc: str, offset: str, channel: str = "0", row: str = "0") -> str:
        """Return the C of `rest` for the element at `offset`, whose channel and row (of a dense layer) are given."""
        assert self.rest is not None
        names = operand_names(node, graph, self.rest)
        return element(self.rest, node, graph, names, lambda _: Text(channel), acc=acc, offset=offset)

    def kernel(
        self,
        node: Node,
        graph: Graph,
        body: str,
        weights: Array,
        layout: str,
        header: str,
        scratch: str,
        shared: tuple[str, ...] = (),
    ) -> Kernel:
        """Assemble the function: input, output, packed weights, what `rest` reads, scratch (its type; empty: none).

        `layout` says in what order the weights are packed for the runtime's `header`; `shared` is a Kernel's.
        """
        names = operand_names(node, graph, self.rest) if self.rest else {}
        arguments = [
            Argument("input", graph.types[node.inputs[0]].dtype.c, ("input", 0)),
            Argument("output", graph.types[node.outputs[0]].dtype.c, "output"),
            Argument("weights", DType.of(weights.dtype).c, ("constant", "weights")),
            *operand_arguments(node, graph, names),
        ]
        if scratch:
            arguments.append(Argument("scratch", scratch, "scratch"))
        constants = operand_constants(node, graph, names)
        math = self.rest is not None and needs_math(self.rest)
        layouts = {"weights": f"packed for {header}, {layout}"}
        return Kernel(
            tuple(arguments), body, {"weights": weights, **constants}, math, (header,), layouts, shared=shared
        )


def is_elementwise(rest: Expr, node: Node, graph: Graph, acc: DType, *, by_channel: bool = False) -> bool:
    """Whether an expression reads a kernel's result as `acc`, its own elements, tables, and nothing else.

    The loops after a dense layer know the channel too, those of a convolution if they are written so (`by_channel`).
    """
    shape = graph.types[node.outputs[0]].shape
    channel = Expr("axis", DType.INT32, value=len(shape) - 1)
    is_dense = by_channel or (isinstance(node.attrs, WeightedSum) and len(shape) == 2)
    for part in rest.walk():
        if part.op == "reduce" or (part.op == "acc" and part.dtype is not acc):
            return False
        if part.op == "load":
            kind = graph.types[node.inputs[part.value]]
            bare = any(index.op == "axis" for index in part.args)
            if is_dense and all(index in (channel, const(0, DType.INT32)) for index in part.args):
                continue
            if bare and not is_identity(part, shape, kind.shape):
                return False
    return True
