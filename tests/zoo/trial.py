"""Compile, build and run a model on boards, and compare it with LiteRT or onnxruntime as `mtool verify` does."""

import argparse
import functools
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtool import boards, commands
from mtool.base.errors import FitError, MismatchError, ModelError, MtoolError
from mtool.base.option_values import Rounding
from mtool.commands.cost import Cost, cost_at
from mtool.device.session.bench import run_measured
from mtool.stages import options
from mtool.stages.building import BuiltProject
from mtool.stages.compiling import CompiledModel
from mtool.stages.deployment import executor_of
from mtool.stages.options import Options
from mtool.stages.samples import Sample, seeded
from mtool.verification import reference
from mtool.verification.comparison import Report
from mtool.verification.verification import judge
from tests.zoo.results import Found, Row

SAMPLES = 3
STEPS = 60  # where the model has states
EMULATED_MACS = 100_000_000  # of all samples in an emulator, beyond the first
MOST_MACS = 600_000_000  # of one sample in the first emulator; what takes more is built, and not run
MOST_MACS_ELSEWHERE = 20_000_000  # in the others, where one sample is run, or a few steps
STEPS_ELSEWHERE = 5
HOST = "host"


def options_of(words: str, rounding: Rounding) -> Options:
    """Return the options of a model that are written as on the command line: --dim, --const, --state, --max.

    Raises:
        UsageError: one is not written as it should be.
    """
    parser = argparse.ArgumentParser(prog="options", add_help=False)
    for name in ("--dim", "--const", "--state", "--max"):
        parser.add_argument(name, action="append")
    given = parser.parse_args(shlex.split(words))
    return options.parse(rounding=rounding, dim=given.dim, const=given.const, state=given.state, maxima=given.max)


def suggested(error: ModelError) -> str:
    """Return the --dim options that an error suggests, where it has sizes for them; empty: it has none."""
    words = error.hint.removeprefix("give ").partition(";")[0]
    if not error.hint.startswith("give --dim "):
        return ""
    sizes = shlex.split(words)[1::2]
    return words if all(size.rpartition("=")[2].isdecimal() for size in sizes) else ""


def tried(path: Path, rounding: Rounding, names: Sequence[str], folder: Path, words: str = "") -> Row:
    """Return how a model fares in one rounding.

    Args:
        path: the model.
        rounding: of its integers.
        names: the boards, the host first.
        folder: an empty one, for the projects.
        words: options of the model, as on the command line.
    """
    try:
        options = options_of(words, rounding)
        try:
            model = commands.compile(path, board=names[0], options=options)
        except ModelError as refused:
            dims = suggested(refused)
            if not dims:
                raise
            words = f"{words} {dims}".strip()
            options = options_of(words, rounding)
            model = commands.compile(path, board=names[0], options=options)
    except MtoolError as refused:
        return Row(refused=refused.what, details=tuple(refused.details[:8]), options=words)
    tensors = model.manifest
    samples = seeded(tensors.inputs, count=STEPS if tensors.states else SAMPLES, seed=0)
    try:
        (against, expected), missing = reference.computed_by(path, samples, options=options), ""
    except MtoolError as refused:
        against, expected, missing = (
            "",
            [],
            "; ".join(line.strip() for line in refused.lines()[:2]).replace(str(path), path.name),
        )
    found = {}
    figures_of = next((name for name in names if name != HOST), "")
    for name in names:
        few, most = samples, tensors.macs
        if boards.get(name).emulator:
            few, most = samples[: max(1, EMULATED_MACS // max(1, tensors.macs))], MOST_MACS
            if name != figures_of:
                few, most = samples[: STEPS_ELSEWHERE if tensors.states else 1], MOST_MACS_ELSEWHERE
        try:
            compiled = model if name == names[0] else commands.compile(path, board=name, options=options)
            if tensors.macs > most:
                commands.build_model(compiled, folder / name, kinds=(commands.HOST_DRIVEN,))
                found[name] = Found("built", f"{tensors.macs:,} MACs")
            else:
                is_first = name in (HOST, figures_of)
                found[name] = _on_board(
                    compiled, few, expected[: len(few)], against, missing, folder / name, has_figures=is_first
                )
        except FitError as error:
            found[name] = Found("too large", "; ".join(" ".join(line.split()) for line in error.details))
        except MtoolError as error:
            found[name] = Found("failed", "; ".join([error.lines()[0], *error.details[-1:]]))
    return Row(
        options=words, macs=tensors.macs, states=len(tensors.states), operators=len(tensors.operators), boards=found
    )


def _on_board(
    model: CompiledModel,
    samples: Sequence[Sample],
    expected: Sequence[Sample],
    against: str,
    missing: str,
    folder: Path,
    *,
    has_figures: bool,
) -> Found:
    alone = has_figures and model.board.name != HOST
    kinds = commands.ALL_KINDS if alone else (commands.HOST_DRIVEN,)
    prepared = commands.build_model(model, folder, kinds=kinds)
    deployment = commands.Deployment(folder)
    with deployment.open(prepared) as device:
        infer = executor_of(device, folder)
        if has_figures:
            outputs = [infer(sample) for sample in samples[:-1]]
            last, speed = run_measured(device, samples[-1])
            outputs.append(last)
            figures = _figures(cost_at(prepared, speed), prepared)
        else:
            outputs, figures = [infer(sample) for sample in samples], {}
    if missing:
        return Found("not compared", missing, len(samples), **figures)

    try:
        opened = functools.partial(deployment.open, prepared)
        report = judge(model, samples, expected, outputs, against=against, opened=opened)
    except MismatchError as error:  # of shapes
        return Found("differs", error.lines()[0], len(samples), **figures)
    outcome, note = verdict(report)
    return Found(outcome, note, len(samples), **figures)


def _figures(cost: Cost, prepared: BuiltProject) -> dict[str, Any]:
    return {
        "instructions": cost.instructions,
        "arena_bytes": cost.arena_bytes,
        "code_bytes": cost.flash_code_bytes,
        "const_bytes": cost.flash_const_bytes,
        "stack_bytes": cost.stack_bytes,
    }


def verdict(report: Report) -> tuple[str, str]:
    """Return how outputs compare, in a word, and by how much they differ."""
    differing = sum(output.differing for output in report.outputs)
    if not differing:
        return "equal", ""
    wrong = [output for output in report.outputs if not output.within]
    worst = max(wrong or report.outputs, key=lambda output: (output.max_abs is None, output.max_abs or 0.0))
    if worst.max_lsb is not None:
        most = f"{worst.max_lsb} LSB"
    else:
        most = f"{worst.max_abs:.1e}" if worst.max_abs is not None else "what is not finite"
    elements = sum(output.elements for output in report.outputs)
    effect = f", {worst.allowed}" if worst.allowed.startswith("the effect of ") else ""
    return ("differs" if wrong else "within"), f"{differing:,} of {elements:,} by {most} at most{effect}"
