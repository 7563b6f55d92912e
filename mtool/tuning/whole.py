"""The whole plan: the fastest candidates are measured again in the model; the default stays if it is faster."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mtool.base.errors import MtoolError
from mtool.base.option_values import Order, Partial
from mtool.compiler.compilation import compile_model
from mtool.compiler.plan import Choice
from mtool.compiler.plan.pools import is_short
from mtool.compiler.tuned.record import Unit
from mtool.compiler.tuned.tasks import parse
from mtool.device.build.size import measure
from mtool.stages.building import HOST_DRIVEN, build_model
from mtool.stages.compiling import CompiledModel
from mtool.stages.options import Options, weights_of
from mtool.stages.samples import Sample
from mtool.tuning.candidates import Candidate
from mtool.tuning.firmware import TrialSite
from mtool.tuning.measuring import Runs
from mtool.tuning.search import Progress, Row

# Plans of a whole model beside the fastest: for less arena, for less flash, and with operators computed in parts.


_SLOWER = 1.5  # a candidate with less memory may take this many times the fastest one's time
_CODE_PER_CHARACTER = 0.25  # approximate bytes of machine code per character of C


@dataclass(frozen=True, slots=True)
class PlanChoice:
    """A plan to measure: each task's candidate by key, whether operators are computed in parts, and their order."""

    choices: Mapping[str, str]
    partial: Partial = field(default="auto", kw_only=True)
    order: Order = field(default="auto", kw_only=True)


def other_plans(rows: Sequence[Row], default: PlanChoice, fastest: Mapping[str, str]) -> Iterator[PlanChoice]:
    """Yield plans that may be on the Pareto front of time, arena and flash, each once."""
    small_arena = {row.space.task.record.key: _smallest(row, scratch_bytes) for row in rows}
    small_flash = {row.space.task.record.key: _smallest(row, flash_bytes) for row in rows}
    seen = [(dict(default.choices), default.partial), (dict(fastest), default.partial)]
    plans: list[tuple[Mapping[str, str], Partial]] = [
        (fastest, "never"),
        (fastest, "always"),
        (small_arena, default.partial),
        (small_arena, "always"),
        (small_flash, default.partial),
        (small_flash, "never"),
    ]
    for choices, partial in plans:
        plan = ({**default.choices, **choices}, partial)
        if plan not in seen:
            seen.append(plan)
            yield PlanChoice(plan[0], partial=partial)


def scratch_bytes(row: Row, candidate: Candidate) -> float:
    """Return a candidate's scratch memory."""
    task = row.space.task
    return candidate.schedule.scratch_bytes(task.step.node, task.graph)


def flash_bytes(row: Row, candidate: Candidate) -> float:
    """Return the approximate flash of a candidate: its constants for each node, its code once."""
    constants = len(row.space.task.nodes) * sum(candidate.constants.values())
    return constants + candidate.code_bytes * _CODE_PER_CHARACTER


def _smallest(row: Row, size: Callable[[Row, Candidate], float]) -> str:
    """Return the smallest candidate of a task that is not too slow; of equal ones, the faster."""
    assert row.best is not None
    most = row.best.median * _SLOWER
    able = [one for one in row.space.candidates if one.text in row.measured and row.measured[one.text].median <= most]
    return min(able, key=lambda one: (size(row, one), row.measured[one.text].median, one.text)).text


log = logging.getLogger(__name__)
_TOLERANCE = 1e-3  # of the largest magnitude; a float output may differ this much from the default's
_MOST_PLANS = 6  # to try until one is faster


@dataclass(frozen=True, slots=True)
class Measured:
    """A plan that was measured in the whole model: each task's candidate, the times, arena and flash.

    `partial` and `order` are the plan's options; `flash_bytes` is the flash of the host-driven firmware.
    """

    choices: Mapping[str, str]
    times: tuple[float, ...]
    arena_bytes: int
    flash_bytes: int = 0
    partial: Partial = "auto"
    order: Order = "auto"

    @property
    def median(self) -> float:
        """The median of the times."""
        return float(np.median(self.times))


@dataclass(frozen=True, slots=True)
class TriedPlan:
    """A plan that was tried for speed: each task's candidate, and the median time or why it was left out."""

    choices: Mapping[str, str]
    median: float = 0.0
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Whole:
    """The best plan found for a model (maybe the default), the default, and the other measured plans."""

    best: Measured
    default: Measured
    model_hash: str
    others: tuple[Measured, ...] = ()
    tried: tuple[TriedPlan, ...] = ()

    def why_not(self, key: str, candidate: str) -> str:
        """Return why the best plan does not use a candidate that may be faster alone; "": it does.

        Args:
            key: the task's key.
            candidate: the task's fastest, as measured by the search.
        """
        if self.best.choices.get(key) == candidate:
            return ""
        those = [plan for plan in self.tried if plan.choices.get(key) == candidate]
        medians = [plan.median for plan in those if not plan.failed]
        if medians and self.best.median:
            slower = min(medians) / self.best.median - 1
            by = f"{slower:.1%} slower" if slower > 0 else "no faster"
            return f"the whole model is {by} with it"
        return those[0].failed if those else "not measured in the whole model"

    @property
    def gain(self) -> float:
        """The fraction of the default's time that is saved, 0 to 1."""
        return 1 - self.best.median / self.default.median if self.default.median else 0.0

    def with_choices(self, choices: Mapping[str, str]) -> "Whole":
        """Return the result with the candidates of tasks that were not tuned added to each plan."""

        def added(plan: Measured) -> Measured:
            return replace(plan, choices={**choices, **plan.choices})

        best, default = added(self.best), added(self.default)
        return replace(self, best=best, default=default, others=tuple(map(added, self.others)))


def best_whole(
    model: Path, options: Options, place: TrialSite, progress: Progress, unit: Unit, run: Runs, *, pareto: bool = False
) -> Whole:
    """Return the fastest of the plans that the search suggests, measured in the whole model.

    It is never slower than the default, has the same outputs, and its arena fits the board. `run` runs a plan;
    `pareto`: also measure plans for less arena and less flash.

    Raises:
        MtoolError: the default can't be built or measured.
    """
    rows = [row for row in progress.rows.values() if row.best is not None]
    choices = {row.space.task.record.key: row.space.default.text for row in rows}
    default = PlanChoice(choices, partial=options.partial, order=options.order)
    trier = _Trier(model, options, place, rows, unit, run)
    progress.set_phase("the whole model, as it is by default")
    first = trier.measure(default, None)
    best = first
    for number, plan in enumerate(_plans(rows, default)):
        progress.set_phase("the whole model")
        result = trier.try_(plan, first)
        if result is None:
            continue
        if result.median < best.median:
            best = result
        if not number and result.median < first.median:  # it has the fastest candidate of every task
            break
    written = PlanChoice(best.choices, partial=best.partial, order="written")
    if options.order == "auto" and trier.is_of_another_order(written):
        progress.set_phase("the whole model, in the order of its file")
        result = trier.try_(written, first)
        best = result if result is not None and result.median < best.median else best
    if unit == "ns" and best is not first:  # the board may have become slower meanwhile
        progress.set_phase("the whole model, as it is by default, again")
        again = trier.measure(default, None)
        first = replace(first, times=(*first.times, *again.times))
        best = best if best.median < min(first.median, again.median) else first
    others, tried = [], [*trier.tried]
    for plan in other_plans(rows, default, best.choices) if pareto else ():
        progress.set_phase("the whole model, for less memory")
        result = trier.try_(plan, first)
        others += [] if result is None else [result]
    return Whole(best, first, trier.model_hash, tuple(others), tuple(tried))


def _plans(rows: Sequence[Row], default: PlanChoice) -> list[PlanChoice]:
    """Return the plans to try: the best of each task; then, until one is faster, plans that change less."""

    best = {id(row): row.best for row in rows if row.best is not None}

    def gain(row: Row) -> float:
        before = row.default
        return (before.median - best[id(row)].median) * len(row.space.task.nodes) if before is not None else 0.0

    changed = [row for row in rows if id(row) in best and best[id(row)].candidate != row.space.default.text]
    changed = sorted((row for row in changed if gain(row) > 0), key=gain, reverse=True)
    sizes, size = [], len(changed)
    while size:
        sizes.append(size)
        size //= 2
    plans = [
        PlanChoice(
            {**default.choices, **{row.space.task.record.key: best[id(row)].candidate for row in changed[:size]}},
            partial=default.partial,
            order=default.order,
        )
        for size in sizes
    ]
    return plans[:_MOST_PLANS]


class _Trier:
    """Builds a model with a plan and measures it."""

    def __init__(
        self, model: Path, options: Options, place: TrialSite, rows: Sequence[Row], unit: Unit, run: Runs
    ) -> None:
        self.model, self.place, self.rows, self.unit, self.run = model, place, rows, unit, run
        self.options = replace(options, edits="force", tuned=())
        self.model_hash = ""
        self.tried: list[TriedPlan] = []
        self._expected: Sequence[Sample] | None = None

    def try_(self, plan: PlanChoice, default: Measured) -> Measured | None:
        """Return a plan's measurement; None, with a warning, if it can't be built or run, or its outputs are wrong."""
        try:
            result = self.measure(plan, default)
        except MtoolError as failed:
            log.warning("leaving out a plan: %s", failed.what)
            self.tried.append(TriedPlan(plan.choices, failed=failed.what))
            return None
        self.tried.append(TriedPlan(plan.choices, result.median))
        return result

    def measure(self, plan: PlanChoice, default: Measured | None) -> Measured:
        """Build the model with the schedules of a plan, compare its outputs with the default's, and time it.

        Raises:
            MtoolError: it can't be built or run, or its outputs differ.
        """
        compiled = self._compiled(plan)
        manifest = compiled.manifest
        self.model_hash = manifest.model_hash
        if default is not None and is_short(self.place.board, manifest.bytes_of_arena):
            raise MtoolError(f"its arena of {manifest.arena_bytes:,} B does not fit the board's memory")
        prepared = build_model(compiled, self.place.folder.with_name(f"{self.place.folder.name}-whole"))
        run = self.run(prepared, self.unit)
        if self._expected is None:
            self._expected = run.outputs
        elif not _agree(self._expected, run.outputs):
            raise MtoolError("its outputs differ from the default plan's")
        size = measure(prepared.built.firmware[HOST_DRIVEN], prepared.manifest)
        flash_bytes = size.flash_code_bytes + size.flash_const_bytes
        return Measured(plan.choices, run.times, manifest.arena_bytes, flash_bytes, plan.partial, plan.order)

    def is_of_another_order(self, plan: PlanChoice) -> bool:
        """Return whether a plan's operators run in another order than with the order "auto"."""
        orders = [
            [operator.name for operator in self._compiled(variant).manifest.operators]
            for variant in (plan, replace(plan, order="auto"))
        ]
        return orders[0] != orders[1]

    def _compiled(self, plan: PlanChoice) -> CompiledModel:
        schedules: dict[str, Choice] = {
            node: parse(plan.choices[row.space.task.record.key]) for row in self.rows for node in row.space.task.nodes
        }
        board, weights = self.place.board, weights_of(self.place.board, self.options)
        merged = {**schedules, **self.options.schedules}
        options = replace(self.options, schedules=merged, weights=weights, partial=plan.partial, order=plan.order)
        compiled = compile_model(self.model, board, options)  # its warnings are for the user's own build
        return CompiledModel(self.model, board, options, compiled.files, compiled.manifest)


def _agree(expected: Sequence[Sample], actual: Sequence[Sample]) -> bool:
    """Return whether outputs agree: integers exactly, floats within the tolerance."""
    for sample, other in zip(expected, actual, strict=True):
        for name, reference_value in sample.items():
            if reference_value.dtype.kind != "f":
                if not np.array_equal(reference_value, other[name]):
                    return False
                continue
            scale = float(np.abs(reference_value).max(initial=0.0))
            if not np.allclose(reference_value, other[name], rtol=0, atol=_TOLERANCE * scale, equal_nan=True):
                return False
    return True
