"""`mtool flash`: a model on the board on the desk."""

from typing import Annotated, Any

from mtool import commands
from mtool.cli import parameters
from mtool.cli.output import Output
from mtool.cli.parameters import option


def flash(
    out: Output,
    models: parameters.ModelFiles,
    board: parameters.BoardName,
    runner: Annotated[
        str,
        option(
            "--runner TOOL", "The flash tool; default: the board's first.", autocompletion=parameters.complete_runners
        ),
    ] = "",
    *,
    options: parameters.FirmwareOptions,
    deployment: parameters.FlashDeployment,
    dry_run: parameters.DryRun = False,
) -> None:
    """Compile, build and flash a model, and run it once.

    Several models have one firmware, and each of them is run.
    Without MODEL, in a project of yours (docs/own-project.md): its program is flashed, which runs by itself.

    Does only what is stale. Ends with exit code 6 if no board is attached or several match, 7 if the flash fails, 8 if
    the board does not answer, 9 if its outputs differ from onnxruntime's. --dry-run needs no board: a port that it
    does not know reads PORT.
    """
    model, chosen = models[0], options[0]
    if chosen.program is not None and not dry_run:
        from mtool.commands import flashing

        flashed = flashing.flash_program(model, board=board, runner=runner, options=chosen, deployment=deployment)
        out.result({"board": board, "folder": str(flashed.prepared.folder), "port": flashed.port or None})
        out.text("flashed: the program runs by itself" + (f", its console is {flashed.port}" if flashed.port else ""))
        return
    if len(models) > 1:
        deployment = deployment.with_models(models, board=board, options=options)
    if dry_run:
        kind = "host_driven" if chosen.program is None else "standalone"
        lines = commands.flash_plan(model, board=board, runner=runner, options=chosen, deployment=deployment, kind=kind)
        out.result({"commands": lines})
        for line in lines:
            out.text(line)
        return
    ready = commands.flash_model(model, board=board, runner=runner, options=chosen, deployment=deployment)
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
            "smoke": _smoke(ready.smoke),
            "models": [{"name": one.model, "smoke": _smoke(one)} for one in ready.smokes],
        }
    )
    out.text(f"ready: mtool run, verify, bench --board {ready.prepared.board.name}")


def _smoke(found: "commands.SmokeRun") -> dict[str, Any]:
    return {"time": found.time, "unit": found.unit, "compared_with": found.compared_with or None}
