"""TFLite's fixed-point numbers: multipliers, activation ranges, and gemmlowp's exponential function.

Sources: tensorflow/lite/kernels/internal/quantization_util.cc (QuantizeMultiplier), kernels/kernel_util.cc
(CalculateActivationRangeQuantized), gemmlowp/fixedpoint/fixedpoint.h (exp_on_negative_values).
"""

import math

import numpy as np
import tflite

from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.tflite.description import Tensor
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.scaling import fixed_multiplier

RANGES = {
    tflite.ActivationFunctionType.NONE: (-math.inf, math.inf),
    tflite.ActivationFunctionType.RELU: (0.0, math.inf),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
    tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
}
"""What fused activations leave of real numbers, of those that only clamp."""


def multipliers(scales: Array) -> tuple[Array, Array]:
    """Return int32 multipliers and int8 shifts with scale = multiplier / 2^(32 + shift), as `rescale` takes them."""
    found = [fixed_multiplier(float(scale)) for scale in np.atleast_1d(scales)]
    return np.asarray([m for m, _ in found], np.int32), np.asarray([-1 - e for _, e in found], np.int8)


def limits(tensor: Tensor, activation: int) -> tuple[int, int]:
    """Return the smallest and largest integer of an output behind a fused activation.

    Raises:
        Unsupported: the activation is none that only clamps.
    """
    if activation not in RANGES:
        raise Unsupported(f"its fused activation is number {activation}")
    return between(tensor, *RANGES[activation])


def between(tensor: Tensor, least: float, most: float) -> tuple[int, int]:
    """Return the integers of a tensor that are nearest to two real numbers, as far as it has them."""
    bounds = np.iinfo(tensor.dtype)

    def step(value: float) -> int:
        quotient = np.float32(value) / tensor.scale[0]
        return int(tensor.zero_point[0]) + int(math.copysign(math.floor(abs(quotient) + 0.5), quotient))

    low = int(bounds.min) if least == -math.inf else max(int(bounds.min), step(least))
    high = int(bounds.max) if most == math.inf else min(int(bounds.max), step(most))
    return low, high


def rescaled(values: Array, scale: float) -> Array:
    """Return int64 values times a scale, by its multiplier, rounded twice."""
    (multiplier,), (shift,) = multipliers(np.asarray([scale]))
    return scaled_by(values, int(multiplier), -1 - int(shift))


def scaled_by(values: Array, multiplier: int, exponent: int) -> Array:
    """Return int64 values times multiplier / 2^31 times 2^exponent, rounded twice."""
    left, right = max(exponent, 0), max(-exponent, 0)
    first = ((values.astype(np.int64) << left) * multiplier + (1 << 30)) >> 31
    rounded: Array = (first + (1 << right >> 1) - (first < 0)) >> right if right else first
    return rounded


def inverse_root(number: int) -> tuple[int, int]:
    """Return 1 / sqrt(number) as a multiplier of 31 bits behind the point and an exponent, by Newton's iteration.

    Source: tensorflow/lite/kernels/internal/common.h (GetInvSqrtQuantizedMultiplierExp).
    """
    if number <= 1:
        return 2**31 - 1, 0
    shift = 11
    while number >= 1 << 29:
        number, shift = number // 4, shift + 1
    pairs = (32 - number.bit_length() - 1) // 2 - 1
    shift, number = shift - pairs, (number << 2 * pairs) >> 1
    half, x = (number + 1) >> 1, 1 << 28  # 1 with three bits before the point
    for _ in range(5):
        cube = _product(_product(x, x), x) << 6
        x = (_product((1 << 28) + (1 << 27), x) - _product(half, cube)) << 3
    x = _product(x, 1518500250)
    return (x << -shift, 0) if shift < 0 else (x, -shift)


def exponentials(scale: float) -> Array:
    """Return exp(-scale * d) for d = 255 … 0 as int32 with 31 bits behind the point, as TFLite's softmax has them."""
    whole = 5  # bits before the point of the exponent's argument
    (multiplier,), (shift,) = multipliers(np.asarray([min(scale * 2 ** (31 - whole), 2.0**31 - 1)]))
    right, left = 32 + int(shift), -1 - int(shift)
    furthest = math.floor(31 * 2 ** (31 - whole) / 2**left)
    results = []
    for difference in range(-255, 1):
        argument = (difference * int(multiplier) + (1 << (right - 1))) >> right
        results.append(_exponential(argument, whole) if -difference <= furthest else 0)
    return np.asarray(results, np.int32)


def _product(a: int, b: int) -> int:
    return (a * b + (1 << 30)) >> 31


def divided(value: int, shift: int) -> int:
    """Return value / 2^shift, ties away from zero."""
    mask = (1 << shift) - 1
    return (value >> shift) + ((value & mask) > (mask >> 1) + (value < 0))


FACTORS = ((-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242))
"""exp(-2^n), with 31 bits behind the point."""


def _exponential(argument: int, whole: int) -> int:
    """Return exp of a number that is not positive, with `whole` bits before the point."""
    if argument == 0:
        return 2**31 - 1
    fraction = 31 - whole
    quarter = 1 << (fraction - 2)
    rest = (argument & (quarter - 1)) - quarter
    result = exp_near_zero(rest << whole)
    remainder = rest - argument
    for exponent, factor in FACTORS:
        if remainder >> (fraction + exponent) & 1:
            result = _product(result, factor)
    return result


def exp_near_zero(argument: int) -> int:
    """Return exp of a number from -1/4 to 0, by its series around -1/8."""
    x = argument + (1 << 28)
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    series = divided(_product(divided(fourth, 2) + cube, 715827883) + square, 1)
    return 1895147668 + _product(1895147668, x + series)
