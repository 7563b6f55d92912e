"""Sums of two 8-bit numbers in TFLite's fixed point become one pair of multipliers, where that gives the same."""

import numpy as np
import pytest

from mtool.frontend.tflite.fixed_point import multipliers
from mtool.ir import DType, Expr
from mtool.ir.expr import axis, call, const, load
from mtool.ir.scalar import Rescale, evaluate
from mtool.passes.scaled_sums import ScaledSum

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
        how = scaled.exact(wanted.astype(np.int64), ALL, ALL)
        if how is not None:
            pair = Expr("rescale_pair", DType.INT8, scaled.atoms, how)
            np.testing.assert_array_equal(evaluate(pair, GRIDS, (256, 256)), wanted)
            found += 1
    assert found >= 6


def test_a_sum_with_itself_is_no_pair() -> None:
    part = added((0.02, 0.03, 0.05), (1, 2, 3), "add")
    own = part.rewrite(lambda p: load(0, DType.INT8, p.args) if p.op == "load" else p)
    assert ScaledSum.of(own) is None


def drawn(seed: int) -> ScaledSum:
    rng = np.random.default_rng(seed)
    atoms = load(0, DType.INT8, (axis(0),)), load(1, DType.INT8, (axis(0),))
    ratios = rng.uniform(0.01, 2, 2) * rng.choice([-1, 1], 2) * (30 if seed % 4 == 0 else 1)
    return ScaledSum(atoms, (float(ratios[0]), float(ratios[1])), float(rng.uniform(-200, 200)), (-128, 127))


@pytest.mark.parametrize("seed", range(20))
def test_the_plain_roundings_are_right_for_nearly_all(seed: int) -> None:
    scaled = drawn(seed)
    real = ALL[:, None] * scaled.ratios[0] + ALL[None] * scaled.ratios[1] + scaled.offset
    wanted = np.clip(np.floor(real + 0.5), -128, 127).astype(np.int64)
    how = scaled.near(wanted, ALL, ALL)
    assert how is not None
    pair = Expr("rescale_pair", DType.INT8, tuple(load(n, DType.INT8, (axis(0), axis(1))) for n in (0, 1)), how)
    assert (evaluate(pair, GRIDS, (256, 256)) != wanted).mean() < 0.002


def test_roundings_that_are_off_by_more_than_one_are_none() -> None:
    scaled = drawn(1)
    real = ALL[:, None] * scaled.ratios[0] + ALL[None] * scaled.ratios[1] + scaled.offset
    wanted = np.clip(np.floor(real + 0.5), -128, 127).astype(np.int64)
    place = np.argwhere((wanted > -100) & (wanted < 100))[0]
    for change, fits in ((1, True), (-1, True), (2, False), (-2, False)):
        other = wanted.copy()
        other[tuple(place)] += change
        assert (scaled.near(other, ALL, ALL) is not None) == fits


@pytest.mark.parametrize("seed", range(20))
def test_no_sum_leaves_32_bits(seed: int) -> None:
    scaled = drawn(seed)
    shifts = scaled._shifts(255)
    assert [*shifts] == sorted(shifts, reverse=True) and min(shifts) >= 12 and max(shifts) <= 23
    most = 255 * (abs(scaled.ratios[0]) + abs(scaled.ratios[1])) + abs(scaled.offset) + 1
    assert most * 2 ** max(shifts) < 2**31
    assert max(shifts) == 23 or 1.1 * most * 2 ** (max(shifts) + 1) > 2**31
