"""Tuning results for one target and setup. Importing this module does not load the operators."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Self

from mtool.base.frozen import frozen

if TYPE_CHECKING:
    from mtool.base.option_values import Order, Partial
    from mtool.compiler.tuned.record import Log, Measurement, Setup, Target, WholePlan

UNITS = ("ns", "cycles", "instructions")
"""If a candidate was measured in several units, the first of these decides."""


@frozen
class TuningResults:
    """The candidates of each task by its key, the fastest first, and those of whole models by the hash of their file.

    Candidates that were wrong or failed are left out. `partial` and `order` are the measured options of whole models:
    how operators are computed in parts, and in which order. `point` is the requested point of a front; "": none.
    """

    ranked: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    whole: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    partial: "Mapping[str, Partial]" = field(default_factory=dict)
    order: "Mapping[str, Order]" = field(default_factory=dict)
    point: str = ""

    @classmethod
    def of(cls, read: "Log", target: "Target", setup: "Setup", point: str = "") -> Self:
        """Return the results for a target and a setup; both must be equal, except for the timer's unit.

        Args:
            read: the logs.
            target, setup: those that the schedules are for.
            point: a point of each model's front, by name or number; empty: the plan that tuning ended with.
        """
        ranked: dict[str, tuple[str, ...]] = {}
        whole: dict[str, WholePlan] = {}
        for unit in reversed(UNITS):
            unit_setup = setup.model_copy(update={"unit": unit})
            ranked |= rank(m for m in read.measurements if (m.target, m.setup) == (target, unit_setup))
            plans = [plan for plan in read.plans if (plan.target, plan.setup) == (target, unit_setup)]
            whole |= _chosen(plans, point)
        choices = {model: plan.choices for model, plan in whole.items()}
        partial = {model: plan.partial for model, plan in whole.items() if plan.partial != "auto"}
        order = {model: plan.order for model, plan in whole.items() if plan.order != "auto"}
        return cls(ranked, choices, partial, order, point)


def _chosen(plans: "Sequence[WholePlan]", name: str) -> "dict[str, WholePlan]":
    """Return the plan of each model: the last one that is not a point of the front, or the point with this name."""
    if not name:
        return {plan.model_hash: plan for plan in plans if not plan.is_point}
    from mtool.compiler.tuned.summary import front, point

    fronts = {key: front(plan for plan in plans if plan.model_hash == key) for key in {p.model_hash for p in plans}}
    points = {key: point(of_model, name) for key, of_model in fronts.items()}
    return {key: plan for key, plan in points.items() if plan is not None}


def rank(measurements: "Iterable[Measurement]") -> dict[str, tuple[str, ...]]:
    """Return the candidates of each task by its key, the fastest first; of repeated measurements the last counts."""
    latest: dict[str, dict[str, Measurement]] = {}
    for measurement in measurements:
        if not measurement.baseline:
            latest.setdefault(measurement.task.key, {})[measurement.candidate] = measurement
    ranking = {}
    for key, candidates in latest.items():
        valid = [m for m in candidates.values() if m.status == "ok" and m.times]
        if valid:
            ranking[key] = tuple(m.candidate for m in sorted(valid, key=lambda m: (m.median, m.candidate)))
    return ranking
