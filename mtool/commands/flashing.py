"""From a model to a board that runs it: compile, build, flash, shake hands, one inference."""

import contextlib
import dataclasses
import logging
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mtool import boards, project
from mtool.base import configuration, locks
from mtool.base.errors import BoardError, CommunicationError, MtoolError, NoAnswerError
from mtool.boards import Board
from mtool.device import build as building
from mtool.device import flash, session
from mtool.device.flash import Job, Runner, halted, ports
from mtool.device.flash.by_command import by_command
from mtool.device.flash.ports import Attached
from mtool.device.session import Device, opening
from mtool.device.transport.base import Transport
from mtool.device.transport.emulator import Channel
from mtool.manifest import Manifest
from mtool.project import template
from mtool.stages import checkup, formatting
from mtool.stages import samples as sampling
from mtool.stages.building import STANDALONE, BuiltProject, build_model, rendered_plan
from mtool.stages.compiling import CompiledModel, compile
from mtool.stages.deployment import DEFAULT, Deployment, Reconnection
from mtool.stages.options import Options
from mtool.verification import reference
from mtool.verification.layers import compare_layers
from mtool.verification.verification import judge

log = logging.getLogger(__name__)
KIND = "host_driven"
_START_S = 10.0  # a board may take so long from its reset to its first answer
_HASH_DIGITS = 8


@dataclass(frozen=True, slots=True)
class SmokeRun:
    """One inference on the board: the model, the time by its timer in `unit`, and whose outputs they were equal to."""

    model: str
    time: float
    unit: str
    compared_with: str


@dataclass(frozen=True, slots=True)
class FlashResult:
    """A board that runs a model.

    Attributes:
        prepared: the project that was built.
        device: the board's port and probe; None for an emulator, and for a board whose port was not found.
        runner: which tool flashed it; "": the firmware is a program of this computer.
        seconds: how long that took.
        verified: the tool read the flash back.
        smokes: the inference that was run, of each model.
    """

    prepared: BuiltProject
    device: Attached | None
    runner: str
    seconds: float
    verified: bool
    smokes: tuple[SmokeRun, ...]

    @property
    def smoke(self) -> SmokeRun:
        """The inference of the firmware's first model."""
        return self.smokes[0]


@locks.keep_locks()
def flash_model(
    path: str | Path,
    *,
    board: str | Board,
    runner: str = "",
    options: Options | None = None,
    deployment: Deployment = DEFAULT,
) -> FlashResult:
    """Bring a model onto a board: does all that is stale, then flashes, shakes hands and runs one inference.

    Args:
        path: the ONNX or TFLite model.
        board: a board or its name.
        runner: the flash tool; default: the board's first that is installed.
        options: how to compile and which template to use.
        deployment: the project folder, and the device that is flashed; its power is cycled where it can't be flashed
            or does not answer, if there is a command for that.

    Raises:
        BoardError: no board is attached, or several match, the power can't be cycled, or the flash tool finds none.
        FlashError: the flash tool is missing, or it failed.
        CommunicationError: the firmware does not answer, or it is another one.
        MismatchError: its outputs are not those of onnxruntime.
        MtoolError: of the class that tells the stage, see mtool.errors.
    """
    target = boards.get(board) if isinstance(board, str) else board
    deployment.refuse_port(target)
    if _is_program(target, runner):
        return _run_program(path, target, options, deployment)
    chosen = runner_of(target, runner, template=template_of(target, options), deployment=deployment)
    emulated = chosen.name == "gdb" and not deployment.port and target.emulator is not None
    device = None if emulated else find_device(target, deployment)
    if not emulated:
        chosen.probe_version()  # before all the work
    model = _compiled(path, target, options, deployment)
    prepared = build_model(model, deployment.folder, kinds=(KIND,))
    with locks.locked(*((device.probe, device.port) if device else ())):
        if emulated:
            return _flash_emulator(model, prepared, chosen, deployment)
        revival = Reconnection.of(
            target, deployment.power, device.port if device else "", device.probe if device else ""
        )

        def attempt() -> tuple[flash.Flashed, Device]:
            done = _flash(prepared, chosen, device)
            port = _port_of(target, device, chosen)
            return done, session.open(prepared.folder, port=port, timeout_s=_START_S)

        flashed, opened = revival.until_back(attempt) if revival.power is not None else attempt()
        with opened:
            smokes = _smoke(opened, model, deployment, baud=target.usb.uart if target.usb else None)
    return FlashResult(prepared, device, chosen.name, flashed.seconds, flashed.verified, smokes)


def _compiled(path: str | Path, board: Board, options: Options | None, deployment: Deployment) -> CompiledModel:
    """Compile a model, or take the first of the firmware's models, which are compiled."""
    return (
        deployment.models[0]
        if deployment.models
        else compile(path, board=board, options=options, folder=deployment.folder)
    )


def _is_program(board: Board, runner: str) -> bool:
    """Return whether the board's firmware is a program of this computer, which nothing flashes."""
    return board.emulator is not None and board.emulator.is_the_firmware and not runner


def _run_program(path: str | Path, board: Board, options: Options | None, deployment: Deployment) -> FlashResult:
    """Build the firmware of a board that is this computer, and run one inference in it."""
    model = _compiled(path, board, options, deployment)
    prepared = build_model(model, deployment.folder, kinds=(KIND,))
    log.info("  %-9s          %s is a program of this computer: nothing to flash", "flash", board.name)
    with session.open(prepared.folder, timeout_s=_START_S) as opened:
        smokes = _smoke(opened, model, deployment, baud=None)
    return FlashResult(prepared, None, "", 0.0, verified=False, smokes=smokes)


def runner_of(
    board: Board, name: str = "", *, template: str, deployment: Deployment, has_build_folder: bool = True
) -> Runner:
    """Return what flashes a board: the runner that is named, else a command if one is given, else the board's runner.

    Without the folder of a build it is one that takes a firmware file.

    Raises:
        UsageError: there is no such runner, it does not work with the board, or mtool.toml is malformed.
        FlashError: the board has none.
    """
    text = deployment.flash or configuration.load().flash
    if text and name in ("", "command"):
        return by_command(text)
    return flash.choose(board, name, template=template, has_build_folder=has_build_folder)


def open_flashed(
    prepared: BuiltProject, runner: Runner, deployment: Deployment, *, record: IO[str] | None = None
) -> Device:
    """Flash a built project and return a session with the firmware; `record` is as of `session.open`.

    Raises:
        BoardError: several boards match, or what was asked for is not attached.
        FlashError: no board is attached, or the tool failed.
        CommunicationError: the firmware does not answer, or it is another one.
    """
    device = find_device(prepared.board, deployment)
    _flash(prepared, runner, device)
    port = _port_of(prepared.board, device, runner)
    return session.open(prepared.folder, port=port, timeout_s=_START_S, record=record)


def flash_plan(
    path: str | Path,
    *,
    board: str | Board,
    runner: str = "",
    options: Options | None = None,
    deployment: Deployment = DEFAULT,
    kind: str = KIND,
) -> list[str]:
    """Return the commands that flashing a firmware would run, as a shell would take them; nothing is written or run.

    Lines that start with # tell what mtool itself does. A port that is not known yet reads PORT.
    """
    target = boards.get(board) if isinstance(board, str) else board
    deployment.refuse_port(target)
    if _is_program(target, runner):
        model = _compiled(path, target, options, deployment)
        tree, described = model.render_project()
        assert described.project is not None
        return [
            *rendered_plan(model, tree, described, deployment.folder, kinds=(KIND,)),
            f"./{described.project.firmware[KIND]}",
            f"# smoke: one inference, compared with {reference.name_of(model.path)}",
        ]
    chosen = runner_of(target, runner, template=template_of(target, options), deployment=deployment)
    device = None if chosen.name == "gdb" else ports.resolve(target, ports.wanted(deployment.port, deployment.probe))
    model = _compiled(path, target, options, deployment)
    tree, described = model.render_project()
    folder = deployment.folder or model.default_folder()
    job = flash_job(folder, described, chosen, device, kind=kind)
    before = []
    if chosen.name == "gdb" and target.emulator is not None:
        job = dataclasses.replace(job, port="127.0.0.1:PORT")
        before = [shlex.join(halted.argv(target.emulator, job.firmware, job.port, channel=_channel(described))) + " &"]
    baud = f" at {target.usb.uart} baud" if target.usb else ""
    commands = [
        *rendered_plan(
            model, tree, described, deployment.folder, kinds=(kind,), tools=checkup.flash_tool(chosen.name, target)
        ),
        *before,
        *flash.plan(chosen, job),
    ]
    if kind != KIND:
        return commands  # it runs by itself
    return [
        *commands,
        f"# hello{baud}: expect {_hashes(described)}",
        f"# smoke: one inference, compared with {reference.name_of(model.path)}",
    ]


def template_of(board: Board, options: Options | None) -> str:
    """Return the name of the template that a project on a board has."""
    named = options.template if options and options.template else next(iter(board.templates), "")
    return template.load(named).name if named else ""


def find_device(board: Board, deployment: Deployment) -> Attached | None:
    """Return the device that is meant; None where only the tool can tell whether it is there."""
    want = ports.wanted(deployment.port, deployment.probe)
    found = ports.attached()
    device = ports.resolve(board, want, found)
    if device is not None:
        log.info("found     %s   %s", board.description, device)
    elif board.usb and board.usb.ids and sys.platform == "linux":
        return ports.require(board, want, found)
    return device


def _port_of(board: Board, device: Attached | None, runner: Runner) -> str:
    """Return the port to talk to; after a flash the board may come back at another one."""
    if device is not None and device.port:
        deadline = time.monotonic() + _START_S
        while device.port.startswith("/") and not Path(device.port).exists():
            again = ports.resolve(board, ports.Wanted(probe=device.probe)) if device.probe else None
            if again is not None and again.port:
                return again.port
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        return device.port
    return ports.require(board, ports.Wanted()).port


def flash_job(folder: Path, described: Manifest, runner: Runner, device: Attached | None, *, kind: str = KIND) -> Job:
    """Return what a runner has to do: write a firmware kind of a built project into a device."""
    assert described.project is not None
    return flash.job_of(
        folder.absolute(),
        described.project,
        runner,
        kind=kind,
        port=device.port if device else "",
        probe=device.probe if device else "",
    )


def _flash(prepared: BuiltProject, runner: Runner, device: Attached | None) -> flash.Flashed:
    flashed = flash.flash(runner, flash_job(prepared.folder, prepared.manifest, runner, device))
    _told_flashed(flashed, prepared)
    return flashed


def _told_flashed(flashed: flash.Flashed, prepared: BuiltProject) -> None:
    size = building.measure(prepared.built.firmware[KIND], prepared.manifest)
    total = formatting.kilobytes(size.flash_code_bytes + size.flash_const_bytes)
    note = f"{flashed.runner}, {total} written" + (", verified" if flashed.verified else "")
    log.info("  %-9s %4.1f s   %s", "flash", flashed.seconds, note)


def _flash_emulator(
    model: CompiledModel, prepared: BuiltProject, runner: Runner, deployment: Deployment
) -> FlashResult:
    """Flash a halted emulator, which then runs the firmware; the session is with that very emulator."""
    emulator = prepared.board.emulator
    assert emulator is not None
    firmware = prepared.built.firmware[KIND].absolute()
    transport, port = halted.open_halted(emulator, firmware, channel=_channel(prepared.manifest))
    with contextlib.ExitStack() as stack:
        stack.callback(transport.close)
        flashed = _flash(prepared, runner, Attached(port, "", "", ""))
        device = stack.enter_context(Device(prepared.manifest, transport, timeout_s=_START_S, firmware=firmware))
        smokes = _smoke(device, model, deployment, baud=None)
    return FlashResult(prepared, None, runner.name, flashed.seconds, flashed.verified, smokes)


def _channel(described: Manifest) -> Channel:
    assert described.project is not None
    return "uart" if described.project.transport == "serial" else "semihosting"


def _smoke(device: Device, model: CompiledModel, deployment: Deployment, *, baud: int | None) -> tuple[SmokeRun, ...]:
    """Tell the hashes of the firmware that answered, and run one inference of each model."""
    log.info(
        "  %-9s          %s%s",
        "hello",
        _hashes(device[model.manifest.model].manifest),
        f" at {baud} baud" if baud else "",
    )
    return tuple(_smoke_of(device[one.manifest.model], one) for one in deployment.models or (model,))


def _smoke_of(device: Device, model: CompiledModel) -> SmokeRun:
    described = device.manifest
    samples = sampling.seeded(described.inputs, count=1, seed=0)
    outputs = [device.run(sample) for sample in samples]
    compared_with = _compare(device, model, samples, outputs)
    timing = device.time(1, 1)
    note = f"1 inference, {_time(timing.median, timing.unit)}, "
    note += (
        f"equal to {compared_with}"
        if compared_with
        else f"not compared: {reference.name_of(model.path)} can't run it here"
    )
    log.info("  %-9s          %s", "smoke", note)
    return SmokeRun(described.model, timing.median, timing.unit, compared_with)


def _compare(
    device: Device, model: CompiledModel, samples: Sequence[sampling.Sample], outputs: Sequence[sampling.Sample]
) -> str:
    """Compare outputs with the reference's; return its name, or "" if it is not installed or can't run the model."""
    try:
        expected = reference.outputs(model.path, samples, options=model.options)
    except MtoolError:
        return ""
    judge(
        model,
        samples,
        expected,
        outputs,
        layers=lambda allowed, some: compare_layers(device, model, some, allowed),
    ).check()
    return reference.name_of(model.path)


def _time(median: float, unit: str) -> str:
    return f"{median:,.0f} instructions" if unit == "instructions" else f"{median / 1e6:.3g} ms"


def _hashes(described: Manifest) -> str:
    assert described.project is not None
    build, model = described.project.build_hash[:_HASH_DIGITS], described.model_hash[:_HASH_DIGITS]
    return f"build {build} model {model}"


# A user's own program: the standalone firmware of a project of theirs, run or flashed. No host drives it.


_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class FlashedProgram:
    """A program that a board has: what flashed it, and at which port its console may be."""

    prepared: BuiltProject
    runner: str
    port: str


@dataclass(frozen=True, slots=True)
class RunningProgram:
    """A program that runs, and the channel to it."""

    prepared: BuiltProject
    transport: Transport


@contextmanager
def open_program(
    path: str | Path, *, board: str | Board, options: Options, deployment: Deployment = DEFAULT
) -> Iterator[RunningProgram]:
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
        yield RunningProgram(prepared, transport)


def prepare_program(
    path: str | Path, *, board: str | Board, options: Options, deployment: Deployment = DEFAULT
) -> BuiltProject:
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
) -> FlashedProgram:
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
    return FlashedProgram(prepared, done.runner, device.port if device else "")
