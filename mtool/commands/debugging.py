"""An inference under gdb, stopped where an operator begins: the one that faulted, or one that is named.

The inference is run once without gdb. What the host sent to the device then is what gdb's firmware reads: the same
inputs, and no host that loses patience while somebody looks at a breakpoint. On a board the host drives it again.
"""

import contextlib
import io
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtool import boards, manifest, project
from mtool.base import proc, spelling
from mtool.base.errors import BuildError, DeviceError, MtoolError, UsageError
from mtool.commands.execution import project_of
from mtool.device import session
from mtool.device.build.symbolizer import Symboliser
from mtool.device.flash import flashing, ports
from mtool.device.session import Device
from mtool.device.transport import ProcessTransport, Recorder
from mtool.device.transport.emulator import Channel, command, free_port
from mtool.manifest import Manifest, Operator, Project
from mtool.stages.building import HOST_DRIVEN, BuiltProject, build_plan
from mtool.stages.compiling import compile
from mtool.stages.deployment import DEFAULT, Deployment
from mtool.stages.job import Job
from mtool.stages.samples import Sample

_FAULT_HANDLER = "platform_fault"  # of a firmware without an operating system
_PATIENCE_S = 86_400.0  # of who drives a board while somebody debugs it
_START_S = 10.0
_LOCALHOST = "127.0.0.1"
_QEMU = "qemu-system-"
_GDBS: Mapping[str, Sequence[str]] = {  # by the beginning of a toolchain's name
    "arm-": ("arm-none-eabi-gdb", "gdb-multiarch"),
    "riscv": ("riscv64-unknown-elf-gdb", "riscv-none-elf-gdb", "gdb-multiarch"),
    "avr-": ("avr-gdb", "gdb-multiarch"),
    "xtensa": ("xtensa-esp32s3-elf-gdb", "xtensa-esp32-elf-gdb"),
    "cc": ("gdb",),
}


@dataclass(frozen=True, slots=True)
class Stop:
    """Where gdb stops: at which operator, and why there. `before`: how often its function is called before."""

    operator: Operator
    before: int
    fault: DeviceError | None = None

    def describe(self) -> str:
        """Return the operator as people call it, and its function."""
        return f"operator {self.operator.index}, {self.operator.label}, in {self.operator.function}"


@dataclass(frozen=True, slots=True)
class DebugPlan:
    """What is run: the program that serves gdb (none: gdb starts the firmware itself, or a server is there) and gdb."""

    stop: Stop
    gdb: tuple[str, ...]
    server: tuple[str, ...] = ()
    sent: bytes = b""
    drives: bool = False
    """The host has to drive a board, as nothing else gives the firmware its inputs."""


@dataclass(frozen=True, slots=True)
class DebugOptions:
    """The options of a debugging session.

    Attributes:
        operator: its number, name or node; empty: the one that faults, or the first.
        gdb: the program; empty: the one for the board's toolchain.
        server: the address of a gdb server that runs already, or the runner whose tool serves gdb; empty: the board's.
        commands: further commands for gdb, once it has stopped.
        batch: gdb ends after them.
    """

    operator: str = ""
    gdb: str = ""
    server: str = ""
    commands: Sequence[str] = ()
    batch: bool = False


def gdb_of(toolchain: str, name: str = "", *, needed: bool = True) -> str:
    """Return the gdb for a toolchain: the one that is named, else the first that is installed.

    `needed`: it will be run; else it need not be installed.

    Raises:
        BuildError: it is not installed.
    """
    names = (name,) if name else next((gdbs for begin, gdbs in _GDBS.items() if toolchain.startswith(begin)), ("gdb",))
    found = next((one for one in names if shutil.which(one)), None)
    if found is None and not needed:
        return names[0]
    if found is None:
        hint = "" if name else f"install one: sudo apt-get install {names[-1]}"
        raise BuildError(f"{' and '.join(names)}: not installed", details=["looked for on PATH"], hint=hint)
    return found


def find(described: Manifest, name: str) -> Operator:
    """Return the operator of a number, a name (conv_3, its function's too) or a node of the model.

    Raises:
        UsageError: there is none, or several; the message has the names that come near.
    """
    operators = described.operators
    found = [one for one in operators if name in (str(one.index), one.name, one.function, *one.origins)]
    exact = [one for one in found if name in (str(one.index), one.name)]
    if len(exact or found) == 1:
        return (exact or found)[0]
    if found:
        raise UsageError(
            f"{name!r} is {len(found)} operators", details=[f"{one.index}: {one.name}, {one.label}" for one in found]
        )
    names = [each for one in operators for each in (one.name, *one.origins)]
    raise UsageError(
        f"the model has no operator {name!r}",
        details=[f"it has 0 to {len(operators) - 1}"],
        hint=spelling.did_you_mean(name, names, otherwise="mtool bench --layers lists them"),
    )


def record(folder: Path, sample: Sample, deployment: Deployment = DEFAULT) -> tuple[bytes, DeviceError | None]:
    """Run one inference operator by operator; return what the host sent, and the fault that it ended with, if it did.

    Raises:
        MtoolError: the firmware does not answer.
    """
    lines = io.StringIO()
    described = manifest.load(folder)
    transport = session.open_transport(folder, port=deployment.port, probe=deployment.probe)
    fault = None
    try:
        firmware = _firmware_of(folder, described)
        with Device(described, Recorder(transport, lines), timeout_s=_START_S, firmware=firmware) as device:
            device.run(sample)
    except DeviceError as told:
        fault = told
    sent = [line.split(" ", 2) for line in lines.getvalue().splitlines()]
    return b"".join(bytes.fromhex(data) for _, direction, data in sent if direction == ">"), fault


def plan(prepared: BuiltProject, sample: Sample, asked: DebugOptions, deployment: Deployment = DEFAULT) -> DebugPlan:
    """Run an inference on a built project, and return what stops the next one at an operator.

    Raises:
        UsageError: there is no such operator, or nothing serves gdb for the board.
        BuildError: gdb is not installed.
        MtoolError: the firmware does not answer.
    """
    described, project = prepared.manifest, prepared.manifest.in_project
    board, firmware = prepared.board, _firmware_of(prepared.folder, described)
    wanted = find(described, asked.operator) if asked.operator else None
    program = gdb_of(board.toolchain, asked.gdb)
    if project.options.get("channel") == "rtt" and not deployment.port:
        raise UsageError(
            "RTT and gdb would both take the emulator's gdb stub",
            hint="build it without --option channel=rtt to debug it",
        )
    on_board = bool(deployment.port or deployment.probe or asked.server) or (
        project.transport == "serial" and board.emulator is None
    )
    if on_board:
        address, serving = _server_of(prepared.folder, project, asked, deployment, needed=True)
    else:
        address, serving = f"{_LOCALHOST}:{free_port()}", ()
        if board.emulator is not None:
            if not board.emulator.program.startswith(_QEMU):
                raise UsageError(
                    f"the emulator of {board.name} is none of QEMU's, whose gdb stub this needs",
                    hint="start a gdb server for it, and give its address: --server HOST:PORT; or debug it on "
                    "--board host",
                )
            channel: Channel = "uart" if project.transport == "serial" else "semihosting"
            serving = (*command(board.emulator, firmware, channel=channel), "-gdb", f"tcp:{address}", "-S")
    sent, fault = record(prepared.folder, sample, deployment)
    stop = stop_at(described, wanted, fault)
    remote = "" if project.transport == "process" and not on_board else address
    return DebugPlan(stop, gdb_argv(program, firmware, stop, remote, asked), serving, sent, drives=on_board)


def _firmware_of(folder: Path, described: Manifest) -> Path:
    return manifest.firmware_of(folder, described.in_project, HOST_DRIVEN).absolute()


def _server_of(
    folder: Path, on: Project, asked: DebugOptions, deployment: Deployment, *, needed: bool
) -> tuple[str, tuple[str, ...]]:
    """Return the address of a board's gdb server, and the command that starts it; none, if a server runs already.

    `needed`: it will be started; else neither its tool nor the board has to be there.
    """
    if ":" in asked.server:
        return asked.server, ()
    name = flashing.choose_gdb_server(on.board, asked.server, template=on.template)
    runner, want = flashing.all_runners()[name], ports.wanted(deployment.port, deployment.probe)
    device = ports.require(on.board, want) if needed else ports.resolve(on.board, want)
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
        chosen: what `plan` returned.
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
            _beside(lambda: _replay(server, b"" if chosen.drives else chosen.sent))
        if chosen.drives:
            _beside(lambda: _drive(prepared.folder, sample, deployment))
        return proc.interactive(argv, output=output)


def stop_at(described: Manifest, wanted: Operator | None, fault: DeviceError | None) -> Stop:
    """Return where gdb stops: at the operator that is wanted, else at the one that faulted, else at the first."""
    operators = described.operators
    at = wanted
    if at is None and fault is not None:
        at = next((one for one in operators if one.index == fault.operator), None)
    at = at or operators[0]
    before = sum(1 for one in operators if one.function == at.function and one.index < at.index)
    return Stop(at, before, fault)


def gdb_argv(program: str, firmware: Path, stop: Stop, remote: str, asked: DebugOptions) -> tuple[str, ...]:
    """Return the arguments of a gdb that stops there; a fault handler is looked for in a firmware that is built."""
    said = ["set pagination off", "set confirm off", *([f"target remote {remote}"] if remote else [])]
    said.append(f"break {stop.operator.function}")
    if stop.before:
        said.append(f"ignore 1 {stop.before}")
    if firmware.is_file():
        with Symboliser(firmware) as symbols:
            if symbols.address(_FAULT_HANDLER) is not None:
                said.append(f"break {_FAULT_HANDLER}")
    said += ["continue" if remote else "run < {sent} > /dev/null", *asked.commands]
    batch = ("-batch",) if asked.batch else ()
    return (program, "-q", *batch, str(firmware), *(word for line in said for word in ("-ex", line)))


def _beside(work: Callable[[], None]) -> None:
    def act() -> None:
        with contextlib.suppress(MtoolError):  # gdb, or its user, has ended it
            work()

    threading.Thread(target=act, daemon=True).start()


def _replay(server: ProcessTransport, sent: bytes) -> None:
    server.write(sent, timeout_s=_PATIENCE_S)
    while True:
        server.read(timeout_s=_PATIENCE_S)


def _drive(folder: Path, sample: Sample, deployment: Deployment) -> None:
    with session.open(folder, port=deployment.port, probe=deployment.probe, timeout_s=_PATIENCE_S) as device:
        device.run(sample, timeout_s=_PATIENCE_S)


# The commands that `mtool debug` would run for a board on a cable, which need not be there.


def is_cabled(job: Job) -> bool:
    """Tell whether what is debugged runs on a board that has to be attached: it is not this computer, nor emulated."""
    if job.path.is_dir():
        described = manifest.load(job.path).project
        return described is not None and described.transport == "serial" and described.board.emulator is None
    target, options = boards.get(job.board or "host") if isinstance(job.board, str) else job.board, job.options
    if target.emulator is not None or not (options.template or target.templates):
        return False
    template, _ = project.choose(target, options.template, options.template_options)
    return template.transport == "serial"


def planned(job: Job, asked: DebugOptions) -> tuple[DebugPlan, list[str]]:
    """Return what would be run on a board, and the commands before it; nothing is written, run or asked of a board.

    Whether an inference faults is not known, so that gdb stops at the operator that is named, or at the first.

    Raises:
        UsageError: there is no such operator, or nothing serves gdb for the board.
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
    wanted = find(described, asked.operator) if asked.operator else None
    address, serving = _server_of(folder, on, asked, deployment, needed=False)
    stop = stop_at(described, wanted, None)
    program = gdb_of(on.board.toolchain, asked.gdb, needed=False)
    gdb = gdb_argv(program, _firmware_of(folder, described), stop, address, asked)
    return DebugPlan(stop, gdb, serving, drives=True), before
