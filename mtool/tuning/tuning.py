"""Tune a model: measure its tasks' candidates on a board, and the whole model with the best of them."""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mtool import boards
from mtool.base import checked, files, locks
from mtool.base.errors import UsageError
from mtool.base.option_values import Objective
from mtool.boards import Board
from mtool.compiler import frontend
from mtool.compiler.compilation import plan_model, target_of
from mtool.compiler.plan.choice import Choices
from mtool.compiler.tuned import record as tuning_log
from mtool.compiler.tuned.record import Log, Setup, Target, Unit, WholePlan, digest, new_id, now
from mtool.compiler.tuned.tasks import Task, tasks_of, text_of
from mtool.device import cycles
from mtool.stages.deployment import DEFAULT, Deployment
from mtool.stages.options import Options, check_options
from mtool.stages.tuned import planned_project, target_and_setup
from mtool.tuning.candidates import shipped, space_of, with_prior
from mtool.tuning.farm.security import FarmAddress
from mtool.tuning.firmware import TrialLimits, TrialSite
from mtool.tuning.measuring import REPEATS, Runs, run_on
from mtool.tuning.search import Goal, Progress, Search, other_builds, ram_bytes
from mtool.tuning.whole import Measured, Whole, best_whole
from mtool.version import __version__

log = logging.getLogger(__name__)

LOG = Path("tuning.jsonl")
MOST = 240
"""The most candidates in one firmware: more make its build slow and a fault in it costly."""
_FEW = 24  # in one firmware, if time is short


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of tuning: each task's measurements, the whole plan, and the log with both."""

    model: str
    target: Target
    setup: Setup
    progress: Progress
    whole: Whole | None
    log: Path

    def chosen(self, key: str) -> str:
        """Return the candidate of a task in the chosen plan; "": there is none."""
        return "" if self.whole is None else self.whole.best.choices.get(key, "")

    def why_not(self, key: str) -> str:
        """Return why the chosen candidate is not the task's fastest; "": it is, or none was measured."""
        best = self.progress.rows[key].best
        return "" if best is None or self.whole is None else self.whole.why_not(key, best.candidate)

    def as_json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return {
            "model": self.model,
            "target": self.target.model_dump(mode="json"),
            "setup": self.setup.model_dump(mode="json"),
            "log": str(self.log),
            "candidates": self.progress.total,
            "tried": self.progress.tried,
            "measured": self.progress.measured,
            "failed": self.progress.failed,
            "firmwares": self.progress.firmwares,
            "drift": self.progress.drift,
            "tasks": [
                {
                    "key": key,
                    "nodes": list(row.space.task.nodes),
                    "label": row.space.task.record.label,
                    "candidates": len(row.space.candidates),
                    "failed": row.failed,
                    "default": {"candidate": row.space.default.text, "median": row.default and row.default.median},
                    "best": row.best and {"candidate": row.best.candidate, "median": row.best.median},
                    "chosen": self.chosen(key),
                    "why_not_best": self.why_not(key),
                }
                for key, row in self.progress.rows.items()
            ],
            "whole": self.whole
            and {
                "median": self.whole.best.median,
                "default_median": self.whole.default.median,
                "gain": self.whole.gain,
                "arena_bytes": self.whole.best.arena_bytes,
                "default_arena_bytes": self.whole.default.arena_bytes,
                "choices": dict(self.whole.best.choices),
            },
        }


@locks.keep_locks()
def tune(
    path: str | Path,
    *,
    board: str | Board,
    output: Path = LOG,
    objective: Objective = "auto",
    trials: checked.Natural = 0,
    minutes: checked.NotNegative = 0.0,
    repeats: checked.Count = REPEATS,
    options: Options | None = None,
    deployment: Deployment = DEFAULT,
    listener: Callable[[Progress], None] | None = None,
    farm: FarmAddress | None = None,
    pareto: bool = False,
    builds: bool = True,
) -> Tuned:
    """Measure the schedules of a model's operators on a board, and append the results to a tuning log.

    Results for this target and setup that are already in the log are not measured again; so an interrupted run
    continues.

    Args:
        path: the ONNX or TFLite model.
        board: a board or its name.
        output: the log.
        objective: what to minimize; "auto": what the board's timer measures.
        trials: the most candidates to measure; 0: all.
        minutes: the most minutes to measure; 0: until all is measured.
        repeats: readings of each candidate, if the timer measures time.
        options: how to compile and which template to use. Nodes with a given schedule, and those that a backend
            computes, stay as they are.
        deployment: the folder for the trials' projects, and the device that runs them.
        listener: called after each change of the progress.
        farm: the board farm that measures; `board` may then be a core ("cortex-m4"). None: one board, on this computer.
        pareto: also measure plans for less arena and less flash, to choose from.
        builds: also try the fastest in other builds: other optimization levels, weights in RAM.

    Raises:
        UsageError: the board does not support the objective, or the log can't be written or is malformed.
        MtoolError: of the failed stage's class, see mtool.errors.
    """
    source, options = Path(path), options or Options()
    if farm is not None and isinstance(board, str):
        from mtool.tuning.farm.search import board_of

        board = board_of(board, farm)
    target_board = boards.get(board) if isinstance(board, str) else board
    unit = unit_of(target_board, objective)
    _check_limits(trials, minutes, repeats)
    if farm is None:
        deployment.check_device(target_board, options)
    if output.exists() and not output.is_file():
        raise UsageError(f"{output} is not a regular file", hint="give the name of a file: -o tuning.jsonl")
    files.check_writable(output, read=[source])
    check_options(target_board, options, deployment.folder)
    with locks.file(output):  # until this function ends
        earlier = tuning_log.read([output]) if output.exists() else Log()
    open_sizes = frontend.run_time_sizes(source, options)
    if open_sizes:
        raise UsageError(
            f"{source.name} has run-time sizes, on which times depend: {', '.join(open_sizes)}",
            hint=f"tune it for one size: --dim {next(iter(open_sizes))}=N",
        )
    target, setup = target_and_setup(target_board, options.template, options.of_template(target_board))
    setup = setup.model_copy(update={"unit": unit})
    if options.schedules:  # impossible ones are refused now, not after the search
        plan_model(source, target_board, replace(options, partial="never"))
    plan, names = plan_model(source, target_board, replace(options, partial="never", schedules={}))
    tasks = tasks_of(plan, names)
    given_choices = _user_choices(tasks, options.schedules)
    to_tune = (task for task in tasks if not {*task.nodes} <= {*options.schedules})
    spaces = [space_of(task, target_of(target_board)) for task in to_tune]
    model = shipped(target_board.cpu) if unit != "instructions" else None
    spaces = [with_prior(space, model) for space in spaces] if model is not None else spaces
    others = other_builds(target_board, target, unit) if builds else ()
    progress = Progress.of((space for space in spaces if others or len(space.candidates) > 1), unit, listener)
    progress.seconds, progress.trials = minutes * 60, trials
    folder = deployment.folder or Path("build") / f"tune-{plan.graph.name}-{target_board.folder_name}"
    site = TrialSite(target_board, _of_project(options, target_board), folder, deployment)
    most = min(MOST, max(_FEW, int(60 * minutes))) if minutes else MOST
    planned = planned_project(target_board, options.template, options.of_template(target_board))
    room = TrialLimits.of(target_board, most, planned.options)
    goal = Goal(trials, minutes * 60, others, ram_bytes(target_board), repeats)
    search = (progress, site, room, target, setup, output, earlier, goal)

    def measure(run: Runs) -> Whole:
        return best_whole(source, options, site, progress, unit, run, pareto=pareto)

    if farm is not None:
        from mtool.tuning.farm.search import tune_on

        whole = tune_on(farm, site, progress, search, measure)
    else:
        with locks.locked(*site.locks()):  # for the whole search
            Search(*search).run()
            whole = measure(run_on(site.open)) if progress.rows else None
    if whole is not None:
        whole = whole.with_choices(given_choices)
        for point in (whole.default, *whole.others) if pareto else ():
            tuning_log.append(output, _record(source.name, whole, point, target, setup, is_point=True))
        tuning_log.append(output, _record(source.name, whole, whole.best, target, setup))
    progress.set_phase("")
    return Tuned(source.name, target, setup, progress, whole, output)


def unit_of(board: Board, objective: Objective) -> Unit:
    """Return the unit of an objective on a board.

    Raises:
        UsageError: the board can't measure it.
    """
    timer: Unit = "ns" if board.timer is None else board.timer.unit
    if objective == "cycles":
        able = [core.cpu for core in cycles.cores_for(board)]
        if board.cpu not in able:
            raise UsageError(f"cycles can't be estimated for {board.name}: {board.cpu} has no table of cycles")
        return "cycles"
    if objective != "auto" and (objective == "time") != (timer == "ns"):
        raise UsageError(
            f"{board.name} can't be tuned for {objective}",
            details=[f"its timer counts {'nanoseconds' if timer == 'ns' else timer}"],
            hint=f"use --objective {'time' if timer == 'ns' else 'instructions'}, or leave it out",
        )
    return timer


def _user_choices(tasks: Sequence[Task], schedules: Choices) -> dict[str, str]:
    """Return the candidates, by key, of the tasks for whose nodes the user chose the same schedule."""
    choices = {}
    for task in tasks:
        texts = {text_of(schedules[node]) if node in schedules else "" for node in task.nodes}
        if len(texts) == 1 and "" not in texts:
            (choices[task.record.key],) = texts
    return choices


def _check_limits(trials: int, minutes: float, repeats: int) -> None:
    if trials < 0 or not 0 <= minutes < float("inf") or repeats < 1:
        raise UsageError(
            "trials and minutes must be at least 0, repeats at least 1",
            details=[f"found trials={trials}, minutes={minutes}, repeats={repeats}"],
        )


def _of_project(options: Options, board: Board) -> Options:
    """Return the options of a trial's project: only those of the template."""
    return Options(
        template=options.template,
        template_options=options.of_template(board),
        trust_template=options.trust_template,
        edits="force",
    )


def _record(
    model: str, whole: Whole, plan: Measured, target: Target, setup: Setup, *, is_point: bool = False
) -> WholePlan:
    key = digest([__version__, target.model_dump(mode="json"), setup.model_dump(mode="json"), whole.model_hash])
    return WholePlan(
        id=new_id(),
        key=key,
        when=now(),
        mtool=__version__,
        target=target,
        setup=setup,
        model=re.sub(r"[\ud800-\udfff]", "\ufffd", model),
        model_hash=whole.model_hash,
        **asdict(plan),
        default_arena_bytes=whole.default.arena_bytes,
        default_times=whole.default.times,
        default_flash_bytes=whole.default.flash_bytes,
        is_point=is_point,
    )
