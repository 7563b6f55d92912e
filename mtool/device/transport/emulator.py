"""An emulated board: the firmware's bytes pass through the emulator's standard input and output, or RTT."""

import hashlib
import socket
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from mtool.base import proc, resources
from mtool.base.errors import BuildError, CommunicationError, UsageError
from mtool.boards import Emulator
from mtool.device.transport.base import Transport
from mtool.device.transport.gdb_remote import GdbMemory
from mtool.device.transport.process import OnExit, ProcessTransport
from mtool.device.transport.rtt import RttTransport
from mtool.device.transport.serial import through_terminal
from mtool.device.transport.through import Through

Channel = Literal["semihosting", "uart"]

FAULT = "escalating irq"
"""What QEMU prints of a fault with the arguments of `ending`."""

# The lowest rate of an emulated UART; a pipe's is ProcessTransport's default.
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
        BuildError: the emulator has to be compiled first, which failed.
    """
    connected = emulator.uart if channel == "uart" else emulator.semihosting
    program = compiled_program(emulator) if emulator.source else emulator.program
    parts = (program, *emulator.arguments, *connected)
    return [part.replace("{elf}", str(elf)) for part in parts]


def ending(emulator: Emulator) -> tuple[str, ...]:
    """Return arguments with which QEMU ends when a program does that restarts its board, and reports faults."""
    if not emulator.program.startswith("qemu-"):
        return ()
    faults = ("-trace", "nvic_escalate_disabled", "-trace", "nvic_escalate_prio")
    return ("-no-reboot", *(faults if emulator.program == "qemu-system-arm" else ()))


def start(emulator: Emulator, argv: Sequence[str], **options: Any) -> ProcessTransport:
    """Start an emulator by its argv, and return the channel to its standard input and output.

    Raises:
        BuildError: the emulator is not installed.
        CommunicationError: it can't be started.
    """
    proc.find(argv[0], hint="run mtool doctor to see how to install it")
    name = emulator.program if emulator.source else Path(argv[0]).name
    return ProcessTransport(argv, name=f"the emulator {name}", **options)


def open_emulator(
    emulator: Emulator,
    elf: Path,
    *,
    channel: Channel = "semihosting",
    on_exit: OnExit | None = None,
    block: int | None = None,
) -> Transport:
    """Start an emulator with a firmware.

    Args:
        emulator: the program and its arguments, from the board's entry.
        elf: the firmware.
        channel: the machine's device that is connected to standard input and output.
        on_exit: through semihosting or RTT, returns the error for the firmware's exit status, or None.
        block: the address of RTT's control block: then RTT is used, through the emulator's gdb stub.

    Raises:
        BuildError: the emulator is not installed.
        CommunicationError: it can't be started, or there is no control block.
    """
    argv = command(emulator, elf, channel=channel)
    if block is not None:
        port = free_port()
        process = start(emulator, [*argv, "-gdb", f"tcp:{_LOCALHOST}:{port}", "-S"], on_exit=on_exit)
        return Through(process, lambda: RttTransport(_stub(process, port), block))
    if channel == "semihosting":
        return start(emulator, argv, on_exit=on_exit)
    if not emulator.announces:
        return start(emulator, argv, bytes_per_second=_UART_BYTES_PER_SECOND)
    process = start(emulator, argv)
    return through_terminal(process, announces=emulator.announces, baud=_PTY_BAUD)


def halted_command(emulator: Emulator, elf: Path, port: str, *, channel: Channel = "semihosting") -> list[str]:
    """Return the emulator's argv without the firmware, halted, with its gdb stub at `port` ("host:port")."""
    words = command(emulator, elf, channel=channel)
    loads = [index for index, word in enumerate(words) if word in ("-kernel", "-bios") and str(elf) in words[index + 1]]
    argv = [word for index, word in enumerate(words) if index not in loads and index - 1 not in loads]
    return [*argv, "-gdb", f"tcp:{port}", "-S"]


def open_halted(emulator: Emulator, elf: Path, *, channel: Channel = "semihosting") -> tuple[ProcessTransport, str]:
    """Start an emulator that waits, and return the channel to its firmware and the address of its gdb stub.

    Args:
        emulator: the program and its arguments, from the board's entry.
        elf: the firmware that will be flashed.
        channel: the machine's device that is connected to standard input and output.

    Raises:
        BuildError: the emulator is not installed.
        CommunicationError: it can't be started.
    """
    port = f"{_LOCALHOST}:{free_port()}"
    words = halted_command(emulator, elf, port, channel=channel)
    return start(emulator, words), port


def free_port() -> int:
    """Return a free TCP port of this computer."""
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


# An emulator that is a library: its small program is beside this file and is compiled on first use.


_COMPILE_S = 60.0


def compiled_program(emulator: Emulator) -> str:
    """Return the program of an emulator that has a `source`; compile it if it does not exist.

    Raises:
        BuildError: there is no C compiler, the library is not installed, or its program does not compile.
        UsageError: there is no folder for it.
    """
    compiler = proc.find("cc", hint=f"sudo apt-get install gcc libc6-dev {emulator.package}")
    libraries = [_library(compiler, name, emulator) for name in emulator.libraries]
    source = Path(__file__).parent / emulator.source
    parts = [source.read_bytes(), *(library.encode() for library in libraries)]
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    target = _folder() / f"{emulator.program}-{key}"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            program = Path(folder) / emulator.program
            argv = [compiler, "-O2", "-o", str(program), str(source), *(f"-l{name}" for name in emulator.libraries)]
            try:
                proc.run(argv, what=f"build of the emulator {emulator.program}", timeout_s=_COMPILE_S)
            except BuildError as failed:
                raise BuildError(failed.what, details=failed.details, hint=_install(emulator)) from None
            program.replace(target)
    return str(target)


def _library(compiler: str, name: str, emulator: Emulator) -> str:
    """Return a library's file, with its version: another version needs another program."""
    argv = [compiler, f"-print-file-name=lib{name}.so"]
    path = Path(proc.run(argv, what=f"search for lib{name}", timeout_s=_COMPILE_S).output.strip())
    if not path.is_absolute():  # the compiler prints the bare name if the file is missing
        raise BuildError(
            f"lib{name} is not installed", details=[f"{emulator.program} needs it"], hint=_install(emulator)
        )
    return str(path.resolve())


def _install(emulator: Emulator) -> str:
    return f"sudo apt-get install {emulator.package}"


def _folder() -> Path:
    state = resources.state_folder()
    if state is None:
        raise UsageError("there is no folder for mtool's state", hint="set XDG_STATE_HOME to a folder")
    return state / "emulators"
