"""The nodes of products of two activations: `matmul`."""

from dataclasses import dataclass

from mtool.ir import DType
from mtool.ir.node import WithEpilogue
from mtool.kernels.specification import Operand, Specification


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


SPECIFICATION = Specification(
    Matmul, (Operand("a", dtypes=(DType.INT8, DType.UINT8)), Operand("b", dtypes=(DType.INT8, DType.UINT8)))
)
