"""TFLite's fixed-point numbers against their definitions, in Python's exact integers and real numbers."""

import math

import numpy as np
import pytest
import tflite
from tflite_models import Array

from mtool.compiler.frontend.tflite import fixed_point
from mtool.compiler.frontend.tflite.fixed_point import exponentials, limits, multipliers, rescaled
from mtool.compiler.frontend.tflite.schema import Tensor
from mtool.compiler.operators.problems import Unsupported


def high_product(a: int, b: int) -> int:
    """gemmlowp's SaturatingRoundingDoublingHighMul, of what does not saturate."""
    product = a * b
    nudge = 1 << 30 if product >= 0 else 1 - (1 << 30)
    whole = product + nudge
    return whole // 2**31 if whole >= 0 else -(-whole // 2**31)


def divided(value: int, places: int) -> int:
    """gemmlowp's RoundingDivideByPOT."""
    mask = (1 << places) - 1
    threshold = (mask >> 1) + (value < 0)
    return (value >> places) + ((value & mask) > threshold)


@pytest.mark.parametrize("scale", [0.4, 0.5, 0.25, 0.0371, 1.0, 0.9999999999, 3.7, 1e-4, 2.0**-20, 0.75])
def test_rescaling_rounds_twice(scale: float) -> None:
    (multiplier,), (shift,) = multipliers(np.asarray([scale]))
    left, right = max(-1 - int(shift), 0), max(1 + int(shift), 0)
    values = [*range(-300, 301), 2**15, -(2**15), 2**20 + 1, -(2**20) - 1]
    wanted = [divided(high_product(value << left, int(multiplier)), right) for value in values]
    assert rescaled(np.asarray(values), scale).tolist() == wanted


def test_multipliers_are_the_scales() -> None:
    rng = np.random.default_rng(2)
    scales = np.exp(rng.uniform(-18, 18, 300))
    found, shifts = multipliers(scales)
    assert found.dtype == np.int32 and shifts.dtype == np.int8
    assert (found >= 2**30).all()
    for scale, multiplier, shift in zip(scales, found.tolist(), shifts.tolist(), strict=True):
        assert abs(multiplier / 2.0 ** (32 + shift) - scale) <= scale * 2.0**-31
    (one,), (places,) = multipliers(np.asarray([1 - 2.0**-40]))  # rounds up to 1
    assert (one, places) == (2**30, -2)
    assert multipliers(np.asarray([2.0**-40]))[0].tolist() == [0]
    assert multipliers(np.asarray([2.0**-33]))[0].tolist() == [0]
    assert multipliers(np.asarray([2.0**-32]))[0].tolist() == [2**30]
    assert [part.tolist() for part in multipliers(np.asarray([2.0**40]))] == [[2**31 - 1], [-31]]


def test_exponentials_are_those_of_real_numbers() -> None:
    for scale in (0.003, 0.021, 0.1, 1.0):
        found = exponentials(scale)
        real = np.exp(scale * np.arange(-255, 1)) * 2.0**31
        assert found[-1] == 2**31 - 1 and found.dtype == np.int32
        assert (np.abs(found[:-1] - real[:-1]) <= 500).all()
    assert (np.diff(exponentials(0.021)) > 0).all()


def test_constants_are_the_nearest_to_the_real_ones() -> None:
    for exponent, factor in fixed_point.FACTORS:
        assert abs(factor - math.exp(-(2.0**exponent)) * 2**31) < 1
    assert [exponent for exponent, _ in fixed_point.FACTORS] == [*range(-2, 5)]
    assert fixed_point.exp_near_zero(-(1 << 28)) == round(math.exp(-1 / 8) * 2**31)
    for argument in range(-(2**29), 0, 2**24):
        assert abs(fixed_point.exp_near_zero(argument) - math.exp(argument / 2**31) * 2**31) < 4000


@pytest.mark.parametrize("places", [1, 2, 7])
def test_halves_go_away_from_zero(places: int) -> None:
    for value in range(-600, 600):
        exact = abs(value) / 2**places
        assert fixed_point.divided(value, places) == int(math.copysign(math.floor(exact + 0.5), value))


def tensor(scale: float, point: int) -> Tensor:
    nothing: Array = np.zeros(0)
    scales, points = np.asarray([scale], np.float32), np.asarray([point])
    return Tensor("y", np.dtype(np.int8), (1,), scales, points, 0, nothing, "")


def test_bounds_of_activations() -> None:
    kinds = tflite.ActivationFunctionType
    assert limits(tensor(0.05, -20), kinds.NONE) == (-128, 127)
    assert limits(tensor(0.05, -20), kinds.RELU) == (-20, 127)
    assert limits(tensor(0.05, -20), kinds.RELU6) == (-20, 100)
    assert limits(tensor(0.05, 20), kinds.RELU6) == (20, 127)
    assert limits(tensor(0.05, -20), kinds.RELU_N1_TO_1) == (-40, 0)
    assert limits(tensor(0.005, -20), kinds.RELU_N1_TO_1) == (-128, 127)
    assert limits(tensor(0.4, 0), kinds.RELU_N1_TO_1) == (-3, 3)  # 2.5, away from zero
    assert limits(tensor(0.05, -128), kinds.RELU) == (-128, 127)
    for kind in (kinds.TANH, kinds.SIGN_BIT, 99):
        with pytest.raises(Unsupported, match=f"number {kind}"):
            limits(tensor(0.05, 0), kind)
