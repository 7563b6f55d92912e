"""The interface of a transport."""

import time
from abc import abstractmethod
from pathlib import Path
from typing import IO

from mtool.base.errors import CommunicationError
from mtool.base.proc import Closing


class Transport(Closing):
    """A byte channel to a device: bytes arrive in order, or not at all, or damaged.

    Attributes:
        name: the name of the other end in messages ("the emulator qemu-system-arm").
        bytes_per_second: the lowest rate in each direction; deadlines follow from it.
        is_lossless: nothing is ever lost or damaged, so frames may be as large as the device accepts.
        is_exclusive: no other program can reach the device at the same time, so a session that is open there is no
            longer in use.
        is_process: the device is a process that was started for the transport, so there can be several.
        baud: bits per second if it can be chosen; else None.
        flash: the file with an emulated device's flash; else None.
    """

    name: str
    bytes_per_second: float
    is_lossless: bool
    is_exclusive: bool = True
    is_process: bool = False
    baud: int | None = None
    flash: Path | None = None
    _arrived: bytearray
    """Bytes that arrived while others were sent."""

    def _drain(self) -> bytes:
        """Return the bytes that arrived while others were sent."""
        data = bytes(self._arrived)
        self._arrived.clear()
        return data

    def _lost(self, reason: str, *, is_open: bool, hint: str = "") -> CommunicationError:
        """Return the error for a channel that was closed here, or was lost."""
        if not is_open:
            return CommunicationError(f"{self.name} was closed")
        return CommunicationError(f"the connection to {self.name} was lost", details=[reason], hint=hint)

    @abstractmethod
    def write(self, data: bytes, *, timeout_s: float) -> None:
        """Send all of `data`. Bytes that arrive meanwhile are kept for `read`.

        Raises:
            CommunicationError: the channel was closed, or did not accept the bytes within `timeout_s`.
        """

    @abstractmethod
    def read(self, *, timeout_s: float) -> bytes:
        """Return the bytes that have arrived, as soon as there are any; empty after `timeout_s` without a byte.

        Raises:
            CommunicationError: the channel was closed; the message says why, if that is known.
        """

    def set_baud(self, baud: int) -> None:
        """Continue at another rate, if `baud` is not None; bytes that have arrived are discarded.

        Raises:
            CommunicationError: the channel was closed, or does not support the rate.
        """
        raise NotImplementedError(f"{self.name} has no baud rate")

    @abstractmethod
    def close(self) -> None:
        """Release the channel and end what was started for it. May be called again."""


class Wrapper(Transport):
    """A transport that forwards everything to another one, which is closed with it."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.name, self.bytes_per_second, self.baud = inner.name, inner.bytes_per_second, inner.baud
        self.is_lossless, self.is_exclusive = inner.is_lossless, inner.is_exclusive
        self.is_process, self.flash = inner.is_process, inner.flash

    def write(self, data: bytes, *, timeout_s: float) -> None:
        """Send all of `data`."""
        self._inner.write(data, timeout_s=timeout_s)

    def read(self, *, timeout_s: float) -> bytes:
        """Return the bytes that have arrived, as soon as there are any; empty after `timeout_s` without a byte."""
        return self._inner.read(timeout_s=timeout_s)

    def set_baud(self, baud: int) -> None:
        """Set the inner transport's rate."""
        self._inner.set_baud(baud)
        self.baud = self._inner.baud

    def close(self) -> None:
        """Close the inner transport."""
        self._inner.close()


class Recorder(Wrapper):
    """Write a line for each piece of data on a transport: seconds, direction, bytes in hex.

    Args:
        inner: the transport to use; closed with this one.
        lines: where to write; left open.
    """

    def __init__(self, inner: Transport, lines: IO[str]) -> None:
        super().__init__(inner)
        self._lines = lines
        self._start = time.monotonic()

    def write(self, data: bytes, *, timeout_s: float) -> None:
        """Record and send."""
        self._record(">", data)
        super().write(data, timeout_s=timeout_s)

    def read(self, *, timeout_s: float) -> bytes:
        """Receive and record."""
        data = super().read(timeout_s=timeout_s)
        if data:
            self._record("<", data)
        return data

    def _record(self, direction: str, data: bytes) -> None:
        self._lines.write(f"{time.monotonic() - self._start:.6f} {direction} {data.hex()}\n")
