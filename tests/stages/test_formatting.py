"""Figures as text."""

import pytest

from mtool.stages import formatting


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [
        (0, 7, "0%"),
        (1, 10**6, "0.01%"),
        (1, 200, "0.5%"),
        (1, 3, "33%"),
        (9949, 10**4, "99%"),
        (9988, 10**4, "99.9%"),
        (10**6 - 1, 10**6, "99.9%"),
        (7, 7, "100%"),
        (0, 0, "0%"),
    ],
)
def test_a_share_reads_as_nothing_or_all_only_if_it_is(part: int, whole: int, said: str) -> None:
    assert formatting.share(part, whole) == said
