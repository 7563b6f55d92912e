"""The nodes of matrix products with constant weights: `dense`."""

from mtool.compiler.kernels.specification import Channels, Specification, always
from mtool.compiler.kernels.weighted_sum import WeightedSum, check_types, operands


class Dense(WeightedSum):
    """A matrix product with constant weights: each row of the input with each row of the weights."""


SPECIFICATION = Specification(
    Dense, operands("MK", "NK"), layout="MN", agree=check_types, channels=always(Channels.ALL)
)
