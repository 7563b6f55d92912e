"""The nodes of softmaxes: `softmax`."""

from dataclasses import dataclass

from mtool.ir import Attributes, DType
from mtool.ir.node import WithEpilogue
from mtool.kernels.specification import Operand, Specification


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


SPECIFICATION = Specification(
    SoftmaxOfRows,
    (
        Operand("input", "MN", is_in_arena=True),
        Operand("exponentials", "T", (DType.FLOAT32, DType.INT32), is_constant=True, is_given=_has_table),
    ),
    layout="MN",
)
