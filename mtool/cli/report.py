"""`mtool report`: a model on a board on one page."""

from pathlib import Path
from typing import Annotated

import typer

from mtool import files, workflow
from mtool.cli import parameters
from mtool.cli.output import Output
from mtool.workflow import Place


def report(
    out: Output,
    model: parameters.ModelFile,
    board: parameters.BoardName = parameters.HOST,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.html", help="Where to write the page.")
    ] = Path("report.html"),
    samples: Annotated[int, typer.Option("--samples", min=1, help="Inputs to compare the operators on.")] = 4,
    seed: parameters.Seed = 0,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Inferences, of which the median counts.")] = 3,
    output_dir: parameters.OutputDir = None,
    options: parameters.ProjectOptions = parameters.DEFAULTS,
    port: parameters.Port = "",
    probe: parameters.Probe = "",
) -> None:
    """Write a page: the arena over time, time and flash by operator, numeric differences, which boards it fits."""
    found = workflow.report(
        model,
        board=board,
        samples=samples,
        seed=seed,
        repeat=repeat,
        options=options,
        place=Place(output_dir, port, probe),
    )
    files.write(output, found.as_html().encode(), follow=True)
    out.result({"page": str(output), **found.as_json()})
    out.text(str(output))
