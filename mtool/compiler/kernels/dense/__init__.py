"""Dense layers: matrix products with constant weights, float and integer.

Internal form `dense`: inputs x[M,K], w[N,K] (constant, a row an output), bias[N], then what the
epilogue reads. The output is [M,N].
"""

from mtool.compiler.kernels.dense.node import SPECIFICATION
from mtool.compiler.kernels.discovery import schedules_of
from mtool.compiler.kernels.schedule import KernelOp
from mtool.compiler.kernels.specification import always
from mtool.compiler.kernels.weighted_sum import macs_of

KERNEL = KernelOp(SPECIFICATION, always("dense"), schedules_of(__name__, __path__), macs_of)
