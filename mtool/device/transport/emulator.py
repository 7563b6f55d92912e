"""An emulated board: the firmware's bytes travel through the emulator's standard input and output, or by RTT."""

import socket
import time
from pathlib import Path
from typing import Literal

from mtool.base import proc
from mtool.base.errors import CommunicationError
from mtool.boards import Emulator
from mtool.device.transport import compiled
from mtool.device.transport.base import Transport
from mtool.device.transport.gdb_remote import GdbMemory
from mtool.device.transport.process import OnExit, ProcessTransport
from mtool.device.transport.rtt import RttTransport
from mtool.device.transport.serial import PtyTransport
from mtool.device.transport.through import Through

Channel = Literal["semihosting", "uart"]

# What an emulated UART moves at the least; a pipe moves what the default of ProcessTransport says.
_UART_BYTES_PER_SECOND = 2e3
_PTY_BAUD = 115200
_LOCALHOST = "127.0.0.1"
_STUB_S = 10.0  # until an emulator listens
_STUB_POLL_S = 0.02


def command(emulator: Emulator, elf: Path, *, channel: Channel = "semihosting") -> list[str]:
    """Return the emulator's argv for a firmware.

    Args:
        emulator: the program and its arguments, from the board's entry.
        elf: the firmware.
        channel: the machine's device that is connected to standard input and output.

    Raises:
        BuildError: the emulator has to be compiled first, and can't be.
    """
    connected = emulator.uart if channel == "uart" else emulator.semihosting
    program = compiled.program(emulator) if emulator.source else emulator.program
    parts = (program, *emulator.arguments, *connected)
    return [part.replace("{elf}", str(elf)) for part in parts]


def open_emulator(
    emulator: Emulator, elf: Path, *, channel: Channel = "semihosting", on_exit: OnExit | None = None
) -> Transport:
    """Start an emulator with a firmware.

    Args:
        emulator: the program and its arguments, from the board's entry.
        elf: the firmware.
        channel: the machine's device that is connected to standard input and output.
        on_exit: through semihosting, returns the error that the firmware's exit status stands for, if it does.

    Raises:
        BuildError: the emulator is not installed.
        CommunicationError: it can't be started.
    """
    argv = command(emulator, elf, channel=channel)
    proc.find(argv[0], hint="see what installs it: mtool doctor")
    name = f"the emulator {emulator.program if emulator.source else Path(argv[0]).name}"
    if channel == "uart" and emulator.announces:
        return PtyTransport(argv, name=name, announces=emulator.announces, baud=_PTY_BAUD)
    if channel == "uart":
        return ProcessTransport(argv, name=name, bytes_per_second=_UART_BYTES_PER_SECOND)
    return ProcessTransport(argv, name=name, on_exit=on_exit)


def open_emulator_rtt(emulator: Emulator, elf: Path, *, block: int, on_exit: OnExit | None = None) -> Transport:
    """Start an emulator with a firmware whose bytes travel by RTT, through the emulator's gdb stub.

    Args:
        emulator: the program and its arguments, from the board's entry.
        elf: the firmware.
        block: the address of RTT's control block.
        on_exit: returns the error that the firmware's exit status stands for, if it does.

    Raises:
        BuildError: the emulator is not installed.
        CommunicationError: it can't be started, or no control block comes.
    """
    port = free_port()
    argv = [*command(emulator, elf), "-gdb", f"tcp:{_LOCALHOST}:{port}", "-S"]
    proc.find(argv[0], hint="see what installs it: mtool doctor")
    process = ProcessTransport(argv, name=f"the emulator {Path(argv[0]).name}", on_exit=on_exit)
    return Through(process, lambda: RttTransport(_stub(process, port), block))


def free_port() -> int:
    """Return a TCP port of this computer that is free now."""
    with socket.socket() as probe:
        probe.bind((_LOCALHOST, 0))
        return int(probe.getsockname()[1])


def _stub(process: ProcessTransport, port: int) -> GdbMemory:
    """Connect to the gdb stub of an emulator that is starting."""
    deadline = time.monotonic() + _STUB_S
    while True:
        try:
            return GdbMemory(_LOCALHOST, port)
        except CommunicationError:
            process.read(timeout_s=_STUB_POLL_S)  # raises if the emulator has ended
            if time.monotonic() > deadline:
                raise
