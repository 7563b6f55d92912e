"""Optimisation levels as candidates: the fastest of a task once more, compiled at other levels.

A level changes what the compiler makes of a schedule, not what is computed, so that only what is fast at the model's
own level is tried at the others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mtool.kernels.schedule import schedule_text
from mtool.option_values import Level
from mtool.plan.level import LEVELS, AtLevel
from mtool.tuned.record import Target
from mtool.tuning.candidates import Candidate
from mtool.tuning.progress import Row

CODE_OF_LEVEL = {"": 1.0, "O2": 1.0, "O3": 2.0, "Os": 0.85}
"""How much code a level makes, as a multiple of that at -O2, about."""

_FASTEST = 2  # candidates of a task that are compiled at other levels
_LEAST_SHARE = 0.01  # of the model's time, that a task takes; below it nothing is gained


def other_levels(target: Target) -> tuple[Level, ...]:
    """Return the levels that differ from the one at which a target's code is compiled."""
    own = [flag.removeprefix("opt=").removeprefix("-") for flag in target.flags if flag.startswith("opt=")]
    return tuple(level for level in LEVELS if level not in own)


def at_other_levels(rows: Sequence[Row], levels: Sequence[Level]) -> Iterator[tuple[Row, tuple[Candidate, ...]]]:
    """Yield the tasks that take some of the model's time, each with its fastest candidates at other levels."""
    times = {id(row): row.best.median * len(row.space.task.nodes) for row in rows if row.best is not None}
    total = sum(times.values())
    for row in rows:
        if times.get(id(row), 0.0) < _LEAST_SHARE * total or not total:
            continue
        right = sorted(
            (one for one in row.measured.values() if one.status == "ok" and one.times),
            key=lambda one: (one.median, one.candidate),
        )
        plain = {one.text: one for one in row.space.candidates if not isinstance(one.schedule, AtLevel)}
        fastest = [plain[one.candidate] for one in right if one.candidate in plain][:_FASTEST]
        yield row, tuple(_at(one, level) for one in fastest for level in levels)


def _at(candidate: Candidate, level: Level) -> Candidate:
    schedule = AtLevel(candidate.schedule, level)
    code_bytes = int(candidate.code_bytes * CODE_OF_LEVEL[level])
    return replace(candidate, schedule=schedule, text=schedule_text(schedule), code_bytes=code_bytes)
