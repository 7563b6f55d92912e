"""`mtool bench`: what a model costs on a board."""

from typing import Annotated

import typer

from mtool import workflow
from mtool.cli import parameters
from mtool.cli.output import Output, table
from mtool.session.layers import Profile

_BAR = 20  # columns of the longest bar


def bench(
    out: Output,
    model: parameters.ModelFile,
    board: parameters.BoardName = parameters.HOST,
    number: Annotated[int, typer.Option("--number", min=1, help="Inferences between two readings of the timer.")] = 1,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="Readings, of which the median counts.")] = 3,
    min_repeat_ms: Annotated[
        float, typer.Option("--min-repeat-ms", min=0, help="How long a reading takes at least; --number grows for it.")
    ] = 0.0,
    layers: Annotated[bool, typer.Option("--layers", help="Each operator by itself.")] = False,
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
    chosen = parameters.options(io, dim, template, option, const)
    if layers:
        profile = workflow.bench_layers(
            model, board=board, repeat=repeat, folder=output_dir, options=chosen, port=port, probe=probe
        )
        _print_layers(out, profile, board)
        return
    cost = workflow.bench(
        model,
        board=board,
        number=number,
        repeat=repeat,
        min_repeat_ms=min_repeat_ms,
        folder=output_dir,
        options=chosen,
        port=port,
        probe=probe,
    )
    out.result(cost.as_json())
    out.text(table((cost.model, cost.board), workflow.comparison([cost])))


def _print_layers(out: Output, profile: Profile, board: str) -> None:
    out.result({"board": board, **profile.as_json()})
    most = max((operator.median for operator in profile.operators), default=0.0) or 1.0
    rows = [
        [
            str(operator.index),
            operator.label,
            operator.shape,
            operator.schedule,
            f"{operator.median:,.0f}",
            "" if operator.per_mac is None else f"{operator.per_mac:.2f}",
            f"{profile.share(operator):.1%}",
            f"{operator.bytes:,}",
            "█" * round(_BAR * operator.median / most),
        ]
        for operator in profile.operators
    ]
    heads = ("#", "operator", "shape", "schedule", profile.unit, "/MAC", "share", "bytes", "")
    out.text(table(heads, rows, right=(0, 4, 5, 6, 7)))
    out.text(f"all operators {profile.total:,.0f}, the model as a whole {profile.whole:,.0f} {profile.unit}")
