"""A number of things in a message has the right plural."""

import pytest

from mtool.base import plural


@pytest.mark.parametrize(
    ("number", "thing", "text"),
    [
        (0, "board", "0 boards"),
        (1, "board", "1 board"),
        (2000, "board", "2,000 boards"),
        (2, "entry", "2 entries"),
        (2, "key", "2 keys"),
        (2, "class", "2 classes"),
        (2, "match", "2 matches"),
        (2, "axis", "2 axes"),
        (1, "zero point", "1 zero point"),
    ],
)
def test_a_number_of_things(number: int, thing: str, text: str) -> None:
    assert plural.count(number, thing) == text
