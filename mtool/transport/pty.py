"""An emulated UART that is a pseudo-terminal: the program says which, and it is opened as a serial port."""

import time
from collections.abc import Sequence

from mtool.errors import CommunicationError
from mtool.transport.base import Transport
from mtool.transport.process import ProcessTransport
from mtool.transport.serial import SerialTransport

_ENDING_S = 1.0


class PtyTransport(Transport):
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

    is_lossless = False

    def __init__(self, argv: Sequence[str], *, name: str, announces: str, baud: int, timeout_s: float = 10.0) -> None:
        self.name = name
        self._process = ProcessTransport(argv, name=name)
        try:
            self._port = SerialTransport(_announced(self._process, announces, timeout_s), baud=baud)
        except BaseException:
            self._process.close()
            raise
        self.bytes_per_second = self._port.bytes_per_second

    def write(self, data: bytes, *, timeout_s: float) -> None:
        """Send all of `data`."""
        try:
            self._port.write(data, timeout_s=timeout_s)
        except CommunicationError:
            self._raise_if_ended()
            raise

    def read(self, *, timeout_s: float) -> bytes:
        """Return what has arrived, once there is something; empty after `timeout_s` without a byte."""
        try:
            return self._port.read(timeout_s=timeout_s)
        except CommunicationError:
            self._raise_if_ended()
            raise

    def close(self) -> None:
        """Close the terminal and end the program."""
        self._port.close()
        self._process.close()

    def _raise_if_ended(self) -> None:
        """Let the program's own end be the error, if it has ended: the terminal goes a moment before it."""
        while self._process.read(timeout_s=_ENDING_S):
            pass


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
