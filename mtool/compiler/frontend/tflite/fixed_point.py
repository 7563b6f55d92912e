"""TFLite's fixed-point numbers: multipliers, activation ranges, and gemmlowp's exponential function.

Sources: tensorflow/lite/kernels/internal/quantization_util.cc (QuantizeMultiplier), kernels/kernel_util.cc
(CalculateActivationRangeQuantized), gemmlowp/fixedpoint/fixedpoint.h (exp_on_negative_values).
"""

import math
from typing import Any

import numpy as np
import tflite

from mtool.compiler.frontend.tflite.schema import Tensor
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.scaling import fixed_multiplier
from mtool.compiler.kernels.threshold_multipliers import Reach, first_sums, multiplier_bounds
from mtool.compiler.operators.problems import Unsupported

RANGES = {
    tflite.ActivationFunctionType.NONE: (-math.inf, math.inf),
    tflite.ActivationFunctionType.RELU: (0.0, math.inf),
    tflite.ActivationFunctionType.RELU6: (0.0, 6.0),
    tflite.ActivationFunctionType.RELU_N1_TO_1: (-1.0, 1.0),
}
"""The ranges of fused activations that only clamp."""


def multipliers(scales: float | Array) -> tuple[Array, Array]:
    """Return int32 multipliers and int8 shifts with scale = multiplier / 2^(32 + shift), for `rescale`."""
    pairs = [fixed_multiplier(float(scale)) for scale in np.atleast_1d(scales)]
    return np.asarray([m for m, _ in pairs], np.int32), np.asarray([-1 - e for _, e in pairs], np.int8)


def limits(tensor: Tensor, activation: int) -> tuple[int, int]:
    """Return the smallest and largest integer of an output after a fused activation.

    Raises:
        Unsupported: the activation does more than clamp.
    """
    if activation not in RANGES:
        raise Unsupported(f"its fused activation number {activation} is not supported")
    return between(tensor, *RANGES[activation])


def between(tensor: Tensor, least: float, most: float) -> tuple[int, int]:
    """Return a tensor's integers nearest to two real numbers, clamped to its type."""
    bounds = np.iinfo(tensor.dtype)

    def step(value: float) -> int:
        quotient = np.float32(value) / tensor.scale[0]
        return int(tensor.zero_point[0]) + int(math.copysign(math.floor(abs(quotient) + 0.5), quotient))

    low = int(bounds.min) if least == -math.inf else max(int(bounds.min), step(least))
    high = int(bounds.max) if most == math.inf else min(int(bounds.max), step(most))
    return low, high


def rescaled(values: Array, scale: float) -> Array:
    """Return int64 values times a scale, by its fixed-point multiplier, rounded twice."""
    return scaled_by(values, *fixed_multiplier(scale))


def scaled_by(values: Array, multiplier: int, exponent: int) -> Array:
    """Return int64 values times multiplier / 2^31 times 2^exponent, rounded twice."""
    left, right = max(exponent, 0), max(-exponent, 0)
    first = ((values.astype(np.int64) << left) * multiplier + (1 << 30)) >> 31
    rounded: Array = (first + (1 << right >> 1) - (first < 0)) >> right if right else first
    return rounded


def narrowed(multiplier: Any) -> Any:
    """Convert multipliers from 31 to 15 fractional bits."""
    return np.minimum((np.asarray(multiplier, np.int64) + (1 << 15)) >> 16, 2**15 - 1)


def inverse_root(number: int) -> tuple[int, int]:
    """Return 1 / sqrt(number) as a multiplier with 31 fractional bits and an exponent, by Newton's iteration.

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
    """Return exp(-scale * d) for d = 255 … 0 as int32 with 31 fractional bits, as in TFLite's softmax."""
    whole = 5  # bits before the point of the exponent's argument
    multiplier, left = fixed_multiplier(min(scale * 2 ** (31 - whole), 2.0**31 - 1))
    differences, right = np.arange(-255, 1), 31 - left
    arguments = (differences * multiplier + (1 << (right - 1))) >> right
    is_near = -differences <= math.floor(31 * 2 ** (31 - whole) / 2**left)
    return np.where(is_near, _exponential(np.where(is_near, arguments, 0), whole), 0).astype(np.int32)


def _product(a: Any, b: Any) -> Any:
    return (a * b + (1 << 30)) >> 31


def divided(value: Any, shift: int) -> Any:
    """Return value / 2^shift, ties away from zero."""
    mask = (1 << shift) - 1
    return (value >> shift) + ((value & mask) > (mask >> 1) + (value < 0))


FACTORS = ((-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242))
"""exp(-2^n), with 31 fractional bits."""


def _exponential(arguments: Array, whole: int) -> Array:
    """Return exp of numbers that are not positive, with `whole` integer bits."""
    fraction = 31 - whole
    quarter = 1 << (fraction - 2)
    rest = (arguments & (quarter - 1)) - quarter
    result = exp_near_zero(rest << whole)
    for exponent, factor in FACTORS:
        has_factor = (rest - arguments) >> (fraction + exponent) & 1
        result = np.where(has_factor, _product(result, factor), result)
    return np.where(arguments == 0, 2**31 - 1, result)


def exp_near_zero(argument: Any) -> Any:
    """Return exp of numbers from -1/4 to 0, by the series around -1/8."""
    x = argument + (1 << 28)
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    series = divided(_product(divided(fourth, 2) + cube, 715827883) + square, 1)
    return 1895147668 + _product(1895147668, x + series)


MAX_PLACES = 53  # of a result of 9 bits in 63
ROWS = 1024  # channels at a time


def single_rounding(scales: Array, reach: Reach, low: int, high: int) -> tuple[Array, Array] | None:
    """Return int32 multipliers and int8 shifts, as `multipliers` does; None: a channel has none.

    Args:
        scales: float64 [N].
        reach: the ranges of the sums, [N].
        low: the smallest result, less its zero point.
        high: the largest.
    """
    nominal, shifts = multipliers(scales)
    if (shifts.astype(int) + 32 > MAX_PLACES).any() or (shifts.astype(int) + 32 < 1).any() or not nominal.all():
        return None
    result = nominal.copy()
    steps = np.arange(low + 1, high + 1, dtype=np.int64)
    for start in range(0, scales.size, ROWS):
        rows = slice(start, start + ROWS)
        places = shifts[rows].astype(np.int64)[:, None] + 32
        lower, upper = _bounds(scales[rows, None], places, steps, reach.least[rows, None], reach.most[rows, None])
        if (lower > upper).any():
            return None
        result[rows] = np.clip(nominal[rows], lower, upper)
    return result, shifts


def _bounds(scales: Array, places: Array, steps: Array, least: Array, most: Array) -> tuple[Array, Array]:
    """Return each channel's smallest and largest multiplier that has the same results as the scale for all steps."""
    halves = steps - 0.5

    def takes(sums: Array) -> Array:
        product = sums * scales
        return np.asarray((product > halves) | ((product == halves) & (steps > 0)))

    first = first_sums(takes, halves / scales, least, most)
    return multiplier_bounds(first, (steps << places) - (1 << (places - 1)), least, most)


SIGMOIDS = np.array([
    32768, 33451, 34133, 34813, 35493, 36169, 36843, 37513, 38180, 38841, 39498, 40149, 40794, 41432, 42064,
    42688, 43304, 43912, 44511, 45102, 45683, 46255, 46817, 47369, 47911, 48443, 48964, 49475, 49975, 50464,
    50942, 51409, 51865, 52311, 52745, 53169, 53581, 53983, 54374, 54755, 55125, 55485, 55834, 56174, 56503,
    56823, 57133, 57433, 57724, 58007, 58280, 58544, 58800, 59048, 59288, 59519, 59743, 59959, 60168, 60370,
    60565, 60753, 60935, 61110, 61279, 61441, 61599, 61750, 61896, 62036, 62172, 62302, 62428, 62549, 62666,
    62778, 62886, 62990, 63090, 63186, 63279, 63368, 63454, 63536, 63615, 63691, 63765, 63835, 63903, 63968,
    64030, 64090, 64148, 64204, 64257, 64308, 64357, 64405, 64450, 64494, 64536, 64576, 64614, 64652, 64687,
    64721, 64754, 64786, 64816, 64845, 64873, 64900, 64926, 64950, 64974, 64997, 65019, 65039, 65060, 65079,
    65097, 65115, 65132, 65149, 65164, 65179, 65194, 65208, 65221, 65234, 65246, 65258, 65269, 65280, 65291,
    65301, 65310, 65319, 65328, 65337, 65345, 65352, 65360, 65367, 65374, 65381, 65387, 65393, 65399, 65404,
    65410, 65415, 65420, 65425, 65429, 65433, 65438, 65442, 65445, 65449, 65453, 65456, 65459, 65462, 65465,
    65468, 65471, 65474, 65476, 65479, 65481, 65483, 65485, 65488, 65489, 65491, 65493, 65495, 65497, 65498,
    65500, 65501, 65503, 65504, 65505, 65507, 65508, 65509, 65510, 65511, 65512, 65513, 65514, 65515, 65516,
    65517, 65517, 65518, 65519, 65520, 65520, 65521, 65522, 65522, 65523, 65523, 65524, 65524, 65525, 65525,
    65526, 65526, 65526, 65527, 65527, 65528, 65528, 65528, 65529, 65529, 65529, 65529, 65530, 65530, 65530,
    65530, 65531, 65531, 65531, 65531, 65531, 65532, 65532, 65532, 65532, 65532, 65532, 65533, 65533, 65533,
    65533, 65533, 65533, 65533, 65533, 65534, 65534, 65534, 65534, 65534, 65534, 65534, 65534, 65534, 65534,
    65535,
], np.int32)  # fmt: skip
