"""Sums of two 8-bit numbers in TFLite's fixed point use one pair of multipliers, if that gives the same results."""

import numpy as np
import pytest

from mtool.compiler.frontend.tflite.fixed_point import multipliers
from mtool.compiler.ir import DType, Expr
from mtool.compiler.ir.expr import axis, call, const, load
from mtool.compiler.ir.scalar import Rescale, evaluate
from mtool.compiler.passes.scaled_pairs import ScaledSum

ALL = np.arange(-128, 128)
GRIDS = [np.broadcast_to(ALL.astype(np.int8).reshape(view), (256, 256)) for view in ((-1, 1), (1, -1))]


def rescaled(value: Expr, scale: float, how: Rescale, dtype: DType) -> Expr:
    (by,), (places,) = multipliers(np.asarray([scale]))
    numbers = const(int(by), DType.INT32), const(int(places), DType.INT8)
    return call("rescale", value, *numbers, dtype=dtype, value=how)


def added(scales: tuple[float, float, float], zeros: tuple[int, int, int], kind: str) -> Expr:
    """What ADD and SUB compute: both operands 20 bits to the left in steps of twice the larger scale."""
    unit = 2 * max(scales[:2])
    whole = Rescale(0, -(2**31), 2**31 - 1, wide=False, twice=True)
    terms = []
    for number in (0, 1):
        element = call("cast", load(number, DType.INT8, (axis(0), axis(1))), dtype=DType.INT32)
        centred = call("sub", element, const(zeros[number], DType.INT32))
        if scales[number] == max(scales[:2]):
            terms.append(call("mul", centred, const(1 << 19, DType.INT32)))
        else:
            terms.append(
                rescaled(call("mul", centred, const(1 << 20, DType.INT32)), scales[number] / unit, whole, DType.INT32)
            )
    how = Rescale(zeros[2], -128, 127, wide=False, twice=True)
    return rescaled(call(kind, *terms), unit / (2**20 * scales[2]), how, DType.INT8)


def test_pairs_give_the_same_for_all_operands() -> None:
    rng = np.random.default_rng(4)
    found = 0
    for attempt in range(12):
        scales = tuple(rng.uniform(0.01, 0.1, 3).tolist())
        part = added(scales, tuple(rng.integers(-128, 128, 3).tolist()), ("add", "sub")[attempt % 2])
        wanted = evaluate(part, GRIDS, (256, 256))
        scaled = ScaledSum.of(part)
        assert scaled is not None
        pair = scaled.exact(part, wanted.astype(np.int64), (ALL, ALL))
        if pair is not None:
            np.testing.assert_array_equal(evaluate(pair, GRIDS, (256, 256)), wanted)
            found += 1
    assert found >= 6


def test_a_sum_with_itself_is_not_a_pair() -> None:
    part = added((0.02, 0.03, 0.05), (1, 2, 3), "add")
    own = part.rewrite(lambda p: load(0, DType.INT8, p.args) if p.op == "load" else p)
    assert ScaledSum.of(own) is None


def drawn(seed: int) -> ScaledSum:
    rng = np.random.default_rng(seed)
    atoms = load(0, DType.INT8, (axis(0),)), load(1, DType.INT8, (axis(0),))
    ratios = rng.uniform(0.01, 2, 2) * rng.choice([-1, 1], 2) * (30 if seed % 4 == 0 else 1)
    return ScaledSum(atoms, (float(ratios[0]), float(ratios[1])), float(rng.uniform(-200, 200)), (-128, 127))


@pytest.mark.parametrize("seed", range(10))
def test_ties_of_powers_of_two_go_to_even(seed: int) -> None:
    """Where no pair gives them, as float32 has it: both scales are powers of two times the output's."""
    rng = np.random.default_rng(seed)
    left, right = (float(ratio) for ratio in np.exp2(rng.integers(-4, 2, 2)) * rng.choice([-1, 1], 2))
    zeros = tuple(rng.integers(-128, 128, 2).tolist())
    zero_point = int(rng.integers(-128, 128))
    atoms = load(0, DType.INT8, (axis(0), axis(1))), load(1, DType.INT8, (axis(0), axis(1)))
    offset = zero_point - left * zeros[0] - right * zeros[1]
    scaled = ScaledSum(atoms, (left, right), offset, (-100, 90), zeros)
    real = (ALL[:, None] - zeros[0]) * left + (ALL[None] - zeros[1]) * right
    wanted = np.clip(np.rint(real) + zero_point, -100, 90).astype(np.int64)
    part = const(0, DType.INT8)  # of which only the type counts
    pair = scaled.even(part, wanted, (ALL, ALL))
    assert pair is not None
    np.testing.assert_array_equal(evaluate(pair, GRIDS, (256, 256)), wanted)
    wanted[3, 200] = -wanted[3, 200] // 2 + 1
    assert scaled.even(part, wanted, (ALL, ALL)) is None


@pytest.mark.parametrize("seed", range(20))
def test_no_sum_leaves_32_bits(seed: int) -> None:
    scaled = drawn(seed)
    shifts = scaled.shifts(255)
    assert [*shifts] == sorted(shifts, reverse=True) and min(shifts) >= 12 and max(shifts) <= 23
    most = 255 * (abs(scaled.ratios[0]) + abs(scaled.ratios[1])) + abs(scaled.offset) + 1
    assert most * 2 ** max(shifts) < 2**31
    assert max(shifts) == 23 or 1.1 * most * 2 ** (max(shifts) + 1) > 2**31
