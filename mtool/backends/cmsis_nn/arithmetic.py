"""CMSIS-NN's arithmetic: multipliers, limits, and where it may differ from TFLite's reference by a step.

Sources: arm_nnsupportfunctions.h (arm_nn_requantize, arm_nn_doubling_high_mult_no_sat,
arm_nn_divide_by_power_of_two), tensorflow/lite/kernels/kernel_util.cc (CalculateActivationRangeQuantized).
"""

import math
from collections.abc import Sequence

import numpy as np

from mtool.backends.operation import Operand, Operation
from mtool.ir.types import Array
from mtool.kernels.multipliers import fixed_multiplier

_MOST = 1 << 23  # accumulators that are tried one by one


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


def multipliers(scales: Sequence[float]) -> tuple[Array, Array]:
    """Return the multipliers and the shifts (to the left) of scales."""
    found = [fixed_multiplier(scale) for scale in scales]
    return np.asarray([one for one, _ in found], np.int32), np.asarray([shift for _, shift in found], np.int32)


def requantised(values: Array, multiplier: int, shift: int) -> Array:
    """Return accumulators on another grid as CMSIS-NN computes them: rounded to 31 bits, then by the shift."""
    left, right = max(shift, 0), max(-shift, 0)
    first = ((values.astype(np.int64) << left) * multiplier + (1 << 30)) >> 31
    if not right:
        return first
    mask = (1 << right) - 1
    rounded: Array = (first >> right) + ((first & mask) > (mask >> 1) + (first < 0))
    return rounded


def rounded_once(values: Array, multiplier: int, shift: int) -> Array:
    """Return them as LiteRT's fully connected layers have them: rounded once, ties up."""
    total = 31 - shift
    exact: Array = (values.astype(np.int64) * multiplier + (1 << (total - 1))) >> total
    return exact


def differs_from_once(multiplier: int, shift: int, bound: int) -> bool:
    """Whether any accumulator up to a bound is another integer if it is rounded twice; True if not known."""
    if bound > _MOST or shift > 0 or 31 - shift > 62:
        return True
    values = np.arange(-bound, bound + 1)
    return bool((requantised(values, multiplier, shift) != rounded_once(values, multiplier, shift)).any())
