"""What CMSIS-NN can compute of an operation, and where that is what the rest of the network would compute."""

import numpy as np

from mtool.compiler.backends.cmsis_nn import arithmetic
from mtool.compiler.backends.cmsis_nn.products import rows_of
from mtool.compiler.backends.interface import Context
from mtool.compiler.backends.operation import Operation
from mtool.compiler.backends.pattern import Pattern
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.scaling import fixed_multiplier
from mtool.compiler.operators.gemm import Gemm
from mtool.compiler.operators.normalize import Softmax
from mtool.compiler.operators.sliding_window import Pool
from mtool.compiler.operators.window import Convolution

_MOST_RESULT = 2**30  # of sums of int16, scaled, before they are clamped
_MOST_WIDTH = 2**15 - 1  # of an image of int16, in some of its loops
_TABLE_STEPS = 8  # that a Softmax of int16 by tables may be off the function
_LSTM_STEPS = 2  # that results of an LSTM have been seen to be off, which its states carry on


def rounding(operation: Operation, context: Context) -> str:
    """Return why an operation's results may be others than those of the rest of the network; "": they are not."""
    steps, why = _steps(operation, context)
    if steps <= context.tolerance:
        return ""
    return f"{why or 'it rounds as TFLite does: give --rounding tflite, or'} --tolerance {steps}"


def _steps(operation: Operation, context: Context) -> tuple[int, str]:
    """Return by how many steps a result may be off, and why; "": since it rounds in another way."""
    if operation.kind == "IntegerSvdf":
        return 0, ""
    if operation.kind == "IntegerLstm":
        return _LSTM_STEPS, "its gates are read from tables, as in TFLite Micro, where LiteRT computes them: give"
    wide, is_product = arithmetic.is_wide(operation), operation.kind in ("Gemm", "MatMul")
    if isinstance(operation.attrs, Pool) and operation.attrs.kind == "max":
        return 0, ""
    if context.rounding != "tflite":
        steps = 1
        if wide and operation.kind == "Softmax":
            steps = _TABLE_STEPS
        elif wide and (operation.kind == "Conv" or is_product):
            steps = _steps_of_short_multipliers(operation)
        return steps, ""
    if is_product and operation.operand(1).is_constant and _product_differs(operation):
        if wide:
            return _steps_of_short_multipliers(operation), "it multiplies by 15 bits where LiteRT has float64: give"
        return 1, "it rounds twice what LiteRT rounds once, which may be a step: give"
    if wide and operation.kind == "Add" and _are_powers(operation):
        return 1, "its scales are powers of 2, for which LiteRT may have another sum: give"
    return 0, ""


def _product_differs(operation: Operation) -> bool:
    """Whether LiteRT has another result for some sum of a matrix product."""
    wide, scales, bounds = arithmetic.is_wide(operation), arithmetic.product_scales(operation), _bounds(operation)
    x, weights, output = operation.operand(0), operation.operand(1), operation.output
    assert weights.quant is not None
    real = [arithmetic.scale_of(x) * one / arithmetic.scale_of(output) for one in weights.quant.scale]
    if len(scales) == 1:
        bounds = bounds.max(keepdims=True)
    pairs = zip(scales, real, map(int, bounds), strict=True)
    return any(arithmetic.differs_from_real(*pair, wide=wide) for pair in pairs)


def _steps_of_short_multipliers(operation: Operation) -> int:
    """Return by how many steps sums of int16 may be off that are scaled by 15 bits."""
    bounds = _bounds(operation)
    scales = arithmetic.scales_of(operation, len(bounds))
    most = 1
    for scale, bound in zip(scales, bounds, strict=True):
        multiplier, shift = fixed_multiplier(scale)
        error = abs(arithmetic.reduced(multiplier) * 2.0 ** (shift - 15) / scale - 1)
        most = max(most, 1 + int(error * min(2.0**15, float(bound) * scale)))
    return most


def _bounds(operation: Operation) -> Array:
    """Return a number for each output that no accumulator of it is further from 0 than."""
    x, data = operation.operand(0), operation.operand(1).data
    assert data is not None
    rows = data.reshape(len(data), -1) if operation.kind == "Conv" else rows_of(operation)
    low, high = x.dtype.limits
    far = max(abs(low - arithmetic.zero_of(x)), abs(high - arithmetic.zero_of(x)))
    found: Array = abs(rows.astype(np.int64)).sum(1) * far + abs(arithmetic.bias_of(operation, len(rows)).astype(int))
    return found


def _are_powers(operation: Operation) -> bool:
    scales = [arithmetic.scale_of(one) for one in (operation.operand(0), operation.operand(1), operation.output)]
    exponents = np.log2(scales)
    return bool((abs(exponents - np.round(exponents)) < 1e-3).all())


def _has_constant_weights(operation: Operation) -> str:
    weights = operation.operand(1)
    if not weights.is_constant or weights.dtype.label != "int8" or weights.quant is None:
        return "its weights are no constant of int8"
    if any(weights.quant.zero_point):
        return "its weights have zero points"
    bias = operation.inputs[2] if len(operation.inputs) > 2 else None
    is_fit = bias is None or (bias.is_constant and bias.dtype.label == "int32")
    return "" if is_fit else "its bias is no constant of int32"


def _convolution(operation: Operation) -> str:
    attrs = operation.attrs
    assert isinstance(attrs, Convolution)
    channels = operation.operand(0).shape[-1]
    if attrs.rank > 2:
        return f"it has {attrs.rank} dimensions"
    if attrs.group not in (1, channels):
        return f"its channels are in {attrs.group} groups"
    if attrs.group == channels > 1 and operation.operand(1).shape[1] != 1:
        return "its channels are in groups"
    return _has_constant_weights(operation)


def _product(operation: Operation) -> str:
    attrs = operation.attrs
    if isinstance(attrs, Gemm) and (attrs.transA or attrs.alpha != 1 or attrs.beta != 1):
        return "it transposes or scales its operands"
    weights = operation.operand(1)
    if not weights.is_constant:
        return _product_of_variables(operation)
    if len(weights.shape) != 2 or weights.quant is None:
        return "its weights are no matrix"
    outputs = 0 if getattr(attrs, "transB", 0) else 1
    if not weights.is_per_tensor and weights.quant.axis != outputs:
        return "its weights have a scale for each input"
    return _has_constant_weights(operation)


def _product_of_variables(operation: Operation) -> str:
    one, other = operation.operand(0), operation.operand(1)
    if one.is_constant or operation.kind != "MatMul" or operation.activation is not None or len(operation.inputs) > 2:
        return "its second operand is no constant"
    if one.dtype.label != "int8" or other.dtype.label != "int8":
        return "two variable operands have to be int8"
    is_like = len(one.shape) == len(other.shape) >= 2 and one.shape[:-2] == other.shape[:-2]
    return "" if is_like else f"its operands are {list(one.shape)} and {list(other.shape)}"


def _one_scale(operation: Operation) -> str:
    return "" if operation.operand(1).is_per_tensor else "its weights have a scale for each output"


def _pool(operation: Operation) -> str:
    attrs = operation.attrs
    assert isinstance(attrs, Pool)
    if attrs.kind not in ("average", "max") or attrs.rank > 2 or any(one != 1 for one in attrs.dilations):
        return "it is another pool than one of one or two dimensions by mean or maximum"
    if attrs.count_pads and any(attrs.pads):
        return "it counts its padding"
    x, output = operation.operand(0), operation.output
    return "" if x.quant == output.quant else "its input and output are on two grids"


def _softmax(operation: Operation) -> str:
    attrs, output = operation.attrs, operation.output
    assert isinstance(attrs, Softmax)
    rank = len(operation.operand(0).shape)
    if attrs.log or attrs.axis % rank != rank - 1:
        return "it is not over the last dimension"
    scale = arithmetic.scale_of(output)
    if arithmetic.is_wide(operation):
        return "" if abs(scale * 2**15 - 1) < 1e-3 else "its output does not stand on a grid of 1/32768"
    fits = scale == 2.0**-8 and arithmetic.zero_of(output) == -128
    return "" if fits else "its output does not stand on a grid of 1/256 from 0 on"


def _same_shapes(operation: Operation) -> str:
    if len(operation.variables) != 2:
        return "an operand is constant"
    one, other = operation.variables
    return "" if one.shape == other.shape == operation.output.shape else "its operands have two shapes"


def _around_zero(operation: Operation) -> str:
    off = next((one for one in (*operation.variables, *operation.outputs) if arithmetic.zero_of(one)), None)
    return "" if off is None else f"{off.tensor} has a zero point of {arithmetic.zero_of(off)}; of int16 it takes 0"


def _sums_fit(operation: Operation) -> str:
    """Sums of int16 are of 32 bits in some of its loops; they are made narrow before they are clamped."""
    bounds = _bounds(operation)
    if bounds.max() >= 2**31:
        return "its sums may exceed 32 bits"
    scales = arithmetic.scales_of(operation, len(bounds))
    if max(map(float, bounds * np.asarray(scales))) >= _MOST_RESULT or max(scales) >= 2**14:
        return "its sums, scaled, may exceed 31 bits"
    return "" if max(operation.operand(0).shape) <= _MOST_WIDTH else f"a dimension exceeds {_MOST_WIDTH:,}"


def _lstm(operation: Operation) -> str:
    operands = [one for one in operation.inputs if one is not None]
    weights = [one for one in operands[3:] if one.dtype.label == "int8"]
    if len(operands) != len(operation.inputs) or any(
        one is None or not one.is_constant for one in operation.inputs[3:]
    ):
        return "a gate has no weights or no bias, or variable ones"
    known = all(one.is_per_tensor for one in (*operands[:3], *weights))
    return "" if known else "an operand is not quantised with one scale"


def _svdf(operation: Operation) -> str:
    operands = [one for one in operation.inputs if one is not None]
    if not all(one.is_constant for one in operands[2:]):
        return "its weights are no constants"
    off = next((one for one in operands[:4] if not one.is_per_tensor), None)
    if off is not None or not operation.output.is_per_tensor:
        return "an operand is not quantised with one scale"
    off = next((one for one in operands[1:4] if arithmetic.zero_of(one)), None)
    if off is not None:
        return f"{off.tensor} has a zero point of {arithmetic.zero_of(off)}; it takes 0"
    time, state = operation.operand(3).dtype.label, operation.operand(1).dtype.label
    return "" if time == state else f"its weights over time are {time}, its state {state}"


_BYTES, _WORDS = ("int8",), ("int16",)
PATTERNS = (
    Pattern("Conv", _BYTES, "NHWC", True, (_convolution,)),
    Pattern("Gemm", _BYTES, "", True, (_product,)),
    Pattern("MatMul", _BYTES, "", True, (_product,)),
    Pattern("Pool", _BYTES, "NHWC", True, (_pool,)),
    Pattern("Softmax", _BYTES, "", True, (_softmax,)),
    Pattern("Add", _BYTES, "", True, (_same_shapes,)),
    Pattern("Mul", _BYTES, "", True, (_same_shapes,)),
    Pattern("Conv", _WORDS, "NHWC", True, (_around_zero, _convolution, _sums_fit)),
    Pattern("Gemm", _WORDS, "", True, (_around_zero, _product, _one_scale, _sums_fit)),
    Pattern("MatMul", _WORDS, "", True, (_around_zero, _product, _one_scale, _sums_fit)),
    Pattern("Pool", _WORDS, "NHWC", True, (_around_zero, _pool)),
    Pattern("Softmax", _WORDS, "", True, (_around_zero, _softmax)),
    Pattern("Add", _WORDS, "", True, (_around_zero, _same_shapes)),
    Pattern("Mul", _WORDS, "", True, (_around_zero, _same_shapes)),
    Pattern("IntegerLstm", ("int8", "int16"), where=(_lstm,)),
    Pattern("IntegerSvdf", ("int8", "int16"), where=(_svdf,)),
)
"""The operations that it has, of int8 and of int16 with weights of int8."""
