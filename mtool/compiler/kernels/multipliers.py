"""Scales as integers: a multiplier of 31 bits and a shift, as TFLite and the libraries that follow it have them."""

import math


def fixed_multiplier(scale: float) -> tuple[int, int]:
    """Return a multiplier of 31 bits behind the point and an exponent: scale = multiplier / 2^31 * 2^exponent.

    Source: tensorflow/lite/kernels/internal/quantization_util.cc (QuantizeMultiplier).
    """
    fraction, exponent = math.frexp(scale)
    multiplier = math.floor(fraction * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier, exponent = 2**30, exponent + 1
    if exponent < -31:
        return 0, 0
    return (2**31 - 1, 30) if exponent > 30 else (multiplier, exponent)
