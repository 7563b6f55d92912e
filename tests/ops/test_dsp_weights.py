"""Which int8 weights SIMD32 takes in pairs and which apart, and that both streams hold the layer's own numbers."""

import numpy as np
import pytest

from mtool.ir.scalar import Requantise
from mtool.ops.conv2d.dsp_weights import Packed, radix_pairs, settled
from mtool.ops.requantise import Int8Epilogue

SCALE = np.full(4, 0.01, np.float32)


def packed(weights: np.ndarray, bias: np.ndarray) -> Packed:
    how = Requantise(zero_point=-128, low=-128, high=127, bounded=False)
    return Packed.of(Int8Epilogue(how, SCALE, None), weights, bias, weights.shape[1])


def layer(depth: int, low: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.integers(low, 128, (4, depth)).astype(np.int8), rng.integers(-500, 500, 4).astype(np.int32)


def test_weights_of_a_shallow_layer_go_in_pairs() -> None:
    assert not packed(*layer(16, -127)).apart


@pytest.mark.parametrize("beside", [-3, 3])
def test_one_lowest_weight_goes_in_pairs(beside: int) -> None:
    weights, bias = layer(16, -127)
    weights[0, 5], weights[1, 5] = beside, -128
    assert not packed(weights, bias).apart


def test_lowest_weights_beside_both_signs_go_apart() -> None:
    weights, bias = layer(16, -127)
    weights[0, 5:7], weights[1, 5:7] = (-3, 3), -128
    assert packed(weights, bias).apart


def test_sums_that_may_leave_24_bits_go_apart() -> None:
    weights, bias = np.full((4, 1024), 127, np.int8), np.zeros(4, np.int32)
    result = packed(weights, bias)
    assert result.apart and result.function(16) == "mt_dsp_apart_16"
    assert (result.stream[:, 2:-2].view(np.int8) == 127).all()


def test_pairs_hold_both_channels() -> None:
    weights, bias = layer(16, -127)
    weights[0, 5], weights[1, 5] = -3, -128
    pairs = radix_pairs(weights, bias)
    assert pairs is not None
    words, heads, sign = pairs
    halves = words.view(np.int16).reshape(2, 4, 2, 2).swapaxes(2, 3).reshape(2, 16).astype(np.int64)
    a = halves.astype(np.int8).astype(np.int64)
    assert (a == weights[0::2]).all() and ((halves - a) // 256 * sign[:, None] == weights[1::2]).all()
    a, both = heads.view(np.int32).astype(np.int64).T
    assert (a == bias[0::2]).all() and ((both - a) // 256 * sign == bias[1::2]).all() and sign[0] == -1


def test_a_dead_channel_keeps_its_result() -> None:
    weights, bias = layer(16, -127)
    weights[2] = 0
    bias[2] = -(2**30)
    scale = SCALE.copy()
    scale[2] = 2.5e-9
    small, scales = settled(weights, bias, scale)
    assert (small[2], scales[2]) == (round(-(2**30) * 2.5e-9), 1)
    assert (np.delete(small, 2) == np.delete(bias, 2)).all()
    assert not packed(weights, small).apart
