"""An inference under gdb, stopped where an operator begins: the one that faulted, or a named one.

The inference is run once without gdb, and what the host sends to the device is recorded. The firmware under gdb reads
that recording: the same inputs, and no host that times out at a breakpoint. On a board the host drives it again.
"""

import contextlib
import io
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtool import boards, manifest, project
from mtool.base import plural, proc, spelling
from mtool.base.errors import BuildError, DeviceError, MtoolError, UsageError
from mtool.commands.execution import project_of
from mtool.device import session
from mtool.device.build.symbolizer import Symboliser
from mtool.device.flash import flashing, ports
from mtool.device.session import Device
from mtool.device.transport import ProcessTransport, Recorder
from mtool.device.transport.emulator import Channel, command, free_port
from mtool.manifest import Manifest, Operator, Project
from mtool.manifest.link_key import LinkKey
from mtool.stages.building import HOST_DRIVEN, BuiltProject, build_plan
from mtool.stages.compiling import compile
from mtool.stages.deployment import DEFAULT, Deployment
from mtool.stages.job import Job
from mtool.stages.samples import Sample

_FAULT_HANDLER = "platform_fault"  # in firmware without an operating system
_PATIENCE_S = 86_400.0  # the host's timeout while a board is being debugged
_START_S = 10.0
_LOCALHOST = "127.0.0.1"
_QEMU = "qemu-system-"
_GDBS: Mapping[str, Sequence[str]] = {  # by the prefix of a toolchain's name
    "arm-": ("arm-none-eabi-gdb", "gdb-multiarch"),
    "riscv": ("riscv64-unknown-elf-gdb", "riscv-none-elf-gdb", "gdb-multiarch"),
    "avr-": ("avr-gdb", "gdb-multiarch"),
    "xtensa": ("xtensa-esp32s3-elf-gdb", "xtensa-esp32-elf-gdb"),
    "cc": ("gdb",),
}


@dataclass(frozen=True, slots=True)
class Stop:
    """Where gdb stops: the operator and the reason. `before`: the number of earlier calls of its function."""

    operator: Operator
    before: int
    fault: DeviceError | None = None

    def describe(self) -> str:
        """Return the operator's label and its function."""
        return f"operator {self.operator.index}, {self.operator.label}, in {self.operator.function}"


@dataclass(frozen=True, slots=True)
class DebugPlan:
    """The programs to run: the gdb server (none: gdb starts the firmware itself, or a server is running) and gdb."""

    stop: Stop
    gdb: tuple[str, ...]
    server: tuple[str, ...] = ()
    sent: bytes = b""
    drives: bool = False
    """Whether the host has to drive the firmware: a UART takes nothing before it is set up, a link key no recording."""
    is_channel: bool = False
    """Whether the server is the emulator, whose standard input and output are the channel to the firmware."""


@dataclass(frozen=True, slots=True)
class DebugOptions:
    """The options of a debugging session.

    Attributes:
        operator: its number, name or node; empty: the one that faults, or the first.
        gdb: the program; empty: the one for the board's toolchain.
        server: the address of a running gdb server, or the runner whose tool is one; empty: the board's runner.
        commands: more commands for gdb to run once it has stopped.
        batch: gdb exits after them.
    """

    operator: str = ""
    gdb: str = ""
    server: str = ""
    commands: Sequence[str] = ()
    batch: bool = False


def gdb_of(toolchain: str, name: str = "", *, needed: bool = True) -> str:
    """Return the gdb for a toolchain: the named one, else the first that is installed.

    `needed`: it will be run; otherwise it need not be installed.

    Raises:
        BuildError: it is not installed.
    """
    names = (name,) if name else next((gdbs for begin, gdbs in _GDBS.items() if toolchain.startswith(begin)), ("gdb",))
    program = next((name for name in names if shutil.which(name)), None)
    if program is None and not needed:
        return names[0]
    if program is None:
        hint = "" if name else f"install one: sudo apt-get install {names[-1]}"
        verb = "is" if len(names) == 1 else "are"
        raise BuildError(f"{' and '.join(names)} {verb} not installed", details=["not found on PATH"], hint=hint)
    return program


def find(described: Manifest, name: str) -> Operator:
    """Return the operator with a number, a name (conv_3, or its function's) or a node of the model.

    Raises:
        UsageError: there is none, or several; the message has similar names.
    """
    operators = described.operators
    matches = [op for op in operators if name in (str(op.index), op.name, op.function, *op.origins)]
    exact = [operator for operator in matches if name in (str(operator.index), operator.name)]
    if len(exact or matches) == 1:
        return (exact or matches)[0]
    if matches:
        raise UsageError(
            f"{name!r} matches {plural.count(len(matches), 'operator')}",
            details=[f"{operator.index}: {operator.name}, {operator.label}" for operator in matches],
        )
    names = [each for one in operators for each in (one.name, *one.origins)]
    raise UsageError(
        f"the model has no operator {name!r}",
        details=[f"its operators are 0 to {len(operators) - 1}"],
        hint=spelling.did_you_mean(name, names, otherwise="mtool bench --layers lists them"),
    )


def record(
    folder: Path, sample: Sample, deployment: Deployment = DEFAULT, key: LinkKey | None = None
) -> tuple[bytes, DeviceError | None]:
    """Run one inference operator by operator; return what the host sent, and the fault that ended it, if any.

    Raises:
        MtoolError: the firmware does not answer.
    """
    lines = io.StringIO()
    described = manifest.load(folder)
    transport = session.open_transport(folder, port=deployment.port, probe=deployment.probe)
    fault = None
    try:
        firmware = _firmware_of(folder, described)
        with Device(described, Recorder(transport, lines), timeout_s=_START_S, key=key, firmware=firmware) as device:
            device.run(sample)
    except DeviceError as reported:
        fault = reported
    sent = [line.split(" ", 2) for line in lines.getvalue().splitlines()]
    return b"".join(bytes.fromhex(data) for _, direction, data in sent if direction == ">"), fault


def plan(prepared: BuiltProject, sample: Sample, options: DebugOptions, deployment: Deployment = DEFAULT) -> DebugPlan:
    """Run an inference on a built project, and return a plan that stops the next one at an operator.

    Raises:
        UsageError: the operator is unknown, or the board has no gdb server.
        BuildError: gdb is not installed.
        MtoolError: the firmware does not answer.
    """
    described, project = prepared.manifest, prepared.manifest.in_project
    board, firmware = prepared.board, _firmware_of(prepared.folder, described)
    operator = find(described, options.operator) if options.operator else None
    program = gdb_of(board.toolchain, options.gdb)
    if project.options.get("channel") == "rtt" and not deployment.port:
        raise UsageError(
            "RTT and gdb can't share the emulator's gdb stub",
            hint="to debug, build without --option channel=rtt",
        )
    on_board = bool(deployment.port or deployment.probe or options.server) or (
        project.transport == "serial" and board.emulator is None
    )
    by_uart = project.transport == "serial"
    if on_board:
        address, serving = _server_of(prepared.folder, project, options, deployment, needed=True)
    else:
        address, serving = f"{_LOCALHOST}:{free_port()}", ()
        if board.emulator is not None:
            if not board.emulator.program.startswith(_QEMU):
                raise UsageError(
                    f"{board.name}'s emulator is not QEMU, whose gdb stub is needed",
                    hint="start a gdb server for it and give its address: --server HOST:PORT; or debug on --board host",
                )
            channel: Channel = "uart" if by_uart else "semihosting"
            serving = (*command(board.emulator, firmware, channel=channel), "-gdb", f"tcp:{address}", "-S")
    key = prepared.find_link_key()
    is_channel = bool(serving) and not on_board
    if key is not None and not on_board and not is_channel:
        what = "gdb starts firmware on this computer with a recorded session, which its link key refuses"
        raise UsageError(what, hint="to debug, build without --link-key, or for an emulator")
    sent, fault = record(prepared.folder, sample, deployment, key)
    stop = stop_at(described, operator, fault)
    remote = "" if project.transport == "process" and not on_board else address
    argv = gdb_argv(program, firmware, stop, remote, options)
    drives = on_board or (is_channel and (by_uart or key is not None))
    return DebugPlan(stop, argv, serving, sent, drives=drives, is_channel=is_channel)


def _firmware_of(folder: Path, described: Manifest) -> Path:
    return manifest.firmware_of(folder, described.in_project, HOST_DRIVEN).absolute()


def _server_of(
    folder: Path, on: Project, options: DebugOptions, deployment: Deployment, *, needed: bool
) -> tuple[str, tuple[str, ...]]:
    """Return the address of a board's gdb server, and the command that starts it; empty if a server is running.

    `needed`: it will be started; otherwise neither its tool nor the board needs to be present.
    """
    if ":" in options.server:
        return options.server, ()
    name = flashing.choose_gdb_server(on.board, options.server, template=on.template)
    runner, selector = flashing.all_runners()[name], ports.selector(deployment.port, deployment.probe)
    device = ports.require(on.board, selector) if needed else ports.resolve(on.board, selector)
    probe, port = device.probe if device else deployment.probe, free_port()
    job = flashing.job_of(folder.absolute(), on, runner, kind=HOST_DRIVEN, probe=probe)
    serving = tuple(flashing.gdb_server(name, job, port))
    if needed:
        proc.find(serving[0], hint=runner.install)
    return f"{_LOCALHOST}:{port}", serving


def debug(
    chosen: DebugPlan,
    prepared: BuiltProject,
    sample: Sample,
    folder: Path,
    deployment: Deployment = DEFAULT,
    *,
    output: int | None = None,
) -> int:
    """Start the server, and gdb in this terminal; return gdb's exit code.

    Args:
        chosen: the plan from `plan`.
        prepared: the project.
        sample: the inputs, for a board.
        folder: an empty folder for files while gdb runs.
        deployment: the device.
        output: the file descriptor of gdb's standard output; None: this process's.

    Raises:
        CommunicationError: the server can't be started.
    """
    replay = folder / "sent.bin"
    replay.write_bytes(chosen.sent)
    argv = [word.replace("{sent}", str(replay)) for word in chosen.gdb]
    with contextlib.ExitStack() as stack:
        if chosen.server:
            server = stack.enter_context(ProcessTransport(chosen.server, name=f"the gdb server {chosen.server[0]}"))
            if chosen.drives and chosen.is_channel:
                _beside(lambda: _run(prepared, server, sample))
            else:
                _beside(lambda: _replay(server, b"" if chosen.drives else chosen.sent))
        if chosen.drives and not chosen.is_channel:
            _beside(lambda: _drive(prepared, sample, deployment))
        return proc.interactive(argv, output=output)


def stop_at(described: Manifest, operator: Operator | None, fault: DeviceError | None) -> Stop:
    """Return where gdb stops: at the requested operator, else at the one that faulted, else at the first."""
    operators = described.operators
    at = operator
    if at is None and fault is not None:
        at = next((candidate for candidate in operators if candidate.index == fault.operator), None)
    at = at or operators[0]
    before = sum(1 for candidate in operators if candidate.function == at.function and candidate.index < at.index)
    return Stop(at, before, fault)


def gdb_argv(program: str, firmware: Path, stop: Stop, remote: str, options: DebugOptions) -> tuple[str, ...]:
    """Return the arguments for gdb to stop there; the fault handler is looked up in the built firmware."""
    commands = ["set pagination off", "set confirm off", *([f"target remote {remote}"] if remote else [])]
    commands.append(f"break {stop.operator.function}")
    if stop.before:
        commands.append(f"ignore 1 {stop.before}")
    if firmware.is_file():
        with Symboliser(firmware) as symbols:
            if symbols.address(_FAULT_HANDLER) is not None:
                commands.append(f"break {_FAULT_HANDLER}")
    commands += ["continue" if remote else "run < {sent} > /dev/null", *options.commands]
    batch = ("-batch",) if options.batch else ()
    return (program, "-q", *batch, str(firmware), *(word for line in commands for word in ("-ex", line)))


def _beside(work: Callable[[], None]) -> None:
    def act() -> None:
        with contextlib.suppress(MtoolError):  # ended by gdb or its user
            work()

    threading.Thread(target=act, daemon=True).start()


def _replay(server: ProcessTransport, sent: bytes) -> None:
    server.write(sent, timeout_s=_PATIENCE_S)
    while True:
        server.read(timeout_s=_PATIENCE_S)


def _run(prepared: BuiltProject, channel: ProcessTransport, sample: Sample) -> None:
    key = prepared.find_link_key()
    with Device(prepared.manifest, channel, timeout_s=_PATIENCE_S, key=key) as device:
        device.run(sample, timeout_s=_PATIENCE_S)


def _drive(prepared: BuiltProject, sample: Sample, deployment: Deployment) -> None:
    with deployment.open(prepared, timeout_s=_PATIENCE_S) as device:
        device.run(sample, timeout_s=_PATIENCE_S)


# The commands that `mtool debug` would run for a board on a cable, which need not be attached.


def is_cabled(job: Job) -> bool:
    """Return whether a job runs on a board that has to be attached, not on this computer or in an emulator."""
    if job.path.is_dir():
        described = manifest.load(job.path).project
        return described is not None and described.transport == "serial" and described.board.emulator is None
    target, options = boards.get(job.board or "host") if isinstance(job.board, str) else job.board, job.options
    if target.emulator is not None or not (options.template or target.templates):
        return False
    template, _ = project.choose(target, options.template, options.template_options)
    return template.transport == "serial"


def planned(job: Job, options: DebugOptions) -> tuple[DebugPlan, list[str]]:
    """Return the plan for a board, and the commands before it; nothing is written or run, and no board is used.

    As it is not known whether an inference faults, gdb stops at the named operator, or at the first.

    Raises:
        UsageError: the operator is unknown, or the board has no gdb server.
        MtoolError: the model can't be compiled.
    """
    path, deployment = job.path, job.deployment
    if path.is_dir():
        project_of(job)
        folder, described, before = path, manifest.load(path), list[str]()
    else:
        model = compile(path, board=job.board or "host", options=job.options, folder=deployment.folder)
        folder = deployment.folder or model.default_folder()
        before, described = build_plan(model, deployment.folder)
    on = described.in_project
    operator = find(described, options.operator) if options.operator else None
    address, serving = _server_of(folder, on, options, deployment, needed=False)
    stop = stop_at(described, operator, None)
    program = gdb_of(on.board.toolchain, options.gdb, needed=False)
    gdb = gdb_argv(program, _firmware_of(folder, described), stop, address, options)
    return DebugPlan(stop, gdb, serving, drives=True), before
