"""The nodes of matrix products with constant weights: `dense`."""

from dataclasses import dataclass

from mtool.ir import DType, Graph, Node
from mtool.kernels.specification import Channels, Operand, Specification
from mtool.kernels.weighted_sum import WeightedSum


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense(WeightedSum):
    """A matrix product with constant weights: each row of the input with each row of the weights."""


def _channels(node: Node, graph: Graph) -> Channels:
    return Channels.ALL


SPECIFICATION = Specification(
    Dense,
    (
        Operand("input", "MK", is_in_arena=True),
        Operand("weights", "NK", is_constant=True),
        Operand("bias", "N", (DType.FLOAT32, DType.INT32, DType.INT64), is_constant=True),
    ),
    layout="MN",
    channels=_channels,
)
