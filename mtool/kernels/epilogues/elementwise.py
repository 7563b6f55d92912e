"""What may follow a kernel whose tile knows its epilogue by heart: an expression over the stored results."""

from mtool.ir import DType, Expr, Graph, Node
from mtool.ir.expr import const
from mtool.ir.scalar import Text
from mtool.kernels.operands import element, is_identity, operand_names


def elementwise_names(rest: Expr | None, node: Node, graph: Graph) -> dict[int, str]:
    """Name the inputs that an expression after the kernel reads."""
    return operand_names(node, graph, rest) if rest else {}


def rest_text(rest: Expr, node: Node, graph: Graph, acc: str, offset: str, channel: str = "0") -> str:
    """Return the C of an expression after the kernel, for the element at `offset`."""
    names = operand_names(node, graph, rest)
    return element(rest, node, graph, names, lambda _: Text(channel), acc=acc, offset=offset)


def is_elementwise(rest: Expr, node: Node, graph: Graph, acc: DType) -> bool:
    """Whether an expression reads a kernel's result as `acc`, its own elements, tables, and nothing else.

    The loops after a dense layer know the channel too.
    """
    shape = graph.types[node.outputs[0]].shape
    channel = Expr("axis", DType.INT32, value=1)
    for part in rest.walk():
        if part.op == "reduce" or (part.op == "acc" and part.dtype is not acc):
            return False
        if part.op == "load":
            kind = graph.types[node.inputs[part.value]]
            bare = any(index.op == "axis" for index in part.args)
            if node.op == "dense" and all(index in (channel, const(0, DType.INT32)) for index in part.args):
                continue
            if bare and not is_identity(part, shape, kind.shape):
                return False
    return True
