"""Which operations CMSIS-NN can compute, and where its results equal those of the rest of the network.

Sources: arm_nnsupportfunctions.h (arm_nn_requantize, arm_nn_requantize_s64, arm_nn_doubling_high_mult_no_sat,
arm_nn_divide_by_power_of_two), tensorflow/lite/kernels/kernel_util.cc (CalculateActivationRangeQuantized).
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from mtool.compiler.backends import quantized
from mtool.compiler.backends.interface import Context, Operation, Pattern
from mtool.compiler.ir import DType
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.scaling import fixed_multiplier
from mtool.compiler.operators.window import CONV, Pool

_MOST = 1 << 23  # accumulators that are tried one by one
_PART = 1 << 16  # of them at a time: where there is a difference, it is near


def is_wide(operation: Operation) -> bool:
    """Whether the operation computes on int16."""
    return operation.output.dtype.label == "int16"


def limits(operation: Operation) -> tuple[int, int]:
    """Return the smallest and the largest integer of an operation's result, after its activation."""
    output, activation = operation.output, operation.activation
    low, high = output.dtype.limits

    def step(value: float) -> int:
        quotient = float(np.float32(value) / np.float32(output.scales[0]))
        return output.zero_point + int(math.copysign(math.floor(abs(quotient) + 0.5), quotient))

    if activation is not None and activation.low is not None:
        low = min(max(low, step(activation.low)), high)
    if activation is not None and activation.high is not None:
        high = max(min(high, step(activation.high)), low)
    return low, high


def scales_of(operation: Operation, channels: int) -> list[float]:
    """Return the scale of each channel's sums over the result's."""
    scales = operation.operand(1).scales
    channel_scales = scales if len(scales) > 1 else scales * channels
    x, output = operation.operand(0).scales[0], operation.output.scales[0]
    return [x * scale / output for scale in channel_scales]


def product_scales(operation: Operation) -> list[float]:
    """Return the scales of a matrix product's sums over its result's; a single pair is multiplied as in LiteRT.

    That is in float64 of FULLY_CONNECTED (Gemm), in float32 of BATCH_MATMUL.
    """
    x, weights = operation.operand(0), operation.operand(1)
    if not weights.is_per_tensor or operation.kind == "Gemm":
        return scales_of(operation, len(weights.scales))
    return [float(np.float32(x.scales[0]) * np.float32(weights.scales[0])) / operation.output.scales[0]]


def reduced(multiplier: int) -> int:
    """Return a multiplier of 15 bits, by which sums of 64 bits are scaled."""
    return (multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF


def requantized(values: Array, multiplier: int, shift: int) -> Array:
    """Requantize accumulators as CMSIS-NN does: rounded to 31 bits, then by the shift."""
    left, right = max(shift, 0), max(-shift, 0)
    first = ((values.astype(np.int64) << left) * multiplier + (1 << 30)) >> 31
    if not right:
        return first
    mask = (1 << right) - 1
    rounded: Array = (first >> right) + ((first & mask) > (mask >> 1) + (first < 0))
    return rounded


def requantized_wide(values: Array, multiplier: int, shift: int) -> Array:
    """Requantize 64-bit accumulators as CMSIS-NN does, by a 15-bit multiplier."""
    exact: Array = ((values.astype(np.int64) * reduced(multiplier) >> (14 - shift)) + 1) >> 1
    return exact


def rounded_real(values: Array, scale: float) -> Array:
    """Requantize accumulators as LiteRT's fully connected layers do: times a float64, ties away from zero."""
    steps = values * scale
    exact: Array = np.where(steps < 0, -np.floor(0.5 - steps), np.floor(steps + 0.5)).astype(np.int64)
    return exact


def differs_from_real(scale: float, real: float, bound: int, *, wide: bool) -> bool:
    """Whether any accumulator up to a bound is requantized differently from LiteRT with the float64 scale `real`."""
    multiplier, shift = fixed_multiplier(scale)
    if shift > (14 if wide else 0) or 31 - shift > 62:
        return True
    ours = requantized_wide if wide else requantized
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
    """Return the name of the function for an operation that matches a pattern."""
    bits = "s16" if is_wide(operation) else "s8"
    if operation.kind == "Conv":
        return f"arm_{'depthwise_conv' if quantized.is_depthwise(operation) else 'convolve'}_wrapper_{bits}"
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


_MOST_RESULT = 2**30  # of sums of int16, scaled, before they are clamped
_MOST_WIDTH = 2**15 - 1  # of an image of int16, in some of its loops
_TABLE_STEPS = 8  # that a Softmax of int16 by tables may be off the function
_LSTM_STEPS = 2  # that results of an LSTM have been seen to be off, which its states carry on


def rounding(operation: Operation, context: Context) -> str:
    """Return why an operation's results may differ from those of mtool's own C; "": they do not."""
    steps, why = _steps(operation, context)
    if steps <= context.tolerance:
        return ""
    return f"{why or 'it rounds as TFLite does: give --rounding tflite, or'} --tolerance {steps}"


def _steps(operation: Operation, context: Context) -> tuple[int, str]:
    """Return by how many steps a result may be off, and why; "": it rounds differently."""
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
            steps = _steps_of_short_multipliers(operation)
            return steps, "it multiplies by 15-bit numbers where LiteRT uses float64: give"
        return 1, "it rounds twice where LiteRT rounds once, so a result may be one step off: give"
    if wide and operation.kind == "Add" and _are_powers(operation):
        return 1, "its scales are powers of 2, where LiteRT's sums may differ: give"
    return 0, ""


def _product_differs(operation: Operation) -> bool:
    """Whether LiteRT has another result for some sum of a matrix product."""
    wide, scales, bounds = is_wide(operation), product_scales(operation), _bounds(operation)
    x, weights, output = operation.operand(0), operation.operand(1), operation.output
    real = [x.scales[0] * scale / output.scales[0] for scale in weights.scales]
    if len(scales) == 1:
        bounds = bounds.max(keepdims=True)
    pairs = zip(scales, real, map(int, bounds), strict=True)
    return any(differs_from_real(*pair, wide=wide) for pair in pairs)


def _steps_of_short_multipliers(operation: Operation) -> int:
    """Return by how many steps int16 results may be off that are scaled by 15-bit multipliers."""
    bounds = _bounds(operation)
    scales = scales_of(operation, len(bounds))
    most = 1
    for scale, bound in zip(scales, bounds, strict=True):
        multiplier, shift = fixed_multiplier(scale)
        error = abs(reduced(multiplier) * 2.0 ** (shift - 15) / scale - 1)
        most = max(most, 1 + int(error * min(2.0**15, float(bound) * scale)))
    return most


def _bounds(operation: Operation) -> Array:
    """Return the largest absolute value of the accumulator of each output."""
    x, data = operation.operand(0), operation.operand(1).elements
    rows = data.reshape(len(data), -1) if operation.kind == CONV else quantized.rows_of(operation)
    low, high = x.dtype.limits
    far = max(abs(low - x.zero_point), abs(high - x.zero_point))
    bounds: Array = abs(rows.astype(np.int64)).sum(1) * far + abs(quantized.bias_of(operation, len(rows)).astype(int))
    return bounds


def _are_powers(operation: Operation) -> bool:
    scales = [operand.scales[0] for operand in (operation.operand(0), operation.operand(1), operation.output)]
    exponents = np.log2(scales)
    return bool((abs(exponents - np.round(exponents)) < 1e-3).all())


def _weights(operation: Operation) -> str:
    return quantized.weights_refused(operation, DType.INT8)


def _product(operation: Operation) -> str:
    weights = operation.operand(1)
    if not weights.is_constant:
        return _product_of_variables(operation)
    refused, quant = quantized.is_matrix(operation) or _weights(operation), weights.quant
    outputs = 0 if getattr(operation.attrs, "transB", 0) else 1
    if refused or quant is None or len(quant.scale) == 1 or quant.axis == outputs:
        return refused
    return "its weights have a scale for each input"


def _product_of_variables(operation: Operation) -> str:
    x, y = operation.operand(0), operation.operand(1)
    if x.is_constant or operation.kind != "MatMul" or operation.activation is not None or len(operation.inputs) > 2:
        return "its second operand is not constant"
    if x.dtype.label != "int8" or y.dtype.label != "int8":
        return "two variable operands must be int8"
    is_like = len(x.shape) == len(y.shape) >= 2 and x.shape[:-2] == y.shape[:-2]
    return "" if is_like else f"its operands are {list(x.shape)} and {list(y.shape)}"


def _unit_grid(operation: Operation) -> str:
    if not is_wide(operation):
        return quantized.to_unit_grid(operation)
    is_right = abs(operation.output.scales[0] * 2**15 - 1) < 1e-3
    return "" if is_right else "its output scale is not 1/32768"


def _around_zero(operation: Operation) -> str:
    off = next((operand for operand in (*operation.variables, *operation.outputs) if operand.zero_point), None)
    return "" if off is None else f"{off.tensor} has a zero point of {off.zero_point}; expected 0 for int16"


def _sums_fit(operation: Operation) -> str:
    """Some of its int16 loops have 32-bit sums, which are narrowed before they are clamped."""
    if operation.kind != CONV and (refused := quantized.one_scale(operation)):
        return refused
    bounds = _bounds(operation)
    if bounds.max() >= 2**31:
        return "its sums may exceed 32 bits"
    scales = scales_of(operation, len(bounds))
    if max(map(float, bounds * np.asarray(scales))) >= _MOST_RESULT or max(scales) >= 2**14:
        return "its sums, scaled, may exceed 31 bits"
    return "" if max(operation.operand(0).shape) <= _MOST_WIDTH else f"a dimension exceeds {_MOST_WIDTH:,}"


def _lstm(operation: Operation) -> str:
    operands = [operand for operand in operation.inputs if operand is not None]
    if len(operands) < len(operation.inputs) or not all(operand.is_constant for operand in operands[3:]):
        return "a gate's weights or bias are missing or not constant"
    scaled = (*operands[:3], *(operand for operand in operands[3:] if operand.dtype is DType.INT8))
    return "" if all(operand.is_per_tensor for operand in scaled) else "an operand is not quantized with one scale"


def _svdf(operation: Operation) -> str:
    operands = [operand for operand in operation.inputs if operand is not None]
    if not all(operand.is_constant for operand in operands[2:]):
        return "its weights are not constant"
    if not all(operand.is_per_tensor for operand in (*operands[:4], operation.output)):
        return "an operand is not quantized with one scale"
    off = next((operand for operand in operands[1:4] if operand.zero_point), None)
    if off is not None:
        return f"{off.tensor} has a zero point of {off.zero_point}; expected 0"
    time, state = operation.operand(3).dtype.label, operation.operand(1).dtype.label
    return "" if time == state else f"its time weights are {time}, its state {state}"


_KINDS: Mapping[str, tuple[tuple[Callable[[Operation], str], ...], dict[str, Any]]] = {
    CONV: ((_weights,), {"layout": "NHWC", "ranks": (3, 4), "groups": ("one", "channelwise")}),
    "Gemm": ((_product,), {"attributes": quantized.PLAIN_GEMM}),
    "MatMul": ((_product,), {}),
    "Pool": (
        (quantized.counts_no_padding,),
        {"layout": "NHWC", "ranks": (3, 4), "same_grid": True, "attributes": quantized.PLAIN_POOL},
    ),
    "Softmax": ((quantized.over_the_last, _unit_grid), {}),
    "Add": ((), {"variables": 2, "same_shapes": True}),
    "Mul": ((), {"variables": 2, "same_shapes": True}),
}
PATTERNS = (
    *(
        Pattern(kind, (dtype,), quantized=True, where=(*first, *where, *last[kind in (CONV, "Gemm", "MatMul")]), **more)
        for dtype, first, last in (("int8", (), ((), ())), ("int16", (_around_zero,), ((), (_sums_fit,))))
        for kind, (where, more) in _KINDS.items()
    ),
    Pattern("IntegerLstm", ("int8", "int16"), where=(_lstm,)),
    Pattern("IntegerSvdf", ("int8", "int16"), where=(_svdf,)),
)
"""The supported operations: int8, and int16 with int8 weights."""
