"""An emulated UART that is a pseudo-terminal: the program says which, and it is opened as a serial port."""

import time
from collections.abc import Sequence

from mtool.base.errors import CommunicationError
from mtool.device.transport.process import ProcessTransport
from mtool.device.transport.serial import SerialTransport
from mtool.device.transport.through import Through


class PtyTransport(Through):
    """Start a program, wait for the line that names its pseudo-terminal, and speak to it through that.

    Args:
        argv: the program and its arguments.
        name: what it is, for messages.
        announces: the text on its standard output after which the terminal's name stands, up to a blank.
        baud: bits per second.
        timeout_s: how long the program may take to name it.

    Raises:
        CommunicationError: it can't be started, ends, or names none.
    """

    def __init__(self, argv: Sequence[str], *, name: str, announces: str, baud: int, timeout_s: float = 10.0) -> None:
        process = ProcessTransport(argv, name=name)
        super().__init__(process, lambda: SerialTransport(_announced(process, announces, timeout_s), baud=baud))


def _announced(process: ProcessTransport, announces: str, timeout_s: float) -> str:
    """Return the name that the program prints after `announces`."""
    deadline = time.monotonic() + timeout_s
    printed = ""
    while (left := deadline - time.monotonic()) > 0:
        printed += process.read(timeout_s=left).decode(errors="replace")
        _, found, name = printed.partition(announces)
        if found and any(blank in name for blank in " \r\n"):
            return name.split()[0]
    raise CommunicationError(
        f"{process.name} named no terminal within {timeout_s:.3g} s",
        details=[f"expected: {announces!r} and a name", *printed.splitlines()[-5:]],
    )
