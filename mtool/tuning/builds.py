"""Builds as candidates: the fastest of a task once more, at another level of the compiler, or with weights in RAM.

A build changes what becomes of a schedule's C, not what is computed, so that only what is fast in the usual build is
tried in others.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from mtool.base.option_values import LEVEL, WEIGHTS, Level
from mtool.boards import Board
from mtool.compiler.kernels.schedule import schedule_text
from mtool.compiler.plan.choice import LEVELS, RAM, Built, built
from mtool.compiler.planning import target_of
from mtool.compiler.tuned.record import Target, Unit
from mtool.tuning.candidates import Candidate
from mtool.tuning.progress import Row

Build = Mapping[str, str]
"""The settings of the knobs `opt` and `weights`."""

_CODE = {"O2": 1.0, "O3": 2.0, "Os": 0.85}  # of a level, as a multiple of that at -O2, about
_FASTEST = 2  # candidates of a task that are built in other ways
_LEAST_SHARE = 0.01  # of the model's time, that a task takes; below it nothing is gained
_MOST_RAM = 0.5  # of the memory for data that one operator's constants may take


def other_builds(board: Board, target: Target, unit: Unit) -> tuple[Build, ...]:
    """Return the builds that may be faster on a board than the usual one.

    Weights in RAM count where time is measured, and the board has them elsewhere: instructions are as many, and
    estimated cycles know no wait states.
    """
    levels = tuple({LEVEL: level} for level in other_levels(target))
    if unit != "ns" or not ram_bytes(board):
        return levels
    return (*levels, {WEIGHTS: RAM}, {LEVEL: "O3", WEIGHTS: RAM})


def other_levels(target: Target) -> tuple[Level, ...]:
    """Return the levels that differ from the one at which a target's code is compiled."""
    own = [flag.removeprefix("opt=").removeprefix("-") for flag in target.flags if flag.startswith("opt=")]
    return tuple(level for level in LEVELS if level not in own)


def ram_bytes(board: Board) -> int:
    """Return the size of the memory for data, if the board has its constants in another, and may have them there."""
    weights, data = board.memory_for("weights"), board.memory_for("data")
    if weights is None or data is None or weights == data or target_of(board).flash_is_apart:
        return 0
    return data.size


def built_otherwise(
    rows: Sequence[Row], builds: Sequence[Build], ram: int
) -> Iterator[tuple[Row, tuple[Candidate, ...]]]:
    """Yield the tasks that take some of the model's time, each with its fastest candidates in other builds.

    Args:
        rows: all tasks.
        builds: what to try.
        ram: the bytes of the memory for data.
    """
    times = {id(row): row.best.median * len(row.space.task.nodes) for row in rows if row.best is not None}
    total = sum(times.values())
    for row in rows:
        if times.get(id(row), 0.0) < _LEAST_SHARE * total or not total:
            continue
        right = sorted(
            (one for one in row.measured.values() if one.status == "ok" and one.times),
            key=lambda one: (one.median, one.candidate),
        )
        plain = {one.text: one for one in row.space.candidates if not isinstance(one.schedule, Built)}
        fastest = [plain[one.candidate] for one in right if one.candidate in plain][:_FASTEST]
        yield row, tuple(_in(one, build) for one in fastest for build in builds if _is_able(one, build, ram))


def _is_able(candidate: Candidate, build: Build, ram: int) -> bool:
    """Return whether a build is another: with constants, of which the memory for data can hold as many."""
    return build.get(WEIGHTS) != RAM or 0 < sum(candidate.constants.values()) <= _MOST_RAM * ram


def _in(candidate: Candidate, build: Build) -> Candidate:
    schedule = built(candidate.schedule, build)
    code_bytes = int(candidate.code_bytes * _CODE[build.get(LEVEL, "O2")])
    return replace(candidate, schedule=schedule, text=schedule_text(schedule), code_bytes=code_bytes)
