"""`mtool flash`: a model on the board on the desk."""

from typing import Annotated

import typer

from mtool import workflow
from mtool.cli import completion, parameters
from mtool.cli.output import Output


def flash(
    out: Output,
    model: parameters.ModelFile,
    board: parameters.BoardName,
    runner: Annotated[
        str,
        typer.Option(
            "--runner",
            metavar="TOOL",
            help="The flash tool; default: the board's first.",
            show_default=False,
            autocompletion=completion.runners,
        ),
    ] = "",
    *,
    options: parameters.ProjectOptions,
    deployment: parameters.FlashDeployment,
    dry_run: parameters.DryRun = False,
) -> None:
    """Compile, build and flash a model, and run it once.

    Without MODEL, in a project of yours (docs/own-project.md): its program is flashed, which runs by itself.

    Does only what is stale. Ends with exit code 6 if no board is attached or several match, 7 if the flash fails, 8 if
    the board does not answer, 9 if its outputs differ from onnxruntime's. --dry-run needs no board: a port that it
    does not know reads PORT.
    """
    if options.program is not None and not dry_run:
        from mtool.workflow import own_program

        flashed = own_program.flash_program(model, board=board, runner=runner, options=options, deployment=deployment)
        out.result({"board": board, "folder": str(flashed.prepared.folder), "port": flashed.port or None})
        out.text("flashed: the program runs by itself" + (f", its console is {flashed.port}" if flashed.port else ""))
        return
    if dry_run:
        kind = "host_driven" if options.program is None else "standalone"
        lines = workflow.flash_plan(
            model, board=board, runner=runner, options=options, deployment=deployment, kind=kind
        )
        out.result({"commands": lines})
        for line in lines:
            out.text(line)
        return
    ready = workflow.flash_model(model, board=board, runner=runner, options=options, deployment=deployment)
    described = ready.prepared.manifest
    assert described.project is not None
    out.result(
        {
            "board": ready.prepared.board.name,
            "folder": str(ready.prepared.folder),
            "port": ready.device.port if ready.device else None,
            "probe": ready.device.probe if ready.device else None,
            "runner": ready.runner,
            "verified": ready.verified,
            "build_hash": described.project.build_hash,
            "model_hash": described.model_hash,
            "smoke": {
                "time": ready.smoke.time,
                "unit": ready.smoke.unit,
                "compared_with": ready.smoke.compared_with or None,
            },
        }
    )
    out.text(f"ready: mtool run, verify, bench --board {ready.prepared.board.name}")
