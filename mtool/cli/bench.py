"""`mtool bench`: what a model costs on a board."""

from typing import Annotated

import typer

from mtool import workflow
from mtool.cli import parameters
from mtool.cli.output import Output, table


def bench(
    out: Output,
    model: parameters.ModelFile,
    board: parameters.BoardName = parameters.HOST,
    number: Annotated[int, typer.Option("--number", min=1, help="Inferences between two readings of the timer.")] = 1,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Readings, of which the median counts.")] = 3,
    output_dir: parameters.OutputDir = None,
    io: parameters.Io = "arena",
    dim: parameters.Dims = None,
    const: parameters.Constants = None,
    template: parameters.TemplateName = "",
    option: parameters.TemplateOptions = None,
    port: parameters.Port = "",
    probe: parameters.Probe = "",
) -> None:
    """Measure instructions (or time), flash, RAM, stack."""
    cost = workflow.bench(
        model,
        board=board,
        number=number,
        repeat=repeat,
        folder=output_dir,
        options=parameters.options(io, dim, template, option, const),
        port=port,
        probe=probe,
    )
    out.result(cost.as_json())
    out.text(table((cost.model, cost.board), workflow.comparison([cost])))
