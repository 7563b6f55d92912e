"""The commands that `mtool debug` would run for a board on a cable, which need not be there."""

from collections.abc import Sequence
from pathlib import Path

from mtool import boards, manifest, project
from mtool.base.errors import UsageError
from mtool.boards import Board
from mtool.commands import debugging
from mtool.commands.debugging import Plan
from mtool.commands.execution import project_of
from mtool.device.flash import flashing, gdb_servers, ports
from mtool.device.transport.emulator import free_port
from mtool.stages.building import HOST_DRIVEN, rendered_plan
from mtool.stages.compiling import compile
from mtool.stages.deployment import Deployment
from mtool.stages.options import Options


def is_cabled(path: Path, board: str | Board, options: Options) -> bool:
    """Tell whether what is debugged runs on a board that has to be attached: it is not this computer, nor emulated."""
    if path.is_dir():
        described = manifest.load(path).project
        return described is not None and described.transport == "serial" and described.board.emulator is None
    target = boards.get(board or "host") if isinstance(board, str) else board
    if target.emulator is not None or not (options.template or target.templates):
        return False
    template, _ = project.choose(target, options.template, options.template_options)
    return template.transport == "serial"


def planned(
    path: Path,
    board: str | Board,
    options: Options,
    deployment: Deployment,
    *,
    operator: str = "",
    gdb: str = "",
    server: str = "",
    commands: Sequence[str] = (),
    batch: bool = False,
) -> tuple[Plan, list[str]]:
    """Return what would be run on a board, and the commands before it; nothing is written, run or asked of a board.

    The arguments are those of `debugging.plan`. Whether an inference faults is not known, so that gdb stops at the
    operator that is named, or at the first.

    Raises:
        UsageError: there is no such operator, or nothing serves gdb for the board.
        MtoolError: the model can't be compiled.
    """
    if path.is_dir():
        project_of(path, board, options, deployment)
        folder, described, before = path, manifest.load(path), list[str]()
    else:
        model = compile(path, board=board or "host", options=options, folder=deployment.folder)
        tree, described = model.render_project()
        folder = deployment.folder or model.default_folder()
        before = rendered_plan(model, tree, described, deployment.folder, kinds=(HOST_DRIVEN,))
    on = described.project
    if on is None:
        raise UsageError(f"{folder} holds a compiled model, not a project", hint="make one with: mtool build MODEL")
    wanted = debugging.find(described, operator) if operator else None
    address, serving = server, list[str]()
    if ":" not in server:
        runner, port = gdb_servers.choose(on.board, server, template=on.template), free_port()
        device = ports.resolve(on.board, ports.wanted(deployment.port, deployment.probe))
        tool = flashing.RUNNERS[runner]
        probe = device.probe if device else deployment.probe
        job = flashing.job_of(folder.absolute(), on, tool, kind=HOST_DRIVEN, probe=probe)
        address, serving = f"127.0.0.1:{port}", [*gdb_servers.argv(runner, job, port)]
    firmware = manifest.firmware_of(folder, on, HOST_DRIVEN).absolute()
    stop = debugging.stop_at(described, wanted, None)
    program = debugging.gdb_of(on.board.toolchain, gdb, needed=False)
    argv = debugging.gdb_argv(program, firmware, stop, address, commands, batch=batch)
    return Plan(stop, tuple(argv), tuple(serving), drives=True), before
