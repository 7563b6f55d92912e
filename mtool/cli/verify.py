"""`mtool verify`: a model's outputs on a board against a reference."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mtool import commands
from mtool.base.escaping import short_name
from mtool.base.plural import count
from mtool.cli import parameters
from mtool.cli.output import Output, table
from mtool.stages.formatting import samples as samples_of
from mtool.stages.formatting import share

if TYPE_CHECKING:
    from mtool.verification.comparison import Difference, Report
    from mtool.verification.layers import LayerComparison, LayerReport

_BAR = 40  # columns of the longest bar of a histogram


def verify(
    out: Output,
    model: Path,
    board: str = parameters.HOST,
    golden: Path | None = None,
    samples: int = 4,
    seed: int = 0,
    lsb: int | None = None,
    layers: bool = False,
    atol: float | None = None,
    rtol: float | None = None,
    *,
    on: Path | None = None,
    options: parameters.ProjectOptions,
    deployment: parameters.ProjectDeployment,
) -> None:
    """Compare a model's outputs with a reference.

    The reference is a golden file, or onnxruntime, or LiteRT for a .tflite file. Ends with exit code 9 if they differ
    by more than the tolerance. With --layers, each operator is compared with the model's own tensors, and then the
    outputs with the golden file's, if there is one.
    """
    from mtool.stages.job import board_of, own_firmware
    from mtool.verification.layers import default_tolerance

    tolerance = default_tolerance(model, options.rounding, options.backend_steps)
    tolerance = dataclasses.replace(tolerance, atol=atol, rtol=rtol)
    if lsb is not None:
        tolerance = dataclasses.replace(tolerance, lsb=lsb, of_backends=0, ties=False)
    on = on or own_firmware(model, deployment)
    if on is not None:
        board = board_of(on, board)
    compare: Callable[..., Report | LayerReport] = commands.verify_layers if layers else commands.verify
    report = compare(
        model,
        board=board,
        golden=golden,
        tolerance=tolerance,
        samples=samples,
        seed=seed,
        options=options,
        deployment=deployment,
        on=on,
    )
    out.result({"board": board, **report.as_json()})
    summary = ""
    if not isinstance(report, commands.LayerReport):
        whole: Report | None = report
    else:
        rows = list(_rows(report.layers))
        out.text(table(("#", "operator", "shape", "schedule", "against the model"), rows, right=(0,)))
        whole, summary = report.outputs, report.summary()
    if whole is not None:
        _print(out, whole)
    report.check()
    if summary:
        out.text(summary)
    if whole is not None:
        but = f", but for {count(whole.ties, 'tie')}, halfway between two steps" if whole.ties else ""
        over = samples_of(whole.samples, sequence=whole.sequence)
        out.text(f"{model.name} on {board} matches {whole.reference} over {over}{but}")


def _rows(layers: Sequence["LayerComparison"]) -> Iterator[list[str]]:
    """Yield a row for each result; an operator with several has its label in the first row, and a name in each."""
    for operator, group in itertools.groupby(layers, lambda layer: layer.operator):
        results = list(group)
        head = [str(operator.index), operator.label, operator.shape, operator.by]
        for number, layer in enumerate(results):
            name = f"{short_name(layer.tensor)}: " if len(results) > 1 else ""
            difference = layer.difference
            if difference is None:
                verdict = "not in the model"
            elif difference.differing == 0:
                verdict = "equal" + (f" but for {count(layer.ties, 'tie')}" if layer.ties else "")
            else:
                some = share(difference.differing, difference.elements)
                kind = "within" if difference.within else "DIFFERS"
                verdict = f"{kind}: {some} of the elements, {difference.most}"
            yield [*(["", "", "", ""] if number else head), name + verdict]


def _print(out: Output, report: "Report") -> None:
    for output in report.outputs:
        verdict = "equal" if output.differing == 0 else "within" if output.within else "DIFFERS"
        out.text(f"{short_name(output.name)}   {verdict}")
        _print_output(out, output, samples_of(report.samples, sequence=report.sequence))


def _print_output(out: Output, output: "Difference", over: str) -> None:
    if output.differing == 0:
        out.text(f"  {output.elements:,} elements in {over}, all equal")
        return
    fraction = share(output.differing, output.elements)
    out.text(f"  {output.differing:,} of {output.elements:,} elements differ ({fraction}), {output.most}")
    out.text(f"  allowed: {output.allowed}")
    most = max((count for _, count in output.histogram), default=1)
    rows = [[f"  {label}", f"{count:,}", "█" * max(1, _BAR * count // most)] for label, count in output.histogram]
    out.text(table(("", "", ""), rows, right=(1,)))
