"""The finals: where times are noisy, the fastest candidates of a task take turns; the slower half leaves each round."""

import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mtool.compiler.tuned.record import Measurement
from mtool.tuning.measuring import Measuring, Outcome, spread
from mtool.tuning.operators import Operators

if TYPE_CHECKING:  # a worker's boards do without the compiler
    from mtool.tuning.candidates import Candidate, Space

_MOST = 8  # finalists of a task
_TURNS = (5, 9, 15)  # of each round, after which half of them leave
ROUNDS = len(_TURNS)
_NEAR = 0.02  # of the best: at least so near candidates are told apart
_STRIKES = 3  # failed readings, with which a finalist leaves if it has no more others


def finalists(space: "Space", measured: Mapping[str, Measurement]) -> "list[Candidate]":
    """Return the candidates of a task that noise may have put in a wrong order; none, if the best is alone.

    None too, if they have had their turns in a run before: those that are near have been in, and two are at the end.

    Args:
        space: the task's.
        measured: the last measurement of each candidate, by its text.
    """
    right = [one for one in measured.values() if one.status == "ok" and one.times]
    if not right:
        return []
    ranked = sorted(right, key=lambda one: one.median)[:_MOST]
    margin = max([_NEAR, *(3 * spread(one.times) / one.median for one in ranked if one.median)])
    near = {one.candidate for one in ranked if one.median <= ranked[0].median * (1 + margin)}
    if near == {space.default.text}:
        return []
    near.add(space.default.text)
    if _are_over(right, near):
        return []
    found = {one.candidate for one in right}
    return [one for one in space.candidates if one.text in near & found]


def _are_over(right: Sequence[Measurement], near: Collection[str]) -> bool:
    at_the_end = [one for one in right if len(one.times) >= sum(_TURNS)]
    return len(at_the_end) > 1 and all(len(one.times) >= _TURNS[0] for one in right if one.candidate in near)


def take_turns(
    measuring: Measuring, names: Operators, places: Collection[int], is_late: Callable[[], bool]
) -> Iterator[tuple[int, Outcome]]:
    """Let the candidates of these texts take turns, and yield after each round how each has done, by its number.

    Args:
        measuring: times them.
        names: the operators of their task.
        places: the numbers of the finalists.
        is_late: whether to stop.
    """
    left = sorted(places)
    times: dict[int, list[float]] = {place: [] for place in left}
    number, strikes = dict.fromkeys(left, 1), dict.fromkeys(left, 0)
    for turns in _TURNS:
        failed: dict[int, Outcome] = {}
        for place in [place for _ in range(turns) for place in left]:
            if place in failed:
                continue
            if is_late():
                return
            outcome = measuring.measure(names, place, repeats=1)
            if outcome.status == "ok":
                times[place] += outcome.times
                number[place] = outcome.number
                continue
            strikes[place] += 1
            if outcome.status == "wrong" or strikes[place] >= max(_STRIKES, len(times[place])):
                failed[place] = outcome
        ranked = [place for place in left if place not in failed and times[place]]
        ranked.sort(key=lambda place: statistics.median(times[place]))
        yield from failed.items()
        for place in ranked:
            yield place, Outcome("ok", tuple(times[place]), number[place])
        if len(ranked) < 2:
            return
        left = ranked[: max(2, (len(ranked) + 1) // 2)]
