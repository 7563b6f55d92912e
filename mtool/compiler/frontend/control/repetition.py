"""A Loop or a Scan as it is asked for, and how many rounds it has at most."""

from collections.abc import Sequence
from dataclasses import dataclass

from mtool.compiler.frontend.control.written_out import single
from mtool.compiler.frontend.importer import Importer
from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.scope import Body

_NEVER = 1 << 62  # rounds that are no limit: exporters write a while loop so


@dataclass(frozen=True, slots=True)
class Repetition:
    """A Loop or a Scan as it is asked for. A value that is not given, or not wanted, is "".

    body: its graph.
    trips, condition: the number of rounds; whether there is a first one.
    first: the first of each carried value.
    rows: what is read by rows, and whether the last one comes first.
    last: the outputs that are the last of each carried value.
    written: the outputs that are written by rows, and whether the first row comes last.
    names: under which a largest number of rounds may be stated.
    ends: whether the first output of the body says if there is another round, and it has the number of the round and
        a condition among its inputs.
    most: the number of rounds, where it is known besides.
    """

    body: Body
    trips: str
    condition: str
    first: Sequence[str]
    rows: Sequence[tuple[str, bool]]
    last: Sequence[str]
    written: Sequence[tuple[str, bool]]
    names: Sequence[str]
    ends: bool
    most: int | None = None


class NothingOfTheRun(Unsupported):
    """All that the rounds read is constant, so that what they give is too."""

    def __init__(self) -> None:
        super().__init__("what it gives is a constant")


class NeverEnds(Unsupported):
    """Nothing ends the rounds, so that they can't be written out either."""

    def __init__(self) -> None:
        super().__init__("it never ends")


def limit_of(state: Importer, asked: Repetition, going: str) -> int | None:
    """Return how many rounds there are at most, as far as that is known.

    Raises:
        Unsupported: a number or a condition is not a single one.
    """
    limits = [] if asked.most is None else [asked.most]
    if asked.trips in state.constants:
        limits.append(max(int(single(state.constants[asked.trips], "M")), 0))
    if asked.condition in state.constants and not single(state.constants[asked.condition], "cond"):
        limits.append(0)
    if going in state.constants and not single(state.constants[going], "cond"):
        limits.append(1)
    limits = [limit for limit in limits if limit < _NEVER]
    depends = any(value and value not in state.constants for value in (asked.trips, asked.condition, going))
    stated = stated_names(state, asked)
    if stated and depends:
        state.used_maxima.add(stated[0])
        limits.append(state.maxima[stated[0]])
    return min(limits, default=None)


def stated_names(state: Importer, asked: Repetition) -> list[str]:
    """Return the names under which a largest number of rounds is stated."""
    return [name for name in asked.names if name in state.maxima]


def unknown_of(asked: Repetition, trips: Sequence[str], condition: Sequence[str], going: str) -> tuple[str, str]:
    """Return what the number of rounds depends on: a value, and what the operator calls it."""
    return (asked.trips, "M") if trips else (asked.condition if condition else going, "cond")
