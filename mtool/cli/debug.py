"""`mtool debug`: gdb at an operator."""

import shlex
import sys
import tempfile
from pathlib import Path

from mtool.base.errors import BuildError
from mtool.cli import parameters
from mtool.cli.output import Output


def debug(
    out: Output,
    model: Path,
    board: str = "",
    operator: str = "",
    input: Path | None = None,
    fill: str = "random",
    seed: int = 0,
    server: str = "",
    gdb: str = "",
    ex: list[str] | None = None,
    batch: bool = False,
    *,
    options: parameters.ProjectOptions,
    deployment: parameters.ProjectDeployment,
    dry_run: bool = False,
) -> None:
    """Stop an inference under gdb, at the operator that faults or at one that you name.

    The inference is first run once to see whether it faults. Then QEMU, or the gdb server of the board's probe, runs it
    again with the same inputs, and gdb stops where the operator begins, and at the fault itself.
    """
    from mtool.commands import debugging
    from mtool.commands.execution import built_with_inputs
    from mtool.stages.job import Job

    job = Job(model, board, options, deployment, fill=fill, seed=seed)
    debug_options = debugging.DebugOptions(operator, gdb, server, ex or (), batch or out.as_json)
    lines: list[str] = []
    if dry_run and debugging.is_cabled(job):
        plan, lines = debugging.planned(job, debug_options)
    else:
        prepared, (sample, *_), _ = built_with_inputs(job, input)
        plan = debugging.plan(prepared, sample, debug_options, deployment)
    stop, fault = plan.stop.operator, plan.stop.fault
    out.note(*(fault.lines() if fault is not None else ()), f"stop at {plan.stop.describe()}")
    commands = [shlex.join(argv) for argv in (plan.server, plan.gdb) if argv]
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
        code = debugging.debug(plan, prepared, sample, Path(folder), deployment, output=output)
    if code:
        raise BuildError(f"{Path(plan.gdb[0]).name} ended with exit code {code}")
