"""Which int8 weights SIMD32 uses in pairs and which apart; both forms contain the layer's weights."""

from unittest.mock import Mock

import numpy as np
import pytest

from mtool.compiler.ir import types as blocks
from mtool.compiler.ir.scalar import Requantize
from mtool.compiler.kernels.dsp import (
    Columns,
    Loop,
    are_pairs_exact,
    pack,
    pack_apart,
    products_of_columns,
    radix_pairs,
)
from mtool.compiler.kernels.epilogues import Int8Epilogue, Products
from mtool.compiler.kernels.exact_scaling import ExactScaling
from mtool.compiler.kernels.packing import packed_by_rows
from mtool.compiler.kernels.scaling import FixedScaling, FloatScaling, Scaling

SCALE = np.full(4, 0.01, np.float32)


def packed(weights: np.ndarray, bias: np.ndarray, scaling: Scaling | None = None, loop: Loop | None = None) -> Products:
    how = Requantize(zero_point=-128, low=-128, high=127, bounded=False)
    own = scaling or FloatScaling.of(SCALE)
    epilogue = Int8Epilogue(Mock(inputs="xwb"), Mock(constants={"w": weights}), None, how, own, bias)
    depth = weights.shape[1]
    columns = Columns(np.arange(depth), depth)
    apart = not are_pairs_exact(weights, bias, weights)
    return products_of_columns(epilogue, (own, bias), columns, loop or Loop(1, 0), "", apart=apart)


def fixed(multiplier: list[int], shift: list[int], *, twice: bool) -> FixedScaling:
    return FixedScaling.of(np.array(multiplier, np.int32), np.array(shift, np.int8), twice=twice)


def layer(depth: int, low: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.integers(low, 128, (4, depth)).astype(np.int8), rng.integers(-500, 500, 4).astype(np.int32)


def test_weights_of_a_shallow_layer_go_in_pairs() -> None:
    assert "apart" not in packed(*layer(16, -127)).function


@pytest.mark.parametrize("beside", [-3, 3])
def test_one_lowest_weight_goes_in_pairs(beside: int) -> None:
    weights, bias = layer(16, -127)
    weights[0, 5], weights[1, 5] = beside, -128
    assert "apart" not in packed(weights, bias).function


def test_lowest_weights_beside_both_signs_go_apart() -> None:
    weights, bias = layer(16, -127)
    weights[0, 5:7], weights[1, 5:7] = (-3, 3), -128
    assert "apart" in packed(weights, bias).function


def test_sums_that_may_leave_24_bits_go_apart() -> None:
    weights, bias = np.full((4, 1024), 127, np.int8), np.zeros(4, np.int32)
    result = packed(weights, bias, loop=Loop.of(1024, 16))
    assert result.function == "mt_dsp_apart_turns_4"
    assert (result.weights[:, 2:-2].view(np.int8) == 127).all()


def test_pairs_hold_both_channels() -> None:
    weights, bias = layer(16, -127)
    weights[0, 5], weights[1, 5] = -3, -128
    words, heads, sign = radix_pairs(weights, bias)
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
    small, scales = FloatScaling.of(scale).without_dead_channels(weights, bias)
    assert (small[2], scales.scale[2]) == (round(-(2**30) * 2.5e-9), 1)
    assert (np.delete(small, 2) == np.delete(bias, 2)).all()
    assert "apart" not in packed(weights, small).function


@pytest.mark.parametrize("twice", [True, False])
def test_a_dead_channel_keeps_the_result_of_its_multiplier(twice: bool) -> None:
    weights, bias = layer(16, -127)
    weights[2] = 0
    bias[2] = -(2**31) + 5
    scaling = fixed([2**30 + 12345] * 4, [26] * 4, twice=twice)
    small, scales = scaling.without_dead_channels(weights, bias)
    wanted = round((-(2**31) + 5) * (2**30 + 12345) / 2**58)
    assert int(small[2]) * int(scales.multiplier[2]) == wanted * 2 ** (32 + int(scales.shifts[2]) - twice)
    assert scales.fits(weights, small) and scaling.fits(weights, bias) == (not twice)
    again, same = scales.without_dead_channels(weights, small)
    assert (again == small).all() and (same.words == scales.words).all()


def test_a_channel_of_multipliers_has_two_words() -> None:
    weights, bias = layer(16, -127)
    weights[0, 5], weights[1, 5] = -3, -128  # which turns the sign of channel 1
    scaling = fixed([2**30, 2**30 + 1, 2**30 + 2, 2**30 + 3], [4, 5, 6, 7], twice=True)
    result = packed(weights, bias, scaling, Loop.whole(16))
    assert result.function == "mt_dsp_columns_twice_whole_4" and not result.last
    assert result.shared == ("MT_DSP_COLUMNS_PLAIN(mt_dsp_columns_twice_whole_4, 4, 0, 0, MT_TWICE)",)
    tails = result.weights[:, -4:].view(np.int32).tolist()
    assert tails == [[2**30, 5, -(2**30) - 1, 6], [2**30 + 2, 7, 2**30 + 3, 8]]


def test_shifts_to_the_left_are_for_portable_kernels() -> None:
    weights, bias = layer(16, -127)
    numbers = [2**30] * 3
    assert fixed([*numbers, 0], [0, 3, 30, -1], twice=True).fits(weights, bias)
    assert fixed([*numbers, 0], [1, 3, 30, -1], twice=False).fits(weights, bias)
    assert not fixed([*numbers, 1], [0, 3, 30, -1], twice=True).fits(weights, bias)
    assert not fixed([*numbers, 1], [1, 3, 30, 0], twice=False).fits(weights, bias)
    weights[3] = 0
    small, scaling = fixed([*numbers, 1], [0, 3, 30, -1], twice=True).without_dead_channels(weights, bias)
    assert scaling.fits(weights, small)


@pytest.mark.parametrize("lowest", [-127, -128])  # in pairs, apart
def test_a_large_layer_is_packed_some_rows_at_a_time(lowest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(9)
    weights, bias = rng.integers(-127, 128, (602, 8)).astype(np.int8), rng.integers(-99, 99, 602).astype(np.int32)
    weights[600, :2], weights[601, :2] = (-3, 3), lowest
    scaling = FloatScaling.of(rng.uniform(0.01, 0.02, 602).astype(np.float32))
    whole = packed(weights, bias, scaling)
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 64)
    by_rows = packed(weights, bias, scaling)
    assert by_rows.function == whole.function and ("apart" in whole.function) == (lowest == -128)
    np.testing.assert_array_equal(by_rows.weights, whole.weights)


def test_groups_begin_a_row_each() -> None:
    rows = packed_by_rows(lambda data: np.pad(data, ((0, -len(data) % 2), (0, 0))).reshape(-1, 4), 2,
                          np.arange(12).reshape(6, 2), groups=2)  # fmt: skip
    assert rows.tolist() == [[0, 1, 2, 3], [4, 5, 0, 0], [6, 7, 8, 9], [10, 11, 0, 0]]


def test_one_pair_that_is_not_exact_is_found_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_ELEMENTS", 64)
    weights, bias = np.ones((600, 8), np.int8), np.zeros(600, np.int32)
    assert are_pairs_exact(weights, bias, weights)
    bias[599] = 1 << 23
    assert not are_pairs_exact(weights, bias, weights)
    bias[599], weights[599, :2], weights[598, 1] = 0, -128, -1
    assert not are_pairs_exact(weights, bias, weights)


def test_channels_without_multipliers_have_a_scale_each_and_a_zero_point() -> None:
    weights, bias = layer(16, -127)
    scaling = ExactScaling.of_floats(SCALE, -7, places=4)
    for apart, packing in ((False, pack), (True, pack_apart)):
        tails = packing(weights, bias, scaling, 16)[:, -4:].view(np.int32)
        scales = np.ascontiguousarray(tails[:, 1::2]).view(np.float32)
        assert (tails[:, 0] == 0).all() and (tails[:, 2] == -7).all()
        np.testing.assert_allclose(np.abs(scales), [[0.01, 0.01 if apart else 0.01 / 256]] * 2)


@pytest.mark.parametrize("depth", [4, 8, 32, 36, 64, 68])
def test_a_loop_is_entered_where_the_rest_is_whole_turns(depth: int) -> None:
    loop = Loop.of(depth, 32)
    words = depth // 4
    turns = -(-(words - 1) // 8)
    skipped = (1 - words) & (loop.turn - 1) if loop.turn else 0  # MT_DSP_SKIP of mt_dsp.h
    assert 1 + (turns * 8 - skipped if loop.turn else loop.words - 1) == words
    assert loop.overhead(depth, 3) == (2 + 3 * turns if words > 1 else 0)
