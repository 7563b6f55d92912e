"""`mtool flash`: a model on an attached board."""

from pathlib import Path

from mtool.cli import parameters
from mtool.cli.output import Output


def flash(
    out: Output,
    models: list[Path],
    board: str,
    runner: str = "",
    *,
    options: parameters.FirmwareOptions,
    deployment: parameters.FlashDeployment,
    dry_run: bool = False,
) -> None:
    """Compile, build and flash a model, and run it once.

    Several models share one firmware, and each of them is run.
    Without MODEL, in a project of yours (docs/own-project.md): its program is flashed, which runs by itself.

    Repeats only the steps that are out of date. Ends with exit code 6 if no board is attached or several match, 7 if
    flashing fails, 8 if the board does not answer, 9 if its outputs differ from onnxruntime's. --dry-run needs no
    board: a port that is not known is written as PORT.
    """
    from mtool.commands import flashing
    from mtool.stages.job import Job

    first = options[0]
    if len(models) > 1:
        deployment = deployment.with_models(models, board=board, options=options)
    job = Job(models[0], board, first, deployment)
    if first.program is not None and not dry_run:
        flashed = flashing.flash_program(job, runner)
        out.result({"board": board, "folder": str(flashed.prepared.folder), "port": flashed.port or None})
        out.text("flashed: the program runs by itself" + (f", its console is {flashed.port}" if flashed.port else ""))
        return
    if dry_run:
        lines = flashing.flash_plan(job, runner, kind="host_driven" if first.program is None else "standalone")
        out.result({"commands": lines})
        out.text(*lines)
        return
    ready = flashing.flash_model(job.path, board=board, runner=runner, options=first, deployment=deployment)
    prepared, device = ready.prepared, ready.device
    smokes = [
        {"name": one.model, "smoke": {"time": one.time, "unit": one.unit, "compared_with": one.compared_with or None}}
        for one in ready.smokes
    ]
    out.result(
        {
            "board": prepared.board.name,
            "folder": str(prepared.folder),
            "port": device.port if device else None,
            "probe": device.probe if device else None,
            "runner": ready.runner,
            "verified": ready.verified,
            "build_hash": prepared.manifest.in_project.build_hash,
            "model_hash": prepared.manifest.model_hash,
            "smoke": smokes[0]["smoke"],
            "models": smokes,
        }
    )
    out.text(f"ready: mtool run, verify, bench --board {prepared.board.name}")
