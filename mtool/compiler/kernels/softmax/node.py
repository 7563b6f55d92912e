"""The nodes of softmaxes: `softmax`."""

from dataclasses import dataclass

from mtool.compiler.ir import Attributes, DType, Graph, Node
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.kernels.specification import Operand, Specification


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftmaxOfRows(WithEpilogue):
    """A softmax along the last of two dimensions.

    log: its logarithm, of floats.
    has_table: the input is an 8-bit integer, and the second operand says the exponentials of all differences from the
        largest: exp(scale * d) for d = -255 … 0.
    fixed: in fixed point, with a table of int32; acc is a whole number of steps of 2^-bits.
    """

    log: bool = False
    has_table: bool = False
    fixed: bool = False
    bits: int = 8


def _has_table(attrs: Attributes) -> bool:
    return isinstance(attrs, SoftmaxOfRows) and attrs.has_table


def _agree(node: Node, graph: Graph) -> None:
    """A table is of 8-bit integers, in fixed point of int32."""
    attrs, kind = SoftmaxOfRows.of(node), graph.types[node.inputs[0]]
    if attrs.has_table:
        table = graph.types[node.inputs[1]]
        right = kind.dtype.is_integer and kind.dtype.bits == 8 and (table.dtype is DType.INT32) == attrs.fixed
        assert right, f"{node.op} {node.name} has a table {table} of {kind}, fixed={attrs.fixed}"


SPECIFICATION = Specification(
    SoftmaxOfRows,
    (
        Operand("input", "MN", is_in_arena=True),
        Operand("exponentials", "T", (DType.FLOAT32, DType.INT32), is_constant=True, is_given=_has_table),
    ),
    layout="MN",
    agree=_agree,
)
