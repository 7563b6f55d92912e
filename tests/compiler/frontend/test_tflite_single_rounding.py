"""Multipliers that round once equal float64's rounding, for every possible sum."""

import numpy as np
import pytest

from mtool.compiler.frontend.tflite.fixed_point import single_rounding
from mtool.compiler.kernels.threshold_multipliers import Reach

SCALES = np.array([0.5, 0.375, 0.15 * 0.01 / 0.1, float(np.float32(0.01)) * float(np.float32(0.3)), 0.0123456, 1.75])


def rounded_away(sums: np.ndarray, scale: float) -> np.ndarray:
    steps = sums * scale
    return np.where(steps < 0, -np.floor(0.5 - steps), np.floor(steps + 0.5)).astype(np.int64)


@pytest.mark.parametrize(("low", "high"), [(-128, 127), (-3, 252), (0, 40)])
def test_every_sum(low: int, high: int) -> None:
    far = np.array([700, 1000, 20_000, 60_000, 30_000, 200])
    found = single_rounding(SCALES, Reach(-far, far, far > 0), low, high)
    assert found is not None
    for scale, most, by, shift in zip(SCALES, far, *found, strict=True):
        sums = np.arange(-most, most + 1, dtype=np.int64)
        places = int(shift) + 32
        once = sums * int(by) + (1 << (places - 1)) >> places
        np.testing.assert_array_equal(np.clip(once, low, high), np.clip(rounded_away(sums, scale), low, high))


def test_the_least_and_the_greatest_sum() -> None:
    weights = np.array([[3, -4], [0, 0]])
    reach = Reach.of(weights, np.array([10, -2]), -100, 155)
    np.testing.assert_array_equal(reach.least, [10 - 300 - 620, -2])
    np.testing.assert_array_equal(reach.most, [10 + 465 + 400, -2])
    np.testing.assert_array_equal(reach.of_all.least, [-910])


def test_where_no_multiplier_does() -> None:
    """Ties of sums within 31 bits are the same as those of their neighbours."""
    reach = Reach.within(2**31 - 1, 1)
    assert single_rounding(np.array([2.0**-24]), reach, -128, 127) is None
    assert single_rounding(np.array([0.0]), reach, -128, 127) is None
