"""Comparing outputs: each tensor's tolerance, and how differences are described."""

import numpy as np
import pytest
from numpy.typing import ArrayLike

from mtool.base.errors import MismatchError
from mtool.manifest import Tensor
from mtool.verification.comparison import Difference, Report, Tolerance, compare


def report(
    dtype: str,
    expected: ArrayLike,
    actual: ArrayLike,
    *,
    tolerance: Tolerance | None = None,
    scale: tuple[float, ...] | None = None,
    axis: int | None = None,
) -> Report:
    wanted, found = np.asarray(expected, dtype), np.asarray(actual, dtype)
    tensor = Tensor(
        name="y",
        c_name="y",
        dtype=dtype,
        shape=wanted.shape,
        bytes=wanted.nbytes,
        arena_offset=0,
        scale=scale,
        axis=axis,
    )
    return compare([tensor], [{"y": wanted}], [{"y": found}], tolerance=tolerance or Tolerance(), reference="the test")


def difference(*arguments: object, **named: object) -> Difference:
    return report(*arguments, **named).outputs[0]  # type: ignore[arg-type]


def test_equal_integers_are_equal() -> None:
    found = difference("int8", [-128, 0, 127], [-128, 0, 127])
    assert found.within and found.differing == 0 and found.max_lsb == 0
    assert found.histogram == (("equal", 3),)


def test_integers_differ_by_steps() -> None:
    found = difference("uint8", [0, 0, 0, 255], [0, 1, 3, 0])
    assert not found.within and found.differing == 3 and found.max_lsb == 255
    assert found.histogram == (("equal", 1), ("1 LSB", 1), ("3 to 4 LSB", 1), ("129 to 255 LSB", 1))
    assert found.worst == "largest difference: sample 0, element [3]: expected 255, found 0"


def test_one_step_is_allowed_where_it_is_requested() -> None:
    assert difference("int8", [1, 2], [2, 2], tolerance=Tolerance(lsb=1)).within
    assert not difference("int8", [1, 2], [3, 2], tolerance=Tolerance(lsb=1)).within


def test_integers_without_a_grid_must_be_equal() -> None:
    assert not difference("int64", [7], [8], tolerance=Tolerance(lsb=1)).within
    assert not difference("bool", [True], [False], tolerance=Tolerance(lsb=1)).within
    assert difference("int16", [7], [8], tolerance=Tolerance(lsb=1), scale=(0.5,)).within


def test_the_absolute_tolerance_of_floats_grows_with_the_largest_magnitude() -> None:
    assert difference("float32", [0, 61.7], [5e-4, 61.7]).within
    assert not difference("float32", [0, 1.0], [5e-4, 1.0]).within
    assert not difference("float32", [0, 61.7], [5e-4, 61.7], tolerance=Tolerance(atol=1e-6)).within


def test_floats_on_a_grid_may_differ_by_one_step() -> None:
    assert difference("float32", [0.5, 0.25], [0.25, 0.25], scale=(0.25,)).within
    found = difference("float32", [0.5, 0.25], [0.0, 0.25], scale=(0.25,))
    assert not found.within and found.max_lsb == 2
    assert difference("float32", [[0.5, 2]], [[0.25, 4]], scale=(0.25, 2.0), axis=1).max_lsb == 1


def test_what_is_not_a_number_equals_only_itself() -> None:
    assert difference("float32", [np.nan, np.inf], [np.nan, np.inf]).within
    found = difference("float32", [np.nan, 1, np.inf], [1, np.nan, -np.inf])
    assert not found.within and found.differing == 3 and found.max_abs is None
    assert found.histogram == (("not finite", 3),)


def test_differences_of_floats_are_counted_by_their_power_of_ten() -> None:
    found = difference("float64", [0.0, 0, 0], [0, 2e-7, 3e-3])
    assert found.histogram == (("equal", 1), ("1e-7 to 1e-6", 1), ("1e-3 to 1e-2", 1))


def test_an_empty_output_is_within() -> None:
    assert difference("float32", np.zeros((0, 3)), np.zeros((0, 3))).within


def test_a_mismatch_says_how_many_by_how_much_and_where() -> None:
    report("int8", [1, 2], [1, 2]).check()
    with pytest.raises(MismatchError) as raised:
        report("int8", [1, 2], [1, 4]).check()
    assert raised.value.exit_code == 9
    assert str(raised.value).splitlines() == [
        "the outputs differ from the test",
        "  y: 1 of 2 elements differ, allowed: 0 LSB",
        "    1 equal, 1 by 2 LSB",
        "    largest difference: sample 0, element [1]: expected 2, found 4",
    ]


def test_a_reference_with_an_output_of_another_shape_is_a_mismatch() -> None:
    tensor = Tensor(name="y", c_name="y", dtype="float32", shape=(2, 3), bytes=24, arena_offset=0)
    with pytest.raises(MismatchError) as reported:
        compare([tensor], [{"y": np.zeros((3, 2))}], [{"y": np.zeros((2, 3))}], tolerance=Tolerance(), reference="it")
    assert list(reported.value.details) == ["y: sample 0: expected [3, 2], found [2, 3]"]


def test_a_given_tolerance_of_floats_holds_on_a_grid_too() -> None:
    wanted, found = [0.5, 0.25], [0.0, 0.25]
    assert difference("float32", wanted, found, scale=(0.25,), tolerance=Tolerance(rtol=1.0)).within
    allowed = difference("float32", wanted, found, scale=(0.25,), tolerance=Tolerance(atol=0.6))
    assert allowed.within and allowed.allowed == "1 LSB or 0.6 + 1e-05 x |reference|"
    assert not difference("float32", wanted, found, scale=(0.25,), tolerance=Tolerance(atol=0.1)).within


def test_what_differs_by_less_than_a_step_is_not_counted_as_equal() -> None:
    found = difference("float32", [0.5, 0.25, 1.0], [0.55, 0.25 + 2**-25, 1.25], scale=(0.25,))
    assert found.differing == 2  # the second is the same step
    assert found.histogram == (("equal", 1), ("below 0.5 LSB", 1), ("1 LSB", 1))
