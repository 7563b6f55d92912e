"""Formulas are found where numbers follow one, not where they merely seem to."""

from collections.abc import Callable

import amount
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtool.base.formulas import fitted, parsed

POINTS = [(size,) for size in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 17, 33, 62, 63, 64)]

FOLLOWED: dict[str, Callable[[int], int]] = {
    "64 * n": lambda n: 64 * n,
    "n * n + 3": lambda n: n * n + 3,
    "-n + 7": lambda n: 7 - n,
    "(n + 1) // 2": lambda n: (n + 1) // 2,
    "8 * ((n + 2) // 3) - 4": lambda n: 8 * ((n + 2) // 3) - 4,
    "n - 4 * (n // 4)": lambda n: n % 4,
}


@pytest.mark.parametrize("text", FOLLOWED)
def test_a_formula_is_found_written_and_read(text: str) -> None:
    found = fitted(["n"], POINTS, [FOLLOWED[text](n) for (n,) in POINTS])
    assert found is not None
    for size in range(1, 200):
        assert found.at({"n": size}) == FOLLOWED[text](size) == parsed(str(found)).at({"n": size})


@pytest.mark.parametrize(
    "law",
    [
        lambda n: min(n, 32),
        lambda n: 8 if n > 20 else 4,
        lambda n: 4 if n % 8 else 8,
        lambda n: max(n, 3),
        lambda n: 1 << n,
    ],
)
def test_numbers_that_follow_none(law: Callable[[int], int]) -> None:
    """Among them the steps of an unrolled loop, through which a quotient with a large divisor would lead."""
    assert fitted(["n"], POINTS, [law(n) for (n,) in POINTS]) is None


def test_a_remainder_that_no_point_leaves() -> None:
    """(n + 1) // 3 and (n + 2) // 3 differ where n is 1, 4, 7 … alone."""
    points = [(n,) for n in (17, 15, 9, 11, 12, 14, 5)]
    assert fitted(["n"], points, [-(-n // 3) for (n,) in points]) is None
    more = [*points, (16,)]
    assert str(fitted(["n"], more, [-(-n // 3) for (n,) in more])) == "(n + 2) // 3"


def test_formulas_of_two_sizes() -> None:
    points = [(n, b) for n in (2, 3, 5, 8, 13) for b in (1, 2, 4)]
    for law in (lambda n, b: n * b * 3 + n, lambda n, b: n * n * b * 4, lambda n, b: (n + 1) // 2 * b):
        found = fitted(["n", "b"], points, [law(n, b) for n, b in points])
        assert found is not None and found.at({"n": 21, "b": 9}) == law(21, 9)


@settings(max_examples=amount.of(200, 66), deadline=None)
@given(
    st.text(max_size=30) | st.sampled_from(["n()", "n.m", "n[0]", "n**2", "1/n", "__import__('os')", "n if n else 1"])
)
def test_invalid_formulas_are_refused(text: str) -> None:
    """A manifest is data: nothing of it is run."""
    try:
        names = parsed(text).names
    except ValueError:
        return
    assert all(name.isidentifier() for name in names)
