"""What CMSIS-NN can compute of an operation, and where that is what the rest of the network would compute.

Sources: arm_nnsupportfunctions.h (arm_nn_requantize, arm_nn_requantize_s64, arm_nn_doubling_high_mult_no_sat,
arm_nn_divide_by_power_of_two), tensorflow/lite/kernels/kernel_util.cc (CalculateActivationRangeQuantized).
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from mtool.compiler.backends.interface import Context, Operand, Operation, Pattern
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.multipliers import fixed_multiplier
from mtool.compiler.operators.gemm import Gemm
from mtool.compiler.operators.normalize import Softmax
from mtool.compiler.operators.sliding_window import Pool
from mtool.compiler.operators.window import CONV, Convolution

_MOST = 1 << 23  # accumulators that are tried one by one
_PART = 1 << 16  # of them at a time: where there is a difference, it is near


def is_wide(operation: Operation) -> bool:
    """Whether the operation is one of int16."""
    return operation.output.dtype.label == "int16"


def scale_of(operand: Operand) -> float:
    """Return the scale of an operand that has one."""
    assert operand.quant is not None
    return operand.quant.scale[0]


def zero_of(operand: Operand) -> int:
    """Return the zero point of an operand that has one."""
    assert operand.quant is not None
    return operand.quant.zero_point[0]


def limits(operation: Operation) -> tuple[int, int]:
    """Return the smallest and the largest integer of an operation's result, behind its activation."""
    output, activation = operation.output, operation.activation
    low, high = output.dtype.limits

    def step(value: float) -> int:
        quotient = float(np.float32(value) / np.float32(scale_of(output)))
        return zero_of(output) + int(math.copysign(math.floor(abs(quotient) + 0.5), quotient))

    if activation is not None and activation.low is not None:
        low = min(max(low, step(activation.low)), high)
    if activation is not None and activation.high is not None:
        high = max(min(high, step(activation.high)), low)
    return low, high


def scales_of(operation: Operation, channels: int) -> list[float]:
    """Return the scale of each channel's sums over the result's."""
    quant = operation.operand(1).quant
    assert quant is not None
    own = quant.scale if len(quant.scale) > 1 else quant.scale * channels
    x, output = scale_of(operation.operand(0)), scale_of(operation.output)
    return [x * one / output for one in own]


def product_scales(operation: Operation) -> list[float]:
    """Return the scales of a matrix product's sums over its result's; two alone are multiplied as LiteRT does it.

    That is in float64 of FULLY_CONNECTED (Gemm), in float32 of BATCH_MATMUL.
    """
    x, weights = operation.operand(0), operation.operand(1)
    if not weights.is_per_tensor or operation.kind == "Gemm":
        assert weights.quant is not None
        return scales_of(operation, len(weights.quant.scale))
    return [float(np.float32(scale_of(x)) * np.float32(scale_of(weights))) / scale_of(operation.output)]


def bias_of(operation: Operation, count: int) -> Array:
    """Return the bias of each output, zeros if there is none."""
    if len(operation.inputs) < 3 or operation.inputs[2] is None:
        return np.zeros(count, np.int32)
    data = operation.operand(2).data
    assert data is not None
    return np.ascontiguousarray(np.broadcast_to(data.reshape(-1), (count,)).astype(np.int32))


def multipliers(scales: Sequence[float]) -> tuple[Array, Array]:
    """Return the multipliers and the shifts (to the left) of scales."""
    found = [fixed_multiplier(scale) for scale in scales]
    return np.asarray([one for one, _ in found], np.int32), np.asarray([shift for _, shift in found], np.int32)


def reduced(multiplier: int) -> int:
    """Return a multiplier of 15 bits, by which sums of 64 bits are scaled."""
    return (multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF


def requantised(values: Array, multiplier: int, shift: int) -> Array:
    """Return accumulators on another grid as CMSIS-NN computes them: rounded to 31 bits, then by the shift."""
    left, right = max(shift, 0), max(-shift, 0)
    first = ((values.astype(np.int64) << left) * multiplier + (1 << 30)) >> 31
    if not right:
        return first
    mask = (1 << right) - 1
    rounded: Array = (first >> right) + ((first & mask) > (mask >> 1) + (first < 0))
    return rounded


def requantised_wide(values: Array, multiplier: int, shift: int) -> Array:
    """Return accumulators of 64 bits on another grid as CMSIS-NN computes them, by a multiplier of 15 bits."""
    exact: Array = ((values.astype(np.int64) * reduced(multiplier) >> (14 - shift)) + 1) >> 1
    return exact


def rounded_real(values: Array, scale: float) -> Array:
    """Return them as LiteRT's fully connected layers have them: times a float64, ties away from zero."""
    steps = values * scale
    exact: Array = np.where(steps < 0, -np.floor(0.5 - steps), np.floor(steps + 0.5)).astype(np.int64)
    return exact


def differs_from_real(scale: float, real: float, bound: int, *, wide: bool) -> bool:
    """Whether any accumulator up to a bound is another integer than LiteRT's with a scale of float64, `real`."""
    multiplier, shift = fixed_multiplier(scale)
    if shift > (14 if wide else 0) or 31 - shift > 62:
        return True
    ours = requantised_wide if wide else requantised
    return bound > _MOST or any(
        bool((ours(values, multiplier, shift) != rounded_real(values, real)).any()) for values in _up_to(bound)
    )


def _up_to(bound: int) -> Iterator[Array]:
    for start in range(0, bound + 1, _PART):
        near = np.arange(start, min(start + _PART, bound + 1))
        yield near
        yield -near


_ELEMENTS = {"Softmax": "softmax", "Add": "elementwise_add", "Mul": "elementwise_mul"}


def function_of(operation: Operation) -> str:
    """Return the function's name; the operation is one that a pattern matches."""
    bits = "s16" if is_wide(operation) else "s8"
    if operation.kind == "Conv":
        return f"arm_{'depthwise_conv' if is_depthwise(operation) else 'convolve'}_wrapper_{bits}"
    if isinstance(operation.attrs, Pool):
        return f"arm_{'avgpool' if operation.attrs.kind == 'average' else 'max_pool'}_{bits}"
    if operation.kind in ("Gemm", "MatMul"):
        if not operation.operand(1).is_constant:
            return f"arm_batch_matmul_{bits}"
        return f"arm_fully_connected_{bits if operation.operand(1).is_per_tensor else f'per_channel_{bits}'}"
    if operation.kind == "IntegerLstm":
        return "arm_lstm_unidirectional_s8"
    if operation.kind == "IntegerSvdf":
        return "arm_svdf_state_s16_s8" if operation.operand(1).dtype.label == "int16" else "arm_svdf_s8"
    return f"arm_{_ELEMENTS[operation.kind]}_{bits}"


def is_depthwise(operation: Operation) -> bool:
    """Whether each channel of a Conv is by itself."""
    attrs = operation.attrs
    assert isinstance(attrs, Convolution)
    return attrs.group == operation.operand(0).shape[-1] > 1


def rows_of(operation: Operation) -> Array:
    """Return the weights of a matrix product as one row an output."""
    data = operation.operand(1).data
    assert data is not None
    is_transposed = bool(getattr(operation.attrs, "transB", 0))
    return np.ascontiguousarray(data if is_transposed else data.T)


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
    wide, is_product = is_wide(operation), operation.kind in ("Gemm", "MatMul")
    if isinstance(operation.attrs, Pool) and operation.attrs.kind == "max":
        return 0, ""
    if context.rounding != "tflite":
        steps = 1
        if wide and operation.kind == "Softmax":
            steps = _TABLE_STEPS
        elif wide and (operation.kind == CONV or is_product):
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
    wide, scales, bounds = is_wide(operation), product_scales(operation), _bounds(operation)
    x, weights, output = operation.operand(0), operation.operand(1), operation.output
    assert weights.quant is not None
    real = [scale_of(x) * one / scale_of(output) for one in weights.quant.scale]
    if len(scales) == 1:
        bounds = bounds.max(keepdims=True)
    pairs = zip(scales, real, map(int, bounds), strict=True)
    return any(differs_from_real(*pair, wide=wide) for pair in pairs)


def _steps_of_short_multipliers(operation: Operation) -> int:
    """Return by how many steps sums of int16 may be off that are scaled by 15 bits."""
    bounds = _bounds(operation)
    scales = scales_of(operation, len(bounds))
    most = 1
    for scale, bound in zip(scales, bounds, strict=True):
        multiplier, shift = fixed_multiplier(scale)
        error = abs(reduced(multiplier) * 2.0 ** (shift - 15) / scale - 1)
        most = max(most, 1 + int(error * min(2.0**15, float(bound) * scale)))
    return most


def _bounds(operation: Operation) -> Array:
    """Return a number for each output that no accumulator of it is further from 0 than."""
    x, data = operation.operand(0), operation.operand(1).data
    assert data is not None
    rows = data.reshape(len(data), -1) if operation.kind == CONV else rows_of(operation)
    low, high = x.dtype.limits
    far = max(abs(low - zero_of(x)), abs(high - zero_of(x)))
    found: Array = abs(rows.astype(np.int64)).sum(1) * far + abs(bias_of(operation, len(rows)).astype(int))
    return found


def _are_powers(operation: Operation) -> bool:
    scales = [scale_of(one) for one in (operation.operand(0), operation.operand(1), operation.output)]
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
    scale = scale_of(output)
    if is_wide(operation):
        return "" if abs(scale * 2**15 - 1) < 1e-3 else "its output does not stand on a grid of 1/32768"
    fits = scale == 2.0**-8 and zero_of(output) == -128
    return "" if fits else "its output does not stand on a grid of 1/256 from 0 on"


def _same_shapes(operation: Operation) -> str:
    if len(operation.variables) != 2:
        return "an operand is constant"
    one, other = operation.variables
    return "" if one.shape == other.shape == operation.output.shape else "its operands have two shapes"


def _around_zero(operation: Operation) -> str:
    off = next((one for one in (*operation.variables, *operation.outputs) if zero_of(one)), None)
    return "" if off is None else f"{off.tensor} has a zero point of {zero_of(off)}; of int16 it takes 0"


def _sums_fit(operation: Operation) -> str:
    """Sums of int16 are of 32 bits in some of its loops; they are made narrow before they are clamped."""
    bounds = _bounds(operation)
    if bounds.max() >= 2**31:
        return "its sums may exceed 32 bits"
    scales = scales_of(operation, len(bounds))
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
    off = next((one for one in operands[1:4] if zero_of(one)), None)
    if off is not None:
        return f"{off.tensor} has a zero point of {zero_of(off)}; it takes 0"
    time, state = operation.operand(3).dtype.label, operation.operand(1).dtype.label
    return "" if time == state else f"its weights over time are {time}, its state {state}"


_BYTES, _WORDS = ("int8",), ("int16",)
PATTERNS = (
    Pattern(CONV, _BYTES, "NHWC", True, (_convolution,)),
    Pattern("Gemm", _BYTES, "", True, (_product,)),
    Pattern("MatMul", _BYTES, "", True, (_product,)),
    Pattern("Pool", _BYTES, "NHWC", True, (_pool,)),
    Pattern("Softmax", _BYTES, "", True, (_softmax,)),
    Pattern("Add", _BYTES, "", True, (_same_shapes,)),
    Pattern("Mul", _BYTES, "", True, (_same_shapes,)),
    Pattern(CONV, _WORDS, "NHWC", True, (_around_zero, _convolution, _sums_fit)),
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
