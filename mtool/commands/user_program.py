"""A user's own program: the standalone firmware of a project of theirs, run or flashed. No host drives it."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mtool import boards, project
from mtool.base import locks
from mtool.base.errors import BoardError, CommunicationError, NoAnswerError
from mtool.boards import Board
from mtool.commands.flashing import find_device, flash_job, runner_of, template_of
from mtool.device import flash
from mtool.device.session import opening
from mtool.device.transport.base import Transport
from mtool.stages.building import STANDALONE, Prepared, build_model
from mtool.stages.deployment import DEFAULT, Deployment
from mtool.stages.options import Options

log = logging.getLogger(__name__)

_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Flashed:
    """A program that a board has: what flashed it, and at which port its console may be."""

    prepared: Prepared
    runner: str
    port: str


@dataclass(frozen=True, slots=True)
class Opened:
    """A program that runs, and the channel to it."""

    prepared: Prepared
    transport: Transport


@contextmanager
def open_program(
    path: str | Path, *, board: str | Board, options: Options, deployment: Deployment = DEFAULT
) -> Iterator[Opened]:
    """Build a user's program that speaks through mt_port.h, start it (or flash it), and open the channel to it.

    Raises:
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    target = boards.get(board) if isinstance(board, str) else board
    transport_of = project.choose(target, options.template, {})[0].transport
    port, probe = deployment.port, deployment.probe
    if port or probe or (transport_of == "serial" and target.emulator is None):
        flashed = flash_program(path, board=target, options=options, deployment=deployment)
        prepared, port = flashed.prepared, port or flashed.port
    else:
        prepared = prepare_program(path, board=target, options=options, deployment=deployment)
    with opening.open_transport(prepared.folder, port=port, probe=probe, kind=STANDALONE) as transport:
        yield Opened(prepared, transport)


def prepare_program(
    path: str | Path, *, board: str | Board, options: Options, deployment: Deployment = DEFAULT
) -> Prepared:
    """Compile the model and build the program around it.

    Raises:
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    model = deployment.compile(path, board=board, options=options)
    return build_model(model, deployment.folder, kinds=(STANDALONE,))


@locks.keep_locks()
def run_program(
    path: str | Path,
    *,
    board: str | Board,
    options: Options,
    deployment: Deployment = DEFAULT,
    tell: Callable[[bytes], None],
    limit_s: float | None = None,
) -> None:
    """Build a user's program and run it, on this computer or in the board's emulator, until it ends.

    Args:
        path: the model.
        board: a board or its name.
        options: with the program.
        deployment: the project folder.
        tell: is given what the program says, as it comes.
        limit_s: how long it may take; None: as long as it likes.

    Raises:
        BoardError: the board is not emulated: the program runs by itself once it is flashed.
        DeviceError: the program ended with a fault.
        CommunicationError: it ended with an exit status that is not 0.
        NoAnswerError: it has not come to its end.
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    target = boards.get(board) if isinstance(board, str) else board
    prepared = prepare_program(path, board=target, options=options, deployment=deployment)
    project = prepared.manifest.project
    assert project is not None
    if project.transport == "serial" and target.emulator is None:
        raise BoardError(
            f"{target.name} is not emulated, so its program can't be run here",
            hint="flash it, and it runs by itself: mtool flash",
        )
    with opening.open_transport(prepared.folder, kind=STANDALONE) as transport:
        _listen(transport, tell, limit_s)


def _listen(transport: Transport, tell: Callable[[bytes], None], limit_s: float | None) -> None:
    end = None if limit_s is None else time.monotonic() + limit_s
    while end is None or time.monotonic() < end:
        try:
            data = transport.read(timeout_s=_LOOK_S)
        except CommunicationError as ended:
            if "ended with exit code 0" in ended.what:
                return
            raise
        if data:
            tell(data)
    raise NoAnswerError(f"the program has not come to its end within {limit_s:.3g} s", hint="give it longer")


@locks.keep_locks()
def flash_program(
    path: str | Path, *, board: str | Board, runner: str = "", options: Options, deployment: Deployment = DEFAULT
) -> Flashed:
    """Build a user's program and flash it; it runs by itself.

    Raises:
        BoardError: no board is attached, or several match.
        FlashError: the flash tool is missing, or it failed.
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    target = boards.get(board) if isinstance(board, str) else board
    chosen = runner_of(target, runner, template=template_of(target, options), deployment=deployment)
    device = find_device(target, deployment)
    chosen.probe_version()
    prepared = prepare_program(path, board=target, options=options, deployment=deployment)
    with locks.locked(*((device.probe, device.port) if device else ())):
        done = flash.flash(chosen, flash_job(prepared.folder, prepared.manifest, chosen, device, kind=STANDALONE))
    log.info("  %-9s %4.1f s   %s", "flash", done.seconds, done.runner)
    return Flashed(prepared, done.runner, device.port if device else "")
