"""The nodes of matrix products with constant weights: `dense`."""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.specification import Channels, Specification
from mtool.compiler.kernels.weighted_sum import WeightedSum, check_types, operands


class Dense(WeightedSum):
    """A matrix product with constant weights: each row of the input with each row of the weights."""


def _channels(node: Node, graph: Graph) -> Channels:
    return Channels.ALL


SPECIFICATION = Specification(
    Dense,
    operands("MK", "NK"),
    layout="MN",
    agree=check_types,
    channels=_channels,
)
