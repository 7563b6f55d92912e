"""A readable summary of tuning logs: by target and setup, the fastest candidate of each task and its certainty.

A front is the Pareto front of a model's whole plans: those that no other plan beats in time, arena and flash.
"""

import operator
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mtool.base.errors import UsageError
from mtool.base.frozen import frozen
from mtool.compiler.tuned.record import Log, Measurement, Setup, Target, WholePlan

FASTEST, ARENA, FLASH = "fastest", "arena", "flash"
NAMES = (FASTEST, ARENA, FLASH)
"""Points by name: the plan that is fastest, or has the smallest arena, or the smallest flash."""

_POINT = re.compile(rf"(.+):({'|'.join(NAMES)}|[1-9][0-9]*)")


def front(plans: Iterable[WholePlan]) -> tuple[WholePlan, ...]:
    """Return the plans of one model on the front, the fastest first, without duplicates.

    Args:
        plans: those for one target and setup, in the order of the log. Those without a known flash size are left out.
    """
    latest = {
        (plan.partial, plan.order, tuple(sorted(plan.choices.items()))): plan for plan in plans if plan.flash_bytes
    }
    usual_last = sorted(latest.values(), key=lambda plan: (plan.partial, plan.order) == ("auto", "auto"))
    by_cost = {(plan.median, plan.arena_bytes, plan.flash_bytes): plan for plan in usual_last}

    def is_beaten(costs: tuple[float, int, int]) -> bool:
        return any(other != costs and all(map(operator.le, other, costs)) for other in by_cost)

    best = [costs for costs in by_cost if not is_beaten(costs)]
    return tuple(by_cost[costs] for costs in sorted(best))


def point(plans: Sequence[WholePlan], name: str) -> WholePlan | None:
    """Return a point of a front by its name or its number, from 1; None if it does not exist."""
    if not plans:
        return None
    if name == FASTEST:
        return plans[0]
    if name == ARENA:
        return min(plans, key=lambda plan: (plan.arena_bytes, plan.median))
    if name == FLASH:
        return min(plans, key=lambda plan: (plan.flash_bytes, plan.median))
    return plans[int(name) - 1] if int(name) <= len(plans) else None


def without_points(paths: Iterable[Path]) -> tuple[tuple[Path, ...], str]:
    """Return the paths of logs without the point that may follow one (tuning.jsonl:arena), and the point.

    Raises:
        UsageError: different points are requested.
    """
    logs, points = [], []
    for path in paths:
        match = None if path.exists() else _POINT.fullmatch(str(path))
        logs.append(Path(match[1]) if match else path)
        points += [match[2]] if match else []
    if len(set(points)) > 1:
        raise UsageError(f"different points are requested: {', '.join(points)}", hint="give one of them")
    return tuple(logs), points[0] if points else ""


_SCALE = 1.4826  # of the median absolute deviation, see mtool.tuning.measuring


@frozen
class TaskSummary:
    """A measured task: the last measurement of each candidate, the fastest first, failures last."""

    candidates: tuple[Measurement, ...]

    @property
    def best(self) -> Measurement | None:
        """The fastest; None, if all have failed."""
        first = self.candidates[0]
        return first if first.status == "ok" else None

    @property
    def failed(self) -> Mapping[str, int]:
        """The number of failed candidates, by kind of failure."""
        statuses = [candidate.status for candidate in self.candidates if candidate.status != "ok"]
        return {status: statuses.count(status) for status in dict.fromkeys(statuses)}

    @property
    def noise(self) -> float:
        """The robust deviation of the fastest one's times, relative to their median."""
        return 0.0 if self.best is None else relative_spread(self.best.times)

    @property
    def lead(self) -> float | None:
        """How much slower the next candidate is, relative to the fastest; None if there is no other."""
        valid = [candidate for candidate in self.candidates if candidate.status == "ok"]
        if len(valid) < 2 or not valid[0].median:
            return None
        return valid[1].median / valid[0].median - 1


@frozen
class TargetSummary:
    """The results for one target and setup: tasks, and the plan and the front of each model."""

    target: Target
    setup: Setup
    tasks: tuple[TaskSummary, ...]
    plans: tuple[WholePlan, ...]
    fronts: tuple[tuple[WholePlan, ...], ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the summary as plain values."""
        return {
            "target": self.target.model_dump(mode="json"),
            "setup": self.setup.model_dump(mode="json"),
            "tasks": [
                {
                    "task": task.candidates[0].task.model_dump(mode="json"),
                    "candidates": len(task.candidates),
                    "failed": dict(task.failed),
                    "best": task.best and {"candidate": task.best.candidate, "median": task.best.median},
                    "noise": task.noise,
                    "lead": task.lead,
                }
                for task in self.tasks
            ],
            "plans": [
                {**plan.model_dump(mode="json"), "median": plan.median, "default_median": plan.default_median}
                for plan in self.plans
            ],
            "fronts": [[plan.model_dump(mode="json") for plan in plans] for plans in self.fronts],
        }


def relative_spread(times: Sequence[float]) -> float:
    """Return the robust deviation of times, relative to their median."""
    middle = statistics.median(times)
    return _SCALE * statistics.median(abs(time - middle) for time in times) / middle if middle else 0.0


def _rank(measurement: Measurement) -> tuple[bool, float, str]:
    return measurement.status != "ok", measurement.median, measurement.candidate


def summary(read: Log) -> tuple[TargetSummary, ...]:
    """Return a summary of logs, with targets and tasks in the order of their first appearance."""
    targets: dict[str, tuple[Target, Setup]] = {}
    tasks: dict[str, dict[str, dict[str, Measurement]]] = {}
    plans: dict[str, dict[str, WholePlan]] = {}
    measured: dict[str, dict[str, list[WholePlan]]] = {}

    def place(entry: Measurement | WholePlan) -> str:
        where = f"{entry.target.model_dump_json()} {entry.setup.model_dump_json()}"
        targets[where] = entry.target, entry.setup
        return where

    for entry in read.measurements:
        if not entry.baseline:
            tasks.setdefault(place(entry), {}).setdefault(entry.task.key, {})[entry.candidate] = entry
    for plan in read.plans:
        measured.setdefault(place(plan), {}).setdefault(plan.model_hash, []).append(plan)
        if not plan.is_point:
            plans.setdefault(place(plan), {})[plan.model_hash] = plan
    return tuple(
        TargetSummary(
            target,
            setup,
            tuple(
                TaskSummary(tuple(sorted(candidates.values(), key=_rank)))
                for candidates in tasks.get(where, {}).values()
            ),
            tuple(plans.get(where, {}).values()),
            tuple(filter(None, (front(of_model) for of_model in measured.get(where, {}).values()))),
        )
        for where, (target, setup) in targets.items()
    )
