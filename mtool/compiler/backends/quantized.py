"""Quantized operations as CMSIS-NN and Ethos-U share them: weights, biases, and common reasons to refuse."""

from collections.abc import Mapping

import numpy as np

from mtool.compiler.backends.interface import Allowed, Operation
from mtool.compiler.ir import DType
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.normalize import Softmax
from mtool.compiler.operators.window import Convolution, Pool

PLAIN_GEMM: Mapping[str, Allowed] = {"transA": 0, "alpha": 1.0, "beta": 1.0}
"""The attributes of a Gemm that neither transposes nor scales what it multiplies."""
PLAIN_POOL: Mapping[str, Allowed] = {"kind": ["average", "max"], "dilations": 1}


def is_depthwise(operation: Operation) -> bool:
    """Return whether a convolution computes each channel by itself."""
    return Convolution.of(operation).group == operation.operand(0).shape[-1] > 1


def rows_of(operation: Operation) -> Array:
    """Return the weights of a matrix product with one row per output."""
    data = operation.operand(1).elements
    return np.ascontiguousarray(data if getattr(operation.attrs, "transB", 0) else data.T)


def bias_of(operation: Operation, count: int) -> Array:
    """Return the bias of each output, zeros if there is none."""
    if len(operation.inputs) < 3 or operation.inputs[2] is None:
        return np.zeros(count, np.int32)
    return np.ascontiguousarray(np.broadcast_to(operation.operand(2).elements.reshape(-1), (count,)))


def weights_refused(operation: Operation, dtype: DType) -> str:
    """Return why the weights, which must have this element type, or the bias are refused; "": they are not."""
    weights = operation.operand(1)
    if not weights.is_constant or weights.dtype is not dtype or weights.quant is None:
        return f"its weights are not a constant quantized to {dtype.label}"
    if len({*weights.quant.zero_point}) > 1 or (dtype is DType.INT8 and weights.zero_point):
        return "its weights have zero points"
    bias = operation.inputs[2] if len(operation.inputs) > 2 else None
    is_fit = bias is None or (bias.is_constant and bias.dtype is DType.INT32)
    return "" if is_fit else "its bias is not an int32 constant"


def is_matrix(operation: Operation) -> str:
    """Return why the weights of a matrix product are refused: they are not a matrix."""
    return "" if len(operation.operand(1).shape) == 2 else "its weights are not a matrix"


def one_scale(operation: Operation) -> str:
    """Return why weights are refused: they have several scales."""
    return "" if operation.operand(1).is_per_tensor else "its weights have a scale for each output"


def counts_no_padding(operation: Operation) -> str:
    """Return why a mean is refused: it counts its padding."""
    attrs = Pool.of(operation)
    return "it counts its padding" if attrs.count_pads and any(attrs.pads) else ""


def over_the_last(operation: Operation) -> str:
    """Return why a Softmax is refused: it is not over the last dimension."""
    attrs, rank = Softmax.of(operation), len(operation.operand(0).shape)
    return "it is not over the last dimension" if attrs.log or attrs.axis % rank != rank - 1 else ""


def to_unit_grid(operation: Operation) -> str:
    """Return why a Softmax of bytes is refused: its output is not 0 to 1 in steps of 1/256."""
    output = operation.output
    fits = output.scales[0] == 2.0**-8 and output.zero_point == output.dtype.limits[0]
    return "" if fits else "its output range is not 0 to 1 in steps of 1/256"
