"""Requantization by multipliers: the same integer for every possible accumulator, or no multiplier."""

import numpy as np
import pytest
from numpy.typing import NDArray

from mtool.compiler.ir import DType, Expr
from mtool.compiler.ir.scalar import FUNCTIONS, Requantize
from mtool.compiler.kernels.exact_scaling import ExactScaling, Together, exact_scaling
from mtool.compiler.kernels.scaling import FloatScaling

Numbers = NDArray[np.int64]
PLAIN = Requantize(-128, -128, 127, bounded=False)


def _layer(seed: int, channels: int, depth: int, scales: tuple[float, float]) -> tuple[FloatScaling, Numbers, Numbers]:
    rng = np.random.default_rng(seed)
    weights = rng.integers(-127, 128, (channels, depth)).astype(np.int8)
    bias = rng.integers(-3000, 3000, channels).astype(np.int32)
    scale = np.exp2(rng.uniform(*scales, channels)).astype(np.float32)
    return FloatScaling.of(scale), weights, bias


def _reach(weights: Numbers, bias: Numbers) -> tuple[int, int]:
    """The least and greatest sum of one channel, by its worst inputs."""
    worst = [np.where(weights > 0, low, high).astype(np.int64) for low, high in ((-128, 127), (127, -128))]
    return tuple(int(bias) + int((inputs * weights).sum()) for inputs in worst)  # type: ignore[return-value]


def _exact(acc: Numbers, words: Numbers, places: int, how: Requantize) -> Numbers:
    """What SMMLA and SSAT compute, in 64 bits; no sum may leave 32."""
    multiplier, offset = (int(word) for word in words.view(np.int32))
    total = ((acc * multiplier) >> 32) + offset
    assert abs(total).max(initial=0) < 2**31 / 256, "256 times a sum leaves 32 bits"
    return np.clip(np.clip(total >> places, -128, 127), how.low, how.high)


@pytest.mark.product(2)
@pytest.mark.parametrize(
    ("how", "scales"),
    [
        (PLAIN, (-11, -8)),
        (Requantize(4, -128, 127, bounded=False), (-9, -6)),
        (Requantize(-17, -17, 90, bounded=False), (-7, -4)),
        (Requantize(127, -128, 127, bounded=False), (-3, -1.1)),
        (PLAIN, (-20, -14)),
    ],
)
def test_each_accumulator_gives_the_same(how: Requantize, scales: tuple[float, float]) -> None:
    scaling, weights, bias = _layer(7, 24, 27, scales)
    found, moved = exact_scaling(scaling, how, weights, bias)
    assert isinstance(found, ExactScaling)
    assert found.has_multiplier.mean() >= 0.6
    for channel in np.flatnonzero(found.has_multiplier):
        least, most = _reach(weights[channel], bias[channel])
        acc = np.arange(least, most + 1)
        wanted = FUNCTIONS["requantize"].meaning(Expr("requantize", DType.INT8, value=how), acc, scaling.scale[channel])
        shift = int(moved[channel]) - int(bias[channel])
        assert (_exact(acc + shift, found.words[channel], found.places, how) == wanted).all()


def test_ties_of_a_power_of_two_keep_the_float() -> None:
    _, weights, bias = _layer(3, 8, 9, (-9, -8))
    scaling = FloatScaling.of(np.full(8, 2.0**-8, np.float32))
    assert exact_scaling(scaling, PLAIN, weights, bias)[0] is scaling


@pytest.mark.parametrize("scale", [0.0, np.inf, np.nan, 1e30, 1e-38, 5.0])
def test_odd_scales(scale: float) -> None:
    floats, weights, bias = _layer(5, 8, 9, (-9, -8))
    scales = floats.scale.copy()
    scales[3] = scale
    found, moved = exact_scaling(FloatScaling.of(scales), PLAIN, weights, bias)
    if isinstance(found, ExactScaling) and found.has_multiplier[3]:
        acc = np.arange(*_reach(weights[3], bias[3]))
        wanted = FUNCTIONS["requantize"].meaning(Expr("requantize", DType.INT8, value=PLAIN), acc, scales[3])
        shift = int(moved[3]) - int(bias[3])
        assert (_exact(acc + shift, found.words[3], found.places, PLAIN) == wanted).all()


def test_a_channel_without_weights_has_its_result_in_the_offset() -> None:
    scaling, weights, bias = _layer(11, 8, 9, (-9, -8))
    weights[2], bias[2] = 0, 2**30
    weights[5], bias[5] = 0, -777
    found, moved = exact_scaling(scaling, PLAIN, weights, bias)
    assert isinstance(found, ExactScaling)
    small, floats = found.without_dead_channels(weights, moved)
    for channel in (2, 5):
        acc = bias[channel : channel + 1].astype(np.int64)
        wanted = FUNCTIONS["requantize"].meaning(
            Expr("requantize", DType.INT8, value=PLAIN), acc, scaling.scale[channel]
        )
        assert _exact(acc, found.words[channel], found.places, PLAIN) == wanted
        assert (
            _exact(small[channel : channel + 1].astype(np.int64), found.words[channel], found.places, PLAIN) == wanted
        )
        by_float = np.rint(small[channel].astype(np.float32) * floats.scale[channel]) - 128
        assert np.clip(by_float, -128, 127) == wanted


def test_a_channel_without_weights_beside_one_without_a_multiplier_keeps_a_float() -> None:
    scaling, weights, bias = _layer(13, 14, 9, (-9, -8))
    scales = scaling.scale.copy()
    scales[9] = 5.0
    weights[8], bias[8], scales[8] = 0, 2**30, 7.5e-9
    found, moved = exact_scaling(FloatScaling.of(scales), PLAIN, weights, bias, Together(2))
    assert isinstance(found, ExactScaling)
    small, floats = found.without_dead_channels(weights, moved)
    assert not found.has_multiplier[8] and small[8] == 8
    for one in (floats, floats.padded(16), floats[:10]):
        assert one.words[8].view(np.float32)[1] * small[8] == 8


@pytest.mark.parametrize(("count", "groups"), [(2, 1), (3, 1), (2, 2)])
def test_neighbours_have_multipliers_together(count: int, groups: int) -> None:
    scaling, weights, bias = _layer(13, 14, 9, (-9, -8))
    scales = scaling.scale.copy()
    scales[9] = 5.0
    alone, _ = exact_scaling(FloatScaling.of(scales), PLAIN, weights, bias)
    found, moved = exact_scaling(FloatScaling.of(scales), PLAIN, weights, bias, Together(count, groups))
    assert isinstance(alone, ExactScaling) and isinstance(found, ExactScaling)
    size = 14 // groups
    for channel in range(14):
        first = channel // size * size + channel % size // count * count
        neighbours = range(first, min(first + count, channel // size * size + size))
        assert found.has_multiplier[channel] == all(alone.has_multiplier[one] for one in neighbours)
        if not found.has_multiplier[channel]:
            assert moved[channel] == bias[channel]
            assert found.words[channel].tolist() == [0, int(scales[channel : channel + 1].view(np.uint32)[0])]
