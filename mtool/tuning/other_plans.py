"""Plans of a whole model beside the fastest: for less arena, for less flash, and with operators computed in parts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mtool.base.option_values import Order, Partial
from mtool.tuning.candidates import Candidate
from mtool.tuning.progress import Row

_SLOWER = 1.5  # times as slow as the fastest a candidate may be, that takes less memory
_CODE_PER_CHARACTER = 0.25  # bytes of machine code that a character of C becomes, about


@dataclass(frozen=True, slots=True)
class Wanted:
    """A plan to measure: the candidate of each task by the task's key, whether operators are computed in parts, and
    in which order.

    `is_first`: it has the fastest candidate of every task.
    """

    choices: Mapping[str, str]
    is_first: bool = False
    partial: Partial = field(default="auto", kw_only=True)
    order: Order = field(default="auto", kw_only=True)


def other_plans(rows: Sequence[Row], default: Wanted, fastest: Mapping[str, str]) -> Iterator[Wanted]:
    """Yield plans that may be on the front of time, arena and flash, each once."""
    small_arena = {row.space.task.record.key: _smallest(row, scratch_bytes) for row in rows}
    small_flash = {row.space.task.record.key: _smallest(row, flash_bytes) for row in rows}
    seen = [(dict(default.choices), default.partial), (dict(fastest), default.partial)]
    wanted: list[tuple[Mapping[str, str], Partial]] = [
        (fastest, "never"),
        (fastest, "always"),
        (small_arena, default.partial),
        (small_arena, "always"),
        (small_flash, default.partial),
        (small_flash, "never"),
    ]
    for choices, partial in wanted:
        one = ({**default.choices, **choices}, partial)
        if one not in seen:
            seen.append(one)
            yield Wanted(one[0], partial=partial)


def scratch_bytes(row: Row, candidate: Candidate) -> float:
    """Return the working memory of a candidate."""
    task = row.space.task
    return candidate.schedule.scratch_bytes(task.step.node, task.graph)


def flash_bytes(row: Row, candidate: Candidate) -> float:
    """Return what a candidate takes of flash, about: its constants for each node, its code once."""
    constants = len(row.space.task.nodes) * sum(candidate.constants.values())
    return constants + candidate.code_bytes * _CODE_PER_CHARACTER


def _smallest(row: Row, size: Callable[[Row, Candidate], float]) -> str:
    """Return the candidate of a task that takes least, of those that are not too slow; the faster of equal ones."""
    assert row.best is not None
    most = row.best.median * _SLOWER
    able = [one for one in row.space.candidates if one.text in row.measured and row.measured[one.text].median <= most]
    return min(able, key=lambda one: (size(row, one), row.measured[one.text].median, one.text)).text
