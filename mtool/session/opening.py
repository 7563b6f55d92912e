"""From a built project folder to a device."""

import functools
import logging
from collections.abc import Sequence
from pathlib import Path

from mtool import manifest
from mtool.boards import Usb
from mtool.errors import UsageError
from mtool.flash import ports
from mtool.manifest import Manifest, Project
from mtool.session import faults
from mtool.session.device import Device
from mtool.transport import ProcessTransport, SerialTransport, Transport, UnicornTransport, open_emulator, unicorn

_KIND = "host_driven"
_TIMEOUT_S = 10.0
_DEBUGGED_S = 24 * 3600.0  # whoever debugs takes his time

log = logging.getLogger(__name__)


def open(
    folder: str | Path,
    *,
    port: str = "",
    probe: str = "",
    timeout_s: float = _TIMEOUT_S,
    emulator_arguments: Sequence[str] = (),
    take_over: bool = False,
) -> Device:
    """Start the firmware of a built project and open a session with it; use it in a `with` statement.

    Args:
        folder: a project folder that is built, with its mtool.json.
        port: the serial port of a board that runs the firmware; default: the board's emulator, or, if it has none,
            MTOOL_PORT, MTOOL_PROBE, mtool.toml, the single board that is attached.
        probe: the USB serial number of the board or its probe, or the beginning of it.
        timeout_s: how long the firmware may take to start and to answer.
        emulator_arguments: further arguments of the board's emulator.
        take_over: open the session even if a host on another computer has one open with the device, which then loses
            it. On this computer a port has one user at a time, and what a program that crashed has left open is
            taken over anyway.

    Raises:
        UsageError: the folder is no project, or its firmware is not built.
        BuildError: the board's emulator is not installed.
        BoardError: no such board is attached, or several are.
        CommunicationError: the firmware does not answer, or is another than mtool.json says.
    """
    described = manifest.load(Path(folder))

    def start() -> tuple[Transport, str]:
        return _channel(Path(folder), described, port, probe, emulator_arguments)

    transport, serial_number = start()
    assert described.project is not None  # _channel has looked
    waits = _gdb_port(described.project) and not port and not probe
    device = Device(
        described,
        transport,
        timeout_s=_DEBUGGED_S if waits else timeout_s,
        serial_number=serial_number,
        reopen=lambda: start()[0],
        take_over=take_over,
        firmware=Path(folder) / described.project.firmware[_KIND],
    )
    device.work_s = _DEBUGGED_S if waits else device.work_s
    return device


def open_transport(folder: str | Path, *, port: str = "", probe: str = "") -> Transport:
    """Start the firmware of a built project and return the channel to it, as `open` does, without a session.

    Raises:
        MtoolError: as `open` does.
    """
    path = Path(folder)
    return _channel(path, manifest.load(path), port, probe)[0]


def _channel(
    path: Path, described: Manifest, port: str, probe: str, emulator_arguments: Sequence[str] = ()
) -> tuple[Transport, str]:
    """Return the channel to a project's firmware, and the USB serial number of what it leads to."""
    project = described.project
    if project is None:
        raise UsageError(
            f"{path} holds a compiled model, not a project",
            details=[f"its {manifest.FILE_NAME} has no project"],
            hint="make one with: mtool build",
        )
    if _KIND not in project.firmware:
        raise UsageError(
            f"the template {project.template} has no {_KIND} firmware",
            details=[f"it has: {', '.join(project.firmware) or 'none'}"],
        )
    firmware = manifest.firmware_of(path, project, _KIND)
    if not firmware.is_file():
        raise UsageError(
            f"the firmware of {path} is not built", details=[f"expected: {firmware}"], hint="build it with: mtool build"
        )
    return _transport(project, firmware.absolute(), port, probe, emulator_arguments)


def _gdb_port(project: Project) -> int:
    """Return the port at which QEMU waits for gdb, as the template's option says; 0: it does not."""
    return int(project.options.get("gdbserver", 0))


def _waiting(project: Project) -> tuple[str, ...]:
    """Return the arguments with which QEMU waits for gdb, if it is to."""
    port = _gdb_port(project)
    if not port:
        return ()
    log.warning("the emulator waits for gdb: target remote localhost:%d, then continue", port)
    return ("-gdb", f"tcp:127.0.0.1:{port}", "-S")


def _transport(
    project: Project, firmware: Path, port: str, probe: str, emulator_arguments: Sequence[str]
) -> tuple[Transport, str]:
    if port or probe or (project.transport == "serial" and project.board.emulator is None):
        device = ports.require(project.board, ports.wanted(port, probe))
        return SerialTransport(device.port, baud=(project.board.usb or Usb()).uart), device.probe
    if project.transport == "process":
        return ProcessTransport([str(firmware)], name=f"the process {firmware.name}"), ""
    if project.board.emulator is None:
        raise UsageError(
            f"{project.board.name} has no emulator",
            details=[f"the template {project.template} drives the firmware in one"],
            hint="choose another template: --template NAME",
        )
    arguments = (*project.board.emulator.arguments, *_waiting(project), *emulator_arguments)
    emulator = project.board.emulator.model_copy(update={"arguments": arguments})
    if project.transport == "serial":
        return open_emulator(emulator, firmware, channel="uart"), ""
    on_exit = functools.partial(faults.of_exit, board=project.board)
    if emulator.program == unicorn.PROGRAM:
        return UnicornTransport(project.board, firmware, on_exit=on_exit), ""
    return open_emulator(emulator, firmware, on_exit=on_exit), ""
