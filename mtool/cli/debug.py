"""`mtool debug`: gdb at an operator."""

import shlex
import sys
import tempfile
from pathlib import Path
from typing import Annotated

from mtool.base.errors import BuildError
from mtool.cli import parameters
from mtool.cli.output import Output
from mtool.cli.parameters import option


def debug(
    out: Output,
    model: parameters.ModelOrProject,
    board: parameters.BoardOrProjects = "",
    operator: Annotated[
        str,
        option(
            "--operator NUMBER|NAME",
            "Where to stop: an operator, or a node of the model; default: the one that faults, or the first.",
        ),
    ] = "",
    input: Annotated[Path | None, option("--input -i X.npz|X.npy", "The sample; default: --fill.")] = None,
    fill: parameters.Fill = "random",
    seed: parameters.Seed = 0,
    server: Annotated[
        str,
        option(
            "--server RUNNER|HOST:PORT",
            "Of a board: the tool that serves gdb, or a gdb server that runs already; default: the board's first.",
        ),
    ] = "",
    gdb: Annotated[str, option("--gdb PROGRAM", "The gdb; default: that of the toolchain.")] = "",
    ex: Annotated[
        list[str] | None, option("--ex COMMAND", "A command for gdb, once it has stopped; may be repeated.")
    ] = None,
    batch: Annotated[bool, option("--batch", "End gdb after the commands of --ex.")] = False,
    *,
    options: parameters.ProjectOptions,
    deployment: parameters.ProjectDeployment,
    dry_run: parameters.DryRun = False,
) -> None:
    """Stop an inference under gdb, at the operator that faults or one that is named.

    The inference is run once to see whether it faults; then QEMU, or the gdb server of the board's probe, runs it again
    with the same inputs, and gdb stops where the operator begins, and at the fault itself.
    """
    from mtool.commands import debugging
    from mtool.commands.execution import built_with_inputs
    from mtool.stages.job import Job

    job = Job(model, board, options, deployment, fill=fill, seed=seed)
    asked = debugging.DebugOptions(operator, gdb, server, ex or (), batch or out.as_json)
    lines: list[str] = []
    if dry_run and debugging.is_cabled(job):
        chosen, lines = debugging.planned(job, asked)
    else:
        prepared, (sample, *_), _ = built_with_inputs(job, input)
        chosen = debugging.plan(prepared, sample, asked, deployment)
    stop, fault = chosen.stop.operator, chosen.stop.fault
    out.note(*(fault.lines() if fault is not None else ()), f"stop at {chosen.stop.describe()}")
    commands = [shlex.join(argv) for argv in (chosen.server, chosen.gdb) if argv]
    out.result(
        {
            "operator": {"index": stop.index, "name": stop.name, "function": stop.function},
            "fault": None if fault is None else fault.what,
            "commands": commands,
        }
    )
    if dry_run:
        out.text(*lines, *commands)
        return
    with tempfile.TemporaryDirectory(prefix="mtool-debug-") as folder:
        output = sys.stderr.fileno() if out.as_json else None
        code = debugging.debug(chosen, prepared, sample, Path(folder), deployment, output=output)
    if code:
        raise BuildError(f"{Path(chosen.gdb[0]).name} ended with exit code {code}")
