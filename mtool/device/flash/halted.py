"""An emulated board that waits for its firmware: started halted and empty, flashed through its gdb stub."""

from pathlib import Path

from mtool.boards import Emulator
from mtool.device.transport import ProcessTransport
from mtool.device.transport.emulator import Channel, command, free_port, start

_LOCALHOST = "127.0.0.1"


def argv(emulator: Emulator, elf: Path, port: str, *, channel: Channel = "semihosting") -> list[str]:
    """Return the emulator's argv without the firmware, halted, with its gdb stub at `port` ("host:port")."""
    words = command(emulator, elf, channel=channel)
    loads = [index for index, word in enumerate(words) if word in ("-kernel", "-bios") and str(elf) in words[index + 1]]
    kept = [word for index, word in enumerate(words) if index not in loads and index - 1 not in loads]
    return [*kept, "-gdb", f"tcp:{port}", "-S"]


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
    words = argv(emulator, elf, port, channel=channel)
    return start(emulator, words), port
