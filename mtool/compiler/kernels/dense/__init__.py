"""Dense layers: matrix products with constant weights, float and integer.

Internal form `dense`: inputs x[M,K], w[N,K] (constant, a row an output), bias[N], then what the
epilogue reads. The output is [M,N].
"""

from mtool.compiler.kernels.discovery import schedules_of
from mtool.compiler.kernels.schedule import KernelOp
from mtool.compiler.kernels.specification import Channels, Specification, always
from mtool.compiler.kernels.weighted_sum import WeightedSum, check_types, macs_of, operands


class Dense(WeightedSum):
    """A matrix product with constant weights: each row of the input with each row of the weights."""


SPECIFICATION = Specification(
    Dense, operands("MK", "NK"), layout="MN", agree=check_types, channels=always(Channels.ALL)
)


KERNEL = KernelOp(SPECIFICATION, always("dense"), schedules_of(__name__, __path__), macs_of)
