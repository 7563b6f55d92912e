"""`mtool tune`: measure schedules on a board, and show a tuning log."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from mtool.base.errors import UsageError
from mtool.base.option_values import Objective
from mtool.base.plural import count
from mtool.cli import parameters
from mtool.cli.output import Output, table

if TYPE_CHECKING:
    from mtool.cli.console import TextTable
    from mtool.compiler.tuned.record import Unit, WholePlan
    from mtool.compiler.tuned.summary import TargetSummary, TaskSummary
    from mtool.tuning.search import Progress, Row
    from mtool.tuning.tuning import Tuned

_REASON = 100  # characters of a failure's reason; the log has all


def tune(
    out: Output,
    model: Path | None = None,
    board: str = parameters.HOST,
    output: Path = Path("tuning.jsonl"),
    objective: Objective = "auto",
    trials: int = 0,
    minutes: float = 0.0,
    repeat: int = 3,
    show: list[Path] | None = None,
    pareto: bool = False,
    builds: bool = True,
    *,
    options: parameters.TuningOptions,
    deployment: parameters.TrialsDeployment,
    scheduler: str = "",
    tls_ca: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
) -> None:
    """Measure schedules on a board and remember the fastest."""
    if show:
        if model is not None:
            raise UsageError("--show can't be combined with a model: it measures nothing", hint="leave one of them out")
        _show(out, show, pareto=pareto)
        return
    if model is None:
        raise UsageError("the model's path is missing", hint="give a model to tune, or --show FILE")
    if not scheduler and (tls_ca or tls_cert or tls_key):
        raise UsageError("--tls-ca, --tls-cert and --tls-key need --scheduler", hint="add --scheduler HOST:PORT")
    from mtool.tuning.farm.security import FarmAddress, Tls
    from mtool.tuning.tuning import tune as measure

    with _Display(out).shown() as display:
        try:
            tuned = measure(
                model,
                board=board,
                output=output,
                objective=objective,
                trials=trials,
                minutes=minutes,
                repeats=repeat,
                options=options,
                deployment=deployment,
                listener=display.update,
                farm=FarmAddress(scheduler, Tls(tls_ca, tls_cert, tls_key)) if scheduler else None,
                pareto=pareto,
                builds=builds,
            )
        except BaseException:
            if display.has_measured:
                out.note(f"results so far are in {output}: the same command continues from there")
            raise
    out.result(tuned.as_json())
    _print(out, tuned)


def _print(out: Output, tuned: "Tuned") -> None:
    progress, unit = tuned.progress, tuned.setup.unit
    if tuned.whole is None:
        out.text("no operator of the model has more than one schedule")
        return
    out.text(_table(progress, [_in_plan(row, tuned.chosen(key)) for key, row in progress.rows.items()]))
    for key, row in progress.rows.items():
        if why := tuned.why_not(key):
            out.text(f"          {row.label.partition(' ')[0]} does not use the fastest: {why}")
    best, default = tuned.whole.best, tuned.whole.default
    arena = f"arena {best.arena_bytes:,} B" + (
        f" (was {default.arena_bytes:,} B)" if best.arena_bytes != default.arena_bytes else ""
    )
    times = f"{written(default.median, unit)} -> {written(best.median, unit)}"
    counts = f"{progress.measured} measured, {progress.reused} known before, {progress.failed} failed"
    failed = ((row, trial) for row in progress.rows.values() for trial in row.measured.values() if trial.status != "ok")
    for row, trial in islice(failed, 1):
        reason = f": {shorten(trial.reason, _REASON, placeholder='…')}" if trial.reason else ""
        out.text(f"failed    first {row.label.partition(' ')[0]} with {trial.candidate}: {trial.status}{reason}")
    out.text(f"whole     {times}   saved {tuned.whole.gain:.1%}, {arena}")
    out.text(f"saved     {tuned.log}   {counts}, {count(progress.firmwares, 'firmware')}")


def _table(progress: "Progress", chosen: "Sequence[str]" = ()) -> "TextTable":
    """Return the table of tasks; at the end also with the plan's choice for each."""
    unit = "" if progress.unit == "ns" else f", {progress.unit}"
    heads: tuple[str, ...] = ("task", "tried", "failed", f"default{unit}", "", "best", "saved")
    rows = [_cells(row, progress.unit) for row in progress.rows.values()]
    if chosen:
        heads = (*heads, "in the plan")
        rows = [[*row, text] for row, text in zip(rows, chosen, strict=True)]
    return table(heads, rows, right=(1, 2, 3, 5, 6))


def _in_plan(row: "Row", chosen: str) -> str:
    """Return the table's name for a task's candidate in the plan; `chosen` is "" if none of them has a time."""
    if not chosen:
        return "the default" + ("" if row.measured else ", not tried")
    return "the best" if row.best is not None and chosen == row.best.candidate else chosen


def _cells(row: "Row", unit: "Unit") -> list[str]:
    default, best = row.default, row.best
    saved = "" if not (default and best and default.median) else f"{1 - best.median / default.median:.1%}"
    return [
        row.label,
        f"{len(row.measured)}/{len(row.space.candidates)}",
        str(row.failed or ""),
        "" if default is None else _number(default.median, unit),
        "" if best is None else best.candidate,
        "" if best is None else _number(best.median, unit),
        saved,
    ]


def written(value: float, unit: "Unit") -> str:
    """Write a median: in milliseconds or microseconds, or as a number of instructions or cycles."""
    return _number(value, unit) + ("" if unit == "ns" else f" {unit}")


def _number(value: float, unit: "Unit") -> str:
    if unit != "ns":
        return f"{value:,.0f}"
    return f"{value / 1e6:,.3f} ms" if value >= 1e6 else f"{value / 1e3:,.2f} µs"


class _Display:
    """The display during a search: a live table on a terminal, else a line for each phase."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._live: Any = None
        self._phase = ""
        self.has_measured = False

    @contextmanager
    def shown(self) -> "Iterator[_Display]":
        """Show it while the block runs."""
        if self._out.verbosity < 0 or not self._out.stderr.is_terminal:
            yield self
            return
        from rich.live import Live

        with Live(console=self._out.stderr, refresh_per_second=4, transient=True) as self._live:
            yield self
        self._live = None

    def update(self, progress: "Progress") -> None:
        """Show the progress of the search."""
        self.has_measured |= progress.measured > 0
        if self._live is not None:
            from rich.console import Group

            self._live.update(Group(_table(progress), _line(progress)))
        elif progress.phase and progress.phase != self._phase:
            self._out.note(f"  {_line(progress)}")
        self._phase = progress.phase


def _line(progress: "Progress") -> str:
    import time

    passed = time.monotonic() - progress.started
    parts = [f"{progress.tried} of {count(progress.total, 'candidate')}", count(progress.firmwares, "firmware")]
    if progress.trials:
        parts.insert(0, f"{progress.measured} of {count(progress.trials, 'trial')}")
    if progress.failed:
        parts.append(f"{progress.failed} failed")
    if progress.drift:
        parts.append(f"the board is now {abs(progress.drift):.1%} {'slower' if progress.drift > 0 else 'faster'}")
    left = f", {max(progress.seconds - passed, 0):.0f} s left" if progress.seconds else ""
    return f"{passed:5.1f} s{left}   {', '.join(parts)}   {progress.phase}"


def _show(out: Output, paths: list[Path], *, pareto: bool) -> None:
    from mtool.compiler.tuned import record as tuning_log
    from mtool.compiler.tuned.summary import summary

    summaries = summary(tuning_log.read(paths))
    out.result({"targets": [target.as_json() for target in summaries]})
    if not summaries:
        out.text("no measurements yet")
    for number, target in enumerate(summaries):
        if number:
            out.text("")
        _show_target(out, target)
        for plans in target.fronts if pareto else ():
            _show_front(out, plans)
    if pareto and summaries and not any(target.fronts for target in summaries):
        out.text("no plan's flash was measured: mtool tune MODEL --pareto does that")


def _show_front(out: Output, plans: "Sequence[WholePlan]") -> None:
    """Show the plans of a model that no other beats, with the numbers that --tuned accepts."""
    from mtool.compiler.tuned import summary as front

    named = {name: front.point(plans, name) for name in front.NAMES}
    rows = [
        [
            str(number),
            ", ".join(name for name, choice in named.items() if choice is plan),
            written(plan.median, plan.setup.unit),
            f"{plan.arena_bytes:,} B",
            f"{plan.flash_bytes:,} B",
            plan.partial,
        ]
        for number, plan in enumerate(plans, 1)
    ]
    heads = (f"{plans[0].model}: point", "", "time", "arena", "flash", "--partial")
    out.text(table(heads, rows, right=(0, 2, 3, 4)))


def _show_target(out: Output, summary: "TargetSummary") -> None:
    target, setup = summary.target, summary.setup
    clock = f" at {setup.clock_hz / 1e6:g} MHz" if setup.clock_hz else ""
    flags = [flag for flag in target.flags if not flag.endswith(("=", "=none", "=0", "=native"))]  # options not in use
    out.text(f"{setup.board}{clock}, {target.cpu}, {target.compiler} {' '.join(flags)}, {setup.template}")
    heads = ("task", "candidates", "failed", "best", "", "noise", "next is slower by")
    rows = [_known_cells(task, setup.unit) for task in summary.tasks]
    out.text(table(heads, rows, right=(1, 4, 5, 6)))
    for plan in summary.plans:
        saved = 1 - plan.median / plan.default_median if plan.default_median else 0.0
        before, after = written(plan.default_median, setup.unit), written(plan.median, setup.unit)
        out.text(f"whole {plan.model}   {before} -> {after}   saved {saved:.1%}, arena {plan.arena_bytes:,} B")


def _known_cells(task: "TaskSummary", unit: "Unit") -> list[str]:
    best, lead = task.best, task.lead
    record = task.candidates[0].task
    return [
        f"{record.label}  {', '.join(text for text in record.reads if not text.startswith('constant'))}",
        str(len(task.candidates)),
        ", ".join(f"{count} {status}" for status, count in task.failed.items()),
        "" if best is None else best.candidate,
        "" if best is None else written(best.median, unit),
        f"{task.noise:.2%}" if unit == "ns" else "",
        "" if lead is None else f"{lead:.1%}",
    ]
