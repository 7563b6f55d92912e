"""The target and setup of a compilation, as tuning logs distinguish them, and the logs' results for it."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mtool.base import configuration
from mtool.base.errors import UsageError
from mtool.base.escaping import one_line
from mtool.boards import Board
from mtool.compiler.tuned.results import TuningResults
from mtool.manifest import Project

if TYPE_CHECKING:
    from mtool.compiler.tuned.record import Setup, Target

log = logging.getLogger(__name__)

_MOST = 5  # targets listed in a warning


def tuning_results_for(
    board: Board, paths: Sequence[Path], template: str, template_options: Mapping[str, str], *, warns: bool = True
) -> TuningResults:
    """Return the results in tuning logs for a board; empty if there are no logs.

    Args:
        board: the board.
        paths: the logs, or folders of them; none: those in mtool.toml.
        template: the project's template; empty: the board's first.
        template_options: the values of its options, as text.
        warns: whether to warn if the logs have nothing for the board.

    Raises:
        UsageError: a log or mtool.toml is missing or malformed, or the template is unknown.
        BuildError: the board's compiler is not installed; its version has to match that of the measurements.
    """
    logs = tuple(paths) or configuration.load().tuned
    if not logs:
        return TuningResults()
    from mtool.compiler.tuned import record as tuning_log
    from mtool.compiler.tuned.summary import without_points

    logs, point = without_points(logs)
    records = tuning_log.read(logs)
    target, setup = target_and_setup(board, template, template_options)
    results = TuningResults.of(records, target, setup, point)
    if point and not results.whole:
        raise UsageError(
            f"{', '.join(map(str, logs))} has no point {point} for {board.name} with {target.compiler}",
            hint="list the points: mtool tune --show LOG --pareto; measure more: mtool tune MODEL --pareto",
        )
    if warns and not results.ranked and not results.whole:
        elsewhere = ((record.target, record.setup) for record in (*records.measurements, *records.plans))
        others = sorted({_elsewhere(*record, target, setup) for record in elsewhere})
        log.warning(
            "%s: no measurements for %s with %s%s",
            ", ".join(map(str, logs)), board.name, target.compiler,
            f"; there are some for {one_line(', '.join(others[:_MOST]))}" if others else "",
        )  # fmt: skip
    return results


def _elsewhere(measured: "Target", its_setup: "Setup", target: "Target", setup: "Setup") -> str:
    """Return where something was measured; for the same board and compiler, with the differences."""
    where = f"{its_setup.board} with {measured.compiler}"
    if (its_setup.board, measured.compiler) != (setup.board, target.compiler):
        return where
    flags = sorted({*measured.flags} - {*target.flags}) or ["fewer flags"]
    differences = (
        " ".join(flags) if measured.flags != target.flags else "",
        f"another core, {measured.cpu}" if measured.cpu != target.cpu else "",
        f"template {its_setup.template}" if its_setup.template != setup.template else "",
        f"at {its_setup.clock_hz / 1e6:g} MHz" if its_setup.clock_hz != setup.clock_hz else "",
        "other memories" if its_setup.memories != setup.memories else "",
    )
    return f"{where} ({', '.join(filter(None, differences)) or 'other features'})"


def planned_project(board: Board, template: str, template_options: Mapping[str, str]) -> Project:
    """Return the project that a template and its options would make, without its build hash and firmware.

    Raises:
        UsageError: the template or an option is unknown.
    """
    from mtool import project

    chosen, values = project.choose(board, template, template_options)
    return Project(
        template=chosen.name,
        builder=chosen.builder,
        transport=chosen.transport,
        board=board.placed_by(chosen.name),
        build_hash="",
        options={name: str(value) for name, value in values.items()},
        firmware={},
        model=chosen.folders.model,
    )


def target_and_setup(board: Board, template: str, template_options: Mapping[str, str]) -> "tuple[Target, Setup]":
    """Return the target and the setup of the project that a template and its options would make.

    Raises:
        UsageError: the template or an option is unknown.
        BuildError: the compiler is not installed.
    """
    from mtool.compiler.tuned.record import setup_of, target_of
    from mtool.device.build.build import BUILDERS

    planned = planned_project(board, template, template_options)
    toolchain = BUILDERS[planned.builder].compiler(Path.cwd(), planned)
    compiler = f"{toolchain.toolchain.name} {toolchain.version}"
    return target_of(board, compiler, planned.options), setup_of(board, planned.template)
