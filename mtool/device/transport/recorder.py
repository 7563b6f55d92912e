"""Write down what goes over a transport."""

import time
from typing import IO

from mtool.device.transport.base import Transport


class Recorder(Transport):
    """Pass everything on to another transport, and write a line for each piece: seconds, direction, bytes in hex.

    Args:
        inner: the transport to use; closed with this one.
        lines: where to write; left open.
    """

    def __init__(self, inner: Transport, lines: IO[str]) -> None:
        self._inner = inner
        self._lines = lines
        self._start = time.monotonic()
        self.name = inner.name
        self.bytes_per_second = inner.bytes_per_second
        self.is_lossless = inner.is_lossless
        self.is_exclusive = inner.is_exclusive
        self.baud = inner.baud

    def write(self, data: bytes, *, timeout_s: float) -> None:
        """Record and send."""
        self._record(">", data)
        self._inner.write(data, timeout_s=timeout_s)

    def read(self, *, timeout_s: float) -> bytes:
        """Receive and record."""
        data = self._inner.read(timeout_s=timeout_s)
        if data:
            self._record("<", data)
        return data

    def set_baud(self, baud: int) -> None:
        """Set the inner transport's rate."""
        self._inner.set_baud(baud)
        self.baud = self._inner.baud

    def close(self) -> None:
        """Close the inner transport."""
        self._inner.close()

    def _record(self, direction: str, data: bytes) -> None:
        self._lines.write(f"{time.monotonic() - self._start:.6f} {direction} {data.hex()}\n")
