"""The nodes of products of two activations: `matmul`."""

from dataclasses import dataclass

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.kernels.specification import Operand, Specification


@dataclass(frozen=True, slots=True, kw_only=True)
class Matmul(WithEpilogue):
    """A batched product of 8-bit integers, whose elements are found by strides.

    depth: products of one output.
    a, b: the operands' strides in elements: along the outer dimensions of the output (0: the operand is broadcast),
        then along (rows, depth) of a, (depth, columns) of b.
    points: the zero points of a and b.
    """

    depth: int
    a: tuple[int, ...]
    b: tuple[int, ...]
    points: tuple[int, int]


def _agree(node: Node, graph: Graph) -> None:
    """Strides lead to elements that are there."""
    attrs, shape = Matmul.of(node), graph.types[node.outputs[0]].shape
    *outer, rows, columns = shape
    for value, strides, sizes in (
        (node.inputs[0], attrs.a, (*outer, rows, attrs.depth)),
        (node.inputs[1], attrs.b, (*outer, attrs.depth, columns)),
    ):
        kind, where = graph.types[value], f"{node.op} {node.name} of {list(shape)}"
        assert len(strides) == len(sizes), f"{where} has {len(strides)} strides of {value}"
        last = sum(stride * (size - 1) for stride, size in zip(strides, sizes, strict=True))
        assert last < kind.count, f"{where} reads element {last} of {value}, which is {kind}"


_FACTORS = (DType.INT8, DType.UINT8)

SPECIFICATION = Specification(Matmul, (Operand("a", dtypes=_FACTORS), Operand("b", dtypes=_FACTORS)), agree=_agree)
