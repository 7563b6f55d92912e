"""From a model to a board that runs it: compile, build, flash, handshake, one inference."""

import contextlib
import dataclasses
import logging
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from mtool import project
from mtool.base import configuration, locks
from mtool.base.errors import BoardError, CommunicationError, DeviceError, MtoolError
from mtool.boards import Board
from mtool.device import build as building
from mtool.device import flash, session
from mtool.device.flash import Runner, ports
from mtool.device.flash.by_command import by_command
from mtool.device.flash.ports import Attached
from mtool.device.session import Device, opening
from mtool.device.transport.base import Transport
from mtool.device.transport.emulator import FAULT, Channel, ending, halted_command, open_halted
from mtool.manifest import Manifest, Project
from mtool.project import template
from mtool.stages import checkup, formatting
from mtool.stages import samples as sampling
from mtool.stages.building import HOST_DRIVEN, STANDALONE, BuiltProject, build_model, build_plan
from mtool.stages.compiling import CompiledModel
from mtool.stages.deployment import DEFAULT, Deployment, Reconnection
from mtool.stages.job import Job
from mtool.stages.options import Options
from mtool.verification import reference
from mtool.verification.verification import judge

log = logging.getLogger(__name__)
_START_S = 10.0  # the longest time from a board's reset to its first answer
_HASH_DIGITS = 8


@dataclass(frozen=True, slots=True)
class SmokeRun:
    """One inference on the board: the model, its time in `unit`, and the reference that its outputs were equal to."""

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
        runner: the tool that flashed it; "": the firmware is a program of this computer.
        seconds: the time that flashing took.
        verified: the tool has read the flash back.
        smokes: for each model the inference that was run.
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
    """Put a model on a board: compile and build what is out of date, flash, handshake, and run one inference.

    Args:
        path: the ONNX or TFLite model.
        board: a board or its name.
        runner: the flash tool; default: the board's first that is installed.
        options: how to compile and which template to use.
        deployment: the project folder, and the device that is flashed; it is power-cycled if it can't be flashed or
            does not answer, if there is a command for that.

    Raises:
        BoardError: no board is attached, or several match, it can't be power-cycled, or the flash tool finds no board.
        FlashError: the flash tool is missing, or it failed.
        CommunicationError: the firmware does not answer, or other firmware answers.
        MismatchError: its outputs are not those of onnxruntime.
        MtoolError: of the class for the stage that fails, see mtool.errors.
    """
    job = Job.of(path, board, options, deployment)
    target, tool = job.target, _runner_for(job, runner)
    device, is_emulated = None, False
    if tool is not None:
        is_emulated = tool.name == "gdb" and not deployment.port and target.emulator is not None
        if not is_emulated:
            device = find_device(target, deployment)
            tool.probe_version()  # fails before all the work
    model = job.compile(checks_device=False)
    prepared = build_model(model, deployment.folder, kinds=(HOST_DRIVEN,))
    if tool is None:
        log.info("  %-9s          %s is a program of this computer: nothing to flash", "flash", target.name)
        with session.open(prepared.folder, timeout_s=_START_S) as opened:
            return FlashResult(prepared, None, "", 0.0, False, _smoke(opened, model, deployment))
    port, probe = (device.port, device.probe) if device else ("", "")
    with contextlib.ExitStack() as stack:
        stack.enter_context(locks.locked(*((probe, port) if device else ())))
        if is_emulated:  # flashed before it runs; the session uses the same emulator
            assert target.emulator is not None
            firmware, channel = prepared.built.firmware[HOST_DRIVEN].absolute(), _channel(prepared.manifest)
            transport, port = open_halted(target.emulator, firmware, channel=channel)
            stack.callback(transport.close)
            flashed = _flash(prepared, tool, Attached(port, "", "", ""))
            key = prepared.find_link_key()
            opened = Device(prepared.manifest, transport, timeout_s=_START_S, key=key, firmware=firmware)
        else:

            def attempt() -> tuple[flash.FlashResult, Device]:
                done = _flash(prepared, tool, device)
                return done, session.open(prepared.folder, port=_port_of(target, device), timeout_s=_START_S)

            reconnection = Reconnection.of(target, deployment.power, port, probe)
            flashed, opened = reconnection.until_back(attempt) if reconnection.power is not None else attempt()
        stack.enter_context(opened)
        baud = target.usb.uart if target.usb and not is_emulated else None
        smokes = _smoke(opened, model, deployment, baud=baud)
    return FlashResult(prepared, device, tool.name, flashed.seconds, flashed.verified, smokes)


def _runner_for(job: Job, name: str) -> Runner | None:
    """Return the runner that flashes a job's board; None: its firmware is a program of this computer."""
    target = job.target
    job.deployment.refuse_port(target)
    if target.emulator is not None and target.emulator.is_the_firmware and not name:
        return None
    return runner_of(target, name, template=template_of(target, job.options), deployment=job.deployment)


def runner_of(
    board: Board, name: str = "", *, template: str, deployment: Deployment, has_build_folder: bool = True
) -> Runner:
    """Return the runner that flashes a board: the named one, else a flash command if given, else the board's runner.

    Without a build folder it is a runner that takes a firmware file.

    Raises:
        UsageError: the runner is unknown or does not work with the board, or mtool.toml is malformed.
        FlashError: the board has no runner.
    """
    text = deployment.flash or configuration.load().flash
    if text and name in ("", "command"):
        return by_command(text)
    return flash.choose(board, name, template=template, has_build_folder=has_build_folder)


def open_flashed(
    prepared: BuiltProject, runner: Runner, deployment: Deployment, *, record: IO[str] | None = None
) -> Device:
    """Flash a built project and return a session with the firmware; `record` is that of `session.open`.

    Raises:
        BoardError: several boards match, or the requested one is not attached.
        FlashError: no board is attached, or the tool failed.
        CommunicationError: the firmware does not answer, or other firmware answers.
    """
    device = find_device(prepared.board, deployment)
    _flash(prepared, runner, device)
    return session.open(prepared.folder, port=_port_of(prepared.board, device), timeout_s=_START_S, record=record)


def flash_plan(job: Job, runner: str = "", *, kind: str = HOST_DRIVEN) -> list[str]:
    """Return the commands that flashing would run, in shell syntax; nothing is written or run.

    Lines that start with # are steps of mtool itself. A port that is not known yet is written as PORT.
    """
    target, deployment, tool = job.target, job.deployment, _runner_for(job, runner)
    device = None
    if tool is not None:
        selector = ports.selector(deployment.port, deployment.probe)
        device = None if tool.name == "gdb" else ports.resolve(target, selector)
    model = job.compile(checks_device=False)
    kind, tools = (HOST_DRIVEN, ()) if tool is None else (kind, checkup.flash_tool(tool.name, target))
    lines, manifest = build_plan(model, deployment.folder, kinds=(kind,), tools=tools)
    smoke = f"# smoke: one inference, compared with {reference.name_of(model.path)}"
    if tool is None:
        return [*lines, f"./{manifest.in_project.firmware[kind]}", smoke]
    flashed = flash_job(deployment.folder or model.default_folder(), manifest.in_project, tool, device, kind=kind)
    if tool.name == "gdb" and target.emulator is not None:
        flashed = dataclasses.replace(flashed, port="127.0.0.1:PORT")
        argv = halted_command(target.emulator, flashed.firmware, flashed.port, channel=_channel(manifest))
        lines.append(f"{shlex.join(argv)} &")
    lines += flash.plan(tool, flashed)
    if kind != HOST_DRIVEN:
        return lines  # it runs by itself
    baud = f" at {target.usb.uart} baud" if target.usb else ""
    return [*lines, f"# hello{baud}: expect {_hashes(manifest)}", smoke]


def template_of(board: Board, options: Options) -> str:
    """Return the name of the template for a project on a board."""
    named = options.template or next(iter(board.templates), "")
    return template.load(named).name if named else ""


def find_device(board: Board, deployment: Deployment) -> Attached | None:
    """Return the selected device; None if only the flash tool can detect it."""
    selector = ports.selector(deployment.port, deployment.probe)
    devices = ports.attached()
    device = ports.resolve(board, selector, devices)
    if device is not None:
        log.info("found     %s   %s", board.description, device)
    elif board.usb and board.usb.ids and sys.platform == "linux":
        return ports.require(board, selector, devices)
    return device


def _port_of(board: Board, device: Attached | None) -> str:
    """Return the port of the session; after flashing the board may come back at another port."""
    if device is not None and device.port:
        deadline = time.monotonic() + _START_S
        while device.port.startswith("/") and not Path(device.port).exists():
            again = ports.resolve(board, ports.DeviceSelector(probe=device.probe)) if device.probe else None
            if again is not None and again.port:
                return again.port
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        return device.port
    return ports.require(board, ports.DeviceSelector()).port


def flash_job(
    folder: Path, project: Project, runner: Runner, device: Attached | None, *, kind: str = HOST_DRIVEN
) -> flash.Job:
    """Return a runner's job: write a firmware kind of a built project to a device."""
    port, probe = (device.port, device.probe) if device else ("", "")
    return flash.job_of(folder.absolute(), project, runner, kind=kind, port=port, probe=probe)


def _flash(prepared: BuiltProject, runner: Runner, device: Attached | None) -> flash.FlashResult:
    flashed = flash.flash(runner, flash_job(prepared.folder, prepared.manifest.in_project, runner, device))
    size = building.measure(prepared.built.firmware[HOST_DRIVEN], prepared.manifest)
    total = formatting.kilobytes(size.flash_code_bytes + size.flash_const_bytes)
    note = f"{flashed.runner}, {total} written" + (", verified" if flashed.verified else "")
    log.info("  %-9s %4.1f s   %s", "flash", flashed.seconds, note)
    return flashed


def _channel(manifest: Manifest) -> Channel:
    return "uart" if manifest.in_project.transport == "serial" else "semihosting"


def _smoke(
    device: Device, model: CompiledModel, deployment: Deployment, *, baud: int | None = None
) -> tuple[SmokeRun, ...]:
    """Log the hashes of the firmware that answered, and run one inference of each model."""
    at = f" at {baud} baud" if baud else ""
    log.info("  %-9s          %s%s", "hello", _hashes(device[model.manifest.model].manifest), at)
    return tuple(_smoke_of(device[part.manifest.model], part) for part in deployment.models or (model,))


def _smoke_of(device: Device, model: CompiledModel) -> SmokeRun:
    samples = sampling.seeded(device.manifest.inputs, count=1, seed=0)
    outputs = [device.run(sample) for sample in samples]
    name, compared_with = reference.name_of(model.path), ""
    try:
        name, expected = reference.computed_by(model.path, samples, options=model.options)
    except MtoolError:  # it is not installed, or can't run the model
        compared = f"not compared: {name} can't run it here"
    else:
        judge(model, samples, expected, outputs, against=name, opened=lambda: contextlib.nullcontext(device)).check()
        compared, compared_with = f"equal to {name}", name
    timing = device.time(1, 1)
    time = f"{timing.median:,.0f} instructions" if timing.unit == "instructions" else f"{timing.median / 1e6:.3g} ms"
    log.info("  %-9s          %s", "smoke", f"1 inference, {time}, {compared}")
    return SmokeRun(device.manifest.model, timing.median, timing.unit, compared_with)


def _hashes(manifest: Manifest) -> str:
    build, model = manifest.in_project.build_hash[:_HASH_DIGITS], manifest.model_hash[:_HASH_DIGITS]
    return f"build {build} model {model}"


# A user's own program: the standalone firmware of the user's project, run or flashed. No host drives it.


_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class FlashedProgram:
    """A program on a board: the runner that flashed it, and the port where its console may be."""

    prepared: BuiltProject
    runner: str
    port: str


@contextmanager
def open_program(job: Job) -> Iterator[tuple[BuiltProject, Transport]]:
    """Build a user's program that speaks through mtool.h, start it (or flash it), and open the channel to it.

    Raises:
        MtoolError: of the class for the stage that fails, see mtool.errors.
    """
    target = job.target
    transport_of = project.choose(target, job.options.template, {})[0].transport
    port, probe = job.deployment.port, job.deployment.probe
    if port or probe or (transport_of == "serial" and target.emulator is None):
        flashed = flash_program(job)
        prepared, port = flashed.prepared, port or flashed.port
    else:
        prepared = _prepare_program(job)
    with opening.open_transport(prepared.folder, port=port, probe=probe, kind=STANDALONE) as transport:
        yield prepared, transport


def _prepare_program(job: Job) -> BuiltProject:
    return build_model(job.compile(), job.deployment.folder, kinds=(STANDALONE,))


@locks.keep_locks()
def run_program(job: Job, on_output: Callable[[bytes], None]) -> None:
    """Build a user's program and run it, on this computer or in the board's emulator, until it ends.

    Args:
        job: the model, the program in its options, and the project folder.
        on_output: called with the program's output as it arrives.

    Raises:
        BoardError: the board is not emulated: the program runs by itself once it is flashed.
        DeviceError: the program ended with a fault.
        CommunicationError: it ended with an exit code other than 0.
        MtoolError: of the class for the stage that fails, see mtool.errors.
    """
    target, prepared = job.target, _prepare_program(job)
    project = prepared.manifest.in_project
    if project.transport == "serial" and target.emulator is None:
        raise BoardError(
            f"{target.name} is not emulated, so its program can't be run here",
            hint="flash the board, where it runs by itself: mtool flash",
        )
    arguments = ending(target.emulator) if target.emulator and project.transport == "serial" else ()
    with opening.open_transport(prepared.folder, kind=STANDALONE, emulator_arguments=arguments) as transport:
        while True:
            try:
                data = transport.read(timeout_s=_LOOK_S)
            except CommunicationError as ended:
                if "ended with exit code 0" not in ended.what:
                    raise
                if any(FAULT in line for line in ended.details):
                    raise DeviceError(f"the program ended with a fault on {target.name}") from None
                return
            if data:
                on_output(data)


@locks.keep_locks()
def flash_program(job: Job, runner: str = "") -> FlashedProgram:
    """Build a user's program and flash it; it runs by itself.

    Raises:
        BoardError: no board is attached, or several match.
        FlashError: the flash tool is missing, or it failed.
        MtoolError: of the class for the stage that fails, see mtool.errors.
    """
    target, deployment = job.target, job.deployment
    tool = runner_of(target, runner, template=template_of(target, job.options), deployment=deployment)
    device = find_device(target, deployment)
    tool.probe_version()
    prepared = _prepare_program(job)
    task = flash_job(prepared.folder, prepared.manifest.in_project, tool, device, kind=STANDALONE)
    with locks.locked(*((device.probe, device.port) if device else ())):
        done = flash.flash(tool, task)
    log.info("  %-9s %4.1f s   %s", "flash", done.seconds, done.runner)
    return FlashedProgram(prepared, done.runner, device.port if device else "")
