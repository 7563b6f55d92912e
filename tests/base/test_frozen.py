"""`frozen` makes what `dataclass(frozen=True, slots=True)` makes, but for the check of assignments."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import pytest

from mtool.base.frozen import frozen


def _declared() -> Any:
    class Point:
        """A point."""

        x: int
        names: tuple[str, ...] = ()
        note: str = field(default="", compare=False)
        known: dict[str, int] = field(default_factory=dict, compare=False, repr=False)
        unit: ClassVar[str] = "mm"

    return Point


OURS, LIBRARYS = frozen(_declared()), dataclass(frozen=True, slots=True)(_declared())


@frozen
class Whole:
    """Compared by nothing, or by itself."""


@frozen
class Own:
    """A class with its own comparison."""

    number: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.number % 10 == other.number % 10

    def __hash__(self) -> int:
        return self.number % 10


def test_it_is_compared_and_written_as_the_librarys() -> None:
    for kind in (OURS, LIBRARYS):
        one, other = kind(1, ("a",), "n"), kind(x=1, names=("a",))
        assert one == other
        assert hash(one) == hash(other) == hash((1, ("a",)))
        assert one != kind(2)
        assert one != (1, ("a",))
        assert is_dataclass(one)
        assert [each.name for each in fields(one)] == ["x", "names", "note", "known"]
        assert replace(one, x=3).names == ("a",)
        assert not hasattr(one, "__dict__")
        assert copy.deepcopy(one) == one
    assert repr(OURS(1, note="n")) == repr(LIBRARYS(1, note="n"))


def test_empty_classes_and_own_methods() -> None:
    assert Whole() == Whole()
    assert Own(1) == Own(11) != Own(2)
    assert len({Own(1), Own(11)}) == 1
    assert pickle.loads(pickle.dumps(Own(3))) == Own(3)


def test_assignments_are_found_by_mypy_alone() -> None:
    OURS(1).x = 2
    with pytest.raises(FrozenInstanceError):
        LIBRARYS(1).x = 2
