"""Open a device from a built project folder."""

import functools
import logging
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import IO

from mtool import manifest
from mtool.base import files
from mtool.base.errors import BoardError, UsageError
from mtool.base.option_values import CHANNEL
from mtool.boards import Emulator, Usb
from mtool.device.flash import ports
from mtool.device.flash.ports import Attached
from mtool.device.rpc import Client
from mtool.device.session import faults
from mtool.device.session.connection import takes_modules
from mtool.device.session.device import Device
from mtool.device.transport import ProcessTransport, Recorder, Transport, UnicornTransport, WithFlash, unicorn
from mtool.device.transport.emulator import Channel, open_emulator
from mtool.device.transport.opening import control_block, open_port
from mtool.manifest import Project
from mtool.manifest.link_key import LinkKey, find

_KIND = "host_driven"
TIMEOUT_S = 10.0
_DEBUGGED_S = 24 * 3600.0  # debugging may take long
RTT = "rtt"
"""The value of the template option CHANNEL for SEGGER RTT."""

log = logging.getLogger(__name__)


def open(
    folder: str | Path,
    *,
    port: str = "",
    probe: str = "",
    timeout_s: float = TIMEOUT_S,
    emulator_arguments: Sequence[str] = (),
    take_over: bool = False,
    link_key: str | Path | LinkKey | None = None,
    record: IO[str] | None = None,
    model: str = "",
    work_s: float | None = None,
) -> Device:
    """Start the firmware of a built project and open a session with it; use it in a `with` statement.

    Args:
        folder: the folder of a built project, with its mtool.json.
        port: the serial port of a board that runs the firmware, tcp://HOST:PORT or rtt:...
            (mtool.device.transport.opening); "emulator": the emulator, even if a board is attached. Default: the
            board's emulator, or, if it has none or is also a real board, MTOOL_PORT, MTOOL_PROBE, mtool.toml, the only
            attached board.
        probe: the USB serial number of the board or its probe, or a prefix of it.
        timeout_s: how long the firmware may take to start and to answer.
        emulator_arguments: further arguments of the board's emulator.
        take_over: open the session even if a host on another computer has one open with the device, which then loses
            it. On this computer a port has one user at a time, and a session left open by a crashed program is
            always taken over.
        link_key: the device's link key, or its file; default: that in the folder, then MTOOL_LINK_KEY.
        record: receives each piece of data on the channel, with its time.
        model: the name of one of the firmware's models; default: the only one, or all: device["kws"].
        work_s: the default time limit of an inference in seconds; default: generous, from its estimated instructions.

    Raises:
        UsageError: the folder is not a project, its firmware is not built, or it has no such model.
        BuildError: the board's emulator is not installed.
        BoardError: no such board is attached, or several are.
        CommunicationError: the firmware does not answer, or is not the one in mtool.json.
    """
    path = Path(folder)
    described = manifest.load(path)
    if described.project is None or not takes_modules(described.project):
        described = manifest.load(path, model)
    project = manifest.project_of(described, path)
    firmware = None if project.is_own else manifest.firmware_of(path, project, _KIND)
    if firmware is not None:
        files.check_plain(firmware.with_name(f"{firmware.name}.flash"))  # project_templates/shared/storage_in_file.c

    def start() -> tuple[Transport, str]:
        transport, serial_number = _channel(path, project, port, probe, emulator_arguments)
        return (transport if record is None else Recorder(transport, record)), serial_number

    transport, serial_number = start()
    waits = _gdb_port(project) and not port and not probe
    device = Device(
        described,
        transport,
        timeout_s=_DEBUGGED_S if waits else timeout_s,
        serial_number=serial_number,
        reopen=lambda: start()[0],
        take_over=take_over,
        key=find(link_key, path),
        firmware=firmware,
        work_s=work_s,
    )
    if waits:
        device.work_s, device.is_limited = _DEBUGGED_S, False
    try:
        return device[model] if model else device
    except UsageError:
        device.close()
        raise


def check(folder: str | Path, *, port: str = "", probe: str = "", link_key: LinkKey | None = None) -> None:
    """Check now that the board at a port is present and runs the project's firmware, built or not.

    An emulator is not checked: it will run what is built.

    Raises:
        BoardError: no such board is attached, or several are.
        CommunicationError: the firmware does not answer, or is not the one in mtool.json.
    """
    described = manifest.load(Path(folder))
    project = described.project
    if project is None or attached(project, port, probe) is None:
        return
    firmware = manifest.firmware_of(Path(folder), project, _KIND).absolute()
    transport, serial_number = _transport(project, firmware, port, probe, ())
    key = find(link_key, Path(folder))
    with Device(described, transport, timeout_s=TIMEOUT_S, serial_number=serial_number, key=key):
        pass


def build_at(folder: str | Path, *, port: str, probe: str = "") -> str:
    """Return the first 16 hex digits of the build hash of the firmware at a port, whichever it is.

    Args:
        folder: of a project for the board at the port.
        port: as for `open`.
        probe: as for `open`.

    Raises:
        BoardError: no such board is attached.
        CommunicationError: no firmware answers.
    """
    project = manifest.project_of(manifest.load(Path(folder)), Path(folder))
    device = attached(project, port, probe)
    if device is None:
        return ""
    key = find(None, Path(folder))
    with closing(_at_port(project, device, None, probe)[0]) as transport, closing(Client(transport, key=key)) as client:
        return client.hello.build_hash


def open_transport(
    folder: str | Path,
    *,
    port: str = "",
    probe: str = "",
    kind: str = _KIND,
    emulator_arguments: Sequence[str] = (),
) -> Transport:
    """Start a firmware of a built project and return the channel to it, as `open` does, without a session.

    Args:
        folder: as for `open`.
        port: as for `open`.
        probe: as for `open`.
        kind: of the firmware, for a board that is emulated.
        emulator_arguments: further ones.

    Raises:
        MtoolError: as for `open`.
    """
    path = Path(folder)
    project = manifest.project_of(manifest.load(path), path)
    return _channel(path, project, port, probe, emulator_arguments, kind=kind)[0]


def _channel(
    path: Path, project: Project, port: str, probe: str, emulator_arguments: Sequence[str] = (), *, kind: str = _KIND
) -> tuple[Transport, str]:
    """Return the channel to a project's firmware, and the USB serial number of the device."""
    if project.is_own and (device := attached(project, port, probe)) is not None:
        return _at_port(project, device, None, probe)
    firmware = manifest.firmware_of(path, project, kind)
    if not firmware.is_file():
        raise UsageError(
            f"the firmware of {path} is not built", details=[f"expected: {firmware}"], hint="build it with: mtool build"
        )
    return _transport(project, firmware.absolute(), port, probe, emulator_arguments)


def attached(project: Project, port: str, probe: str) -> Attached | None:
    """Return the selected board on a serial port; None: the emulator, or the process.

    For a real board with an emulator, an attached board is used if there is one, else the emulator.

    Raises:
        BoardError: no such board is attached, or not the requested one, or several match.
        UsageError: the port is a malformed address, or one where the firmware will not answer.
    """
    board = project.board
    if port == ports.EMULATOR:
        ports.check_emulator(board)
        return None
    if not (port or probe or (project.transport == "serial" and board.emulator is None)):
        has_ports = project.transport == "serial" and board.usb is not None
        return ports.resolve(board, ports.selector()) if has_ports else None
    selector, channel = ports.selector(port, probe), project.options.get(CHANNEL)
    if channel == RTT and not selector.port:
        raise BoardError(
            f"the firmware for {board.name} uses RTT and needs a debugger to read it",
            hint="choose one: --port rtt:jlink, rtt:openocd, rtt:pyocd or rtt:gdb:HOST:PORT (docs/transports.md)",
        )
    device = ports.require(board, selector)
    if selector.port.startswith("rtt:") and channel not in (None, RTT):
        raise UsageError(
            f"--port {selector.port}: the firmware has no RTT", hint=f"build it with --option {CHANNEL}=rtt"
        )
    return device


def _gdb_port(project: Project) -> int:
    """Return the port at which QEMU waits for gdb, from the template's option; 0: it does not wait."""
    return int(project.options.get("gdbserver", 0))


def _transport(
    project: Project, firmware: Path, port: str, probe: str, emulator_arguments: Sequence[str]
) -> tuple[Transport, str]:
    emulator = project.board.emulator
    device = attached(project, port, probe)
    if device is not None:
        return _at_port(project, device, firmware, probe)
    if project.transport == "process":
        return ProcessTransport([str(firmware)], name=f"the process {firmware.name}"), ""
    if emulator is None:
        raise UsageError(
            f"{project.board.name} has no emulator",
            details=[f"the template {project.template} runs its firmware in one"],
            hint="choose another template: --template NAME",
        )
    waiting: tuple[str, ...] = ()
    if gdb_port := _gdb_port(project):
        log.warning("the emulator waits for gdb: target remote localhost:%d, then continue", gdb_port)
        waiting = ("-gdb", f"tcp:127.0.0.1:{gdb_port}", "-S")
    arguments = (*emulator.arguments, *waiting, *emulator_arguments)
    emulator = emulator.model_copy(update={"arguments": arguments})
    start = functools.partial(_emulate, project, emulator, firmware)
    if takes_modules(project):  # project_templates/shared/storage_in_file.c names the file
        return WithFlash(firmware.with_name(f"{firmware.name}.flash"), start), ""
    return start(), ""


def _at_port(project: Project, device: Attached, firmware: Path | None, probe: str) -> tuple[Transport, str]:
    baud = (project.board.usb or Usb()).uart
    return open_port(device.port, baud=baud, firmware=firmware, probe=probe), device.probe


def _emulate(project: Project, emulator: Emulator, firmware: Path) -> Transport:
    """Start a board's emulator, and return the channel to its firmware."""
    on_exit = functools.partial(faults.of_exit, board=project.board)
    if emulator.program == unicorn.PROGRAM:
        return UnicornTransport(project.board, firmware, on_exit=on_exit)
    block = control_block(firmware) if project.options.get(CHANNEL) == RTT else None
    by_uart = block is None and project.transport == "serial"
    channel: Channel = "uart" if by_uart else "semihosting"
    return open_emulator(emulator, firmware, channel=channel, on_exit=None if by_uart else on_exit, block=block)
