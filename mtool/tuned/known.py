"""What tuning has found for one target and setup. Who names it alone does not load the operators."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from mtool.tuned.log import Log
    from mtool.tuned.record import Measurement, Setup, Target

UNITS = ("ns", "cycles", "instructions")
"""What decides, where a candidate was measured in several units: the first."""


@dataclass(frozen=True, slots=True)
class Known:
    """The candidates of each task by its key, the fastest first, and those of whole models by the hash of their file.

    Candidates that were wrong or failed are none of them.
    """

    ranked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    whole: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, read: "Log", target: "Target", setup: "Setup") -> Self:
        """Return what holds for a target and a setup; the timer's unit apart, both have to be the same."""
        ranked: dict[str, tuple[str, ...]] = {}
        whole: dict[str, Mapping[str, str]] = {}
        for unit in reversed(UNITS):
            here = setup.model_copy(update={"unit": unit})
            ranked |= rank(one for one in read.measurements if (one.target, one.setup) == (target, here))
            plans = (plan for plan in read.plans if (plan.target, plan.setup) == (target, here))
            whole |= {plan.model_hash: plan.choices for plan in plans}
        return cls(ranked, whole)


def rank(measured: "Iterable[Measurement]") -> dict[str, tuple[str, ...]]:
    """Return the candidates of each task by its key, the fastest first; of several measurements the last counts."""
    latest: dict[str, dict[str, Measurement]] = {}
    for one in measured:
        if not one.baseline:
            latest.setdefault(one.task.key, {})[one.candidate] = one
    found = {}
    for key, candidates in latest.items():
        right = [one for one in candidates.values() if one.status == "ok" and one.times]
        if right:
            found[key] = tuple(one.candidate for one in sorted(right, key=lambda one: (one.median, one.candidate)))
    return found
