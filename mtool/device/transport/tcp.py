"""A channel over TCP: a serial port behind a network (ser2net, a Wi-Fi module), or a program that reads RTT."""

import selectors
import socket
import time

from mtool.base.errors import CommunicationError
from mtool.device.transport.base import Transport

_CHUNK = 1 << 16
_CONNECT_S = 5.0
_USUAL_BYTES_PER_SECOND = 960.0  # what lies behind may be a line of 9,600 baud


class TcpTransport(Transport):
    """Connect to a host and exchange bytes as they are.

    What lies behind may lose bytes: a serial line, a ring buffer of RTT.

    Args:
        host: its name or address.
        port: the TCP port.
        name: what it is, for messages.
        hint: what to try where nothing listens.
        greeting: bytes to send at once.
        bytes_per_second: the least that what lies behind moves in each direction.

    Raises:
        CommunicationError: nothing listens there, or the host is not known.
    """

    is_lossless = False
    is_exclusive = False

    def __init__(
        self,
        host: str,
        port: int,
        *,
        name: str = "",
        hint: str = "",
        greeting: bytes = b"",
        bytes_per_second: float = _USUAL_BYTES_PER_SECOND,
    ) -> None:
        self.name = name or f"tcp://{host}:{port}"
        self.bytes_per_second = bytes_per_second
        self._arrived: list[bytes] = []
        self._is_open = False
        try:
            self._socket = socket.create_connection((host, port), timeout=_CONNECT_S)
        except (OSError, UnicodeError) as failed:
            reason = failed.strerror if isinstance(failed, OSError) else "that is no host's name"
            raise CommunicationError(
                f"{self.name} can't be reached",
                details=[f"{host} port {port}: {reason or failed}"],
                hint=hint or "does something listen there?",
            ) from None
        self._is_open = True
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self.write(greeting, timeout_s=_CONNECT_S)

    def write(self, data: bytes, *, timeout_s: float) -> None:
        """Send all of `data`; reads what arrives meanwhile, so that full buffers never block both ends."""
        deadline = time.monotonic() + timeout_s
        left = memoryview(data)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                if not self._wait(deadline - time.monotonic(), to_write=True):
                    raise CommunicationError(f"{self.name} took no more bytes within {timeout_s:.3g} s") from None
                if received := self._receive():
                    self._arrived.append(received)
            except OSError as failed:
                raise self._lost(failed.strerror or str(failed)) from None

    def read(self, *, timeout_s: float) -> bytes:
        """Return what has arrived, once there is something; empty after `timeout_s` without a byte."""
        if self._arrived:
            data = b"".join(self._arrived)
            self._arrived.clear()
            return data
        return self._receive() or (self._receive() if self._wait(timeout_s, to_write=False) else b"")

    def close(self) -> None:
        """Close the connection."""
        self._is_open = False
        self._socket.close()

    def _receive(self) -> bytes:
        """Return what is there, empty if nothing is.

        Raises:
            CommunicationError: the other end has closed the connection.
        """
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return b""
        except OSError as failed:
            raise self._lost(failed.strerror or str(failed)) from None
        if not data:
            raise self._lost("the other end closed the connection")
        return data

    def _wait(self, timeout_s: float, *, to_write: bool) -> bool:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ | (selectors.EVENT_WRITE if to_write else 0))
                return bool(selector.select(max(timeout_s, 0.0)))
        except ValueError:  # of a socket that is closed
            raise self._lost("") from None

    def _lost(self, reason: str) -> CommunicationError:
        if not self._is_open:
            return CommunicationError(f"{self.name} was closed")
        return CommunicationError(f"{self.name} has gone", details=[reason])
