"""The Pareto front of a model's whole plans: those that no other plan beats in time, arena and flash together."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mtool.base.errors import UsageError
from mtool.compiler.tuned.record import WholePlan

FASTEST, ARENA, FLASH = "fastest", "arena", "flash"
NAMES = (FASTEST, ARENA, FLASH)
"""Points by name: the fastest plan, that of the smallest arena, that of the smallest flash."""

_POINT = re.compile(rf"(.+):({'|'.join(NAMES)}|[1-9][0-9]*)")


def front(plans: Iterable[WholePlan]) -> tuple[WholePlan, ...]:
    """Return the plans of one model that are on the front, the fastest first, of equal ones one.

    Args:
        plans: of one target and setup, in the order of the log. Those whose flash is not told are left out.
    """
    latest = {
        (plan.partial, plan.order, tuple(sorted(plan.choices.items()))): plan for plan in plans if plan.flash_bytes
    }
    usual_last = sorted(latest.values(), key=lambda plan: (plan.partial, plan.order) == ("auto", "auto"))
    by_cost = {_costs(plan): plan for plan in usual_last}
    best = [costs for costs in by_cost if not any(_beats(other, costs) for other in by_cost)]
    return tuple(by_cost[costs] for costs in sorted(best))


def point(plans: Sequence[WholePlan], name: str) -> WholePlan | None:
    """Return a point of a front by its name or its number from 1 on; None, if there is no such."""
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
    """Return the paths of logs without the point that may be asked for behind one (tuning.jsonl:arena), and the point.

    Raises:
        UsageError: different points are asked for.
    """
    logs, points = [], []
    for path in paths:
        found = None if path.exists() else _POINT.fullmatch(str(path))
        logs.append(Path(found[1]) if found else path)
        points += [found[2]] if found else []
    if len(set(points)) > 1:
        raise UsageError(f"different points are asked for: {', '.join(points)}", hint="give one of them")
    return tuple(logs), points[0] if points else ""


def _costs(plan: WholePlan) -> tuple[float, int, int]:
    return plan.median, plan.arena_bytes, plan.flash_bytes


def _beats(one: tuple[float, int, int], other: tuple[float, int, int]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
