"""What a region for Ethos-U may hold: quantised operations that a TFLite file can say. Vela has the last word."""

import numpy as np

from mtool.compiler.backends.ethos_u.vela import COMPILED
from mtool.compiler.backends.ethos_u.writing import activation_of, is_depthwise, padding_of
from mtool.compiler.backends.interface import Operation, Pattern
from mtool.compiler.operators.gemm import Gemm
from mtool.compiler.operators.movement import Pad
from mtool.compiler.operators.normalize import Softmax
from mtool.compiler.operators.reduce import Axes
from mtool.compiler.operators.sliding_window import Pool
from mtool.compiler.operators.window import CONV, Convolution

_BYTES = ("int8", "uint8")


def _constants(operation: Operation) -> str:
    """Return what is wrong with the weights and the bias; "": nothing."""
    x, weights = operation.operand(0), operation.operand(1)
    if not weights.is_constant or weights.dtype != x.dtype or weights.quant is None:
        return f"its weights are no constant of {x.dtype.label} on a grid"
    if len({*weights.quant.zero_point}) > 1 or (x.dtype.label == "int8" and any(weights.quant.zero_point)):
        return "its weights have zero points"
    bias = operation.inputs[2] if len(operation.inputs) > 2 else None
    if bias is None:
        return ""
    if not bias.is_constant or bias.dtype.label != "int32":
        return "its bias is no constant of int32"
    assert x.quant is not None
    products = np.asarray(x.quant.scale) * np.asarray(weights.quant.scale)
    fits = bias.quant is not None and np.allclose(bias.quant.scale, products, rtol=1e-5, atol=0)
    return "" if fits else "its bias stands on another grid than its products"


def _activation(operation: Operation) -> str:
    return "" if activation_of(operation) else f"TFLite has no activation that clips at {operation.activation}"


def _convolution(operation: Operation) -> str:
    attrs = operation.attrs
    assert isinstance(attrs, Convolution)
    if attrs.rank != 2:
        return f"it has {attrs.rank} dimensions"
    return "" if attrs.group == 1 or is_depthwise(operation) else f"its channels are in {attrs.group} groups"


def _dense(operation: Operation) -> str:
    attrs = operation.attrs
    if isinstance(attrs, Gemm) and (attrs.transA or attrs.alpha != 1 or attrs.beta != 1):
        return "it transposes or scales its operands"
    if len(operation.operand(1).shape) != 2:
        return "its weights are no matrix"
    return "" if operation.operand(1).is_per_tensor else "its weights have a scale for each output"


def _pool(operation: Operation) -> str:
    attrs, x = operation.attrs, operation.operand(0)
    assert isinstance(attrs, Pool)
    if attrs.kind not in ("average", "max") or attrs.rank != 2 or any(one != 1 for one in attrs.dilations):
        return "it is another pool than one of two dimensions by mean or maximum"
    if attrs.count_pads and any(attrs.pads):
        return "it counts its padding"
    if padding_of(attrs, x.shape, operation.output.shape) is None:
        return "its padding is neither TFLite's SAME nor VALID"
    return _one_grid(operation)


def _one_grid(operation: Operation) -> str:
    return "" if all(one.quant == operation.output.quant for one in operation.variables) else "it changes the grid"


def _softmax(operation: Operation) -> str:
    attrs, output = operation.attrs, operation.output
    assert isinstance(attrs, Softmax) and output.quant is not None
    rank = len(operation.operand(0).shape)
    if attrs.log or attrs.axis % rank != rank - 1:
        return "it is not over the last dimension"
    fits = output.quant.scale[0] == 2.0**-8 and output.quant.zero_point[0] == output.dtype.limits[0]
    return "" if fits else "its output does not stand on a grid of 1/256 from 0 on"


def _pair(operation: Operation) -> str:
    constant = any(one is not None and one.is_constant and not one.is_per_tensor for one in operation.inputs)
    return "a constant is on no grid" if constant else ""


def _pad(operation: Operation) -> str:
    attrs, output = operation.attrs, operation.output
    assert isinstance(attrs, Pad) and output.quant is not None
    if attrs.mode != "constant" or len(operation.inputs) > 1 or attrs.value != output.quant.zero_point[0]:
        return "it pads with something else than zeros"
    return "it cuts" if min(attrs.before, default=0) < 0 else _one_grid(operation)


def _mean(operation: Operation) -> str:
    attrs = operation.attrs
    assert isinstance(attrs, Axes)
    is_spatial = len(operation.operand(0).shape) == 4 and tuple(attrs.axes) == (1, 2)
    return "" if is_spatial else "it is over other dimensions than height and width"


PATTERNS = (
    Pattern(CONV, _BYTES, "NHWC", True, (_convolution, _constants, _activation)),
    Pattern("Gemm", _BYTES, "", True, (_dense, _constants, _activation)),
    Pattern("MatMul", _BYTES, "", True, (_dense, _constants, _activation)),
    Pattern("Pool", _BYTES, "NHWC", True, (_pool, _activation)),
    Pattern("Softmax", _BYTES, "", True, (_softmax,)),
    Pattern("Add", _BYTES, "", True, (_pair, _activation)),
    Pattern("Mul", _BYTES, "", True, (_pair, _activation)),
    Pattern("Pad", _BYTES, "", True, (_pad,)),
    Pattern("ReduceMean", _BYTES, "", True, (_mean,)),
    *(
        Pattern(kind, _BYTES, "", True, (_one_grid,))
        for kind in ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Concat")
    ),
    Pattern(COMPILED),
)
"""What is claimed: int8 and uint8, with one scale a tensor but for a convolution's weights."""
