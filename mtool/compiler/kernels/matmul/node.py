"""The nodes of products of two activations: `matmul`."""

import math
from dataclasses import dataclass
from typing import Self

from mtool.compiler.ir import DType, Graph, Node, WithEpilogue
from mtool.compiler.kernels.specification import Operand, Specification


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


# The numbers of one batched product.


@dataclass(frozen=True, slots=True)
class Product:
    """Sizes, the zero points of both operands, and their strides in elements.

    `batch` has the sizes of the outer dimensions, `a_batch` and `b_batch` the strides along them. `a_steps` are those
    along (rows, depth), `b_steps` along (depth, columns).
    """

    batch: tuple[int, ...]
    rows: int
    depth: int
    columns: int
    points: tuple[int, int]
    a_batch: tuple[int, ...]
    b_batch: tuple[int, ...]
    a_steps: tuple[int, int]
    b_steps: tuple[int, int]

    @classmethod
    def of(cls, node: Node, graph: Graph) -> Self:
        """Read them off a matmul node."""
        *batch, rows, columns = graph.types[node.outputs[0]].shape
        attrs = Matmul.of(node)
        a, b = attrs.a, attrs.b
        return cls(
            tuple(batch), rows, attrs.depth, columns, attrs.points,
            a[:-2], b[:-2], (a[-2], a[-1]), (b[-2], b[-1]),
        )  # fmt: skip

    @property
    def batches(self) -> int:
        """The number of products."""
        return math.prod(self.batch)

    @property
    def indices(self) -> dict[int, str]:
        """The C of the output's axes in the loops of the templates."""
        outer = {dim: f"n{dim}" if size > 1 else "0" for dim, size in enumerate(self.batch)}
        return {**outer, len(self.batch): "m", len(self.batch) + 1: "n"}
