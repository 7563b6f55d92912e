"""CMSIS-NN's arithmetic: multipliers, limits, and where it may differ from TFLite's reference by a step.

Sources: arm_nnsupportfunctions.h (arm_nn_requantize, arm_nn_requantize_s64, arm_nn_doubling_high_mult_no_sat,
arm_nn_divide_by_power_of_two), tensorflow/lite/kernels/kernel_util.cc (CalculateActivationRangeQuantized).
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from mtool.compiler.backends.operation import Operand, Operation
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.scaling import fixed_multiplier

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
    return _differ(lambda values: ours(values, multiplier, shift), lambda values: rounded_real(values, real), bound)


def _differ(ours: Callable[[Array], Array], other: Callable[[Array], Array], bound: int) -> bool:
    return bound > _MOST or any(bool((ours(values) != other(values)).any()) for values in _up_to(bound))


def _up_to(bound: int) -> Iterator[Array]:
    for start in range(0, bound + 1, _PART):
        near = np.arange(start, min(start + _PART, bound + 1))
        yield near
        yield -near
