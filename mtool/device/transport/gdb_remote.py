"""A device's memory through a gdb server: QEMU's stub, OpenOCD, pyOCD, J-Link's, a Black Magic Probe.

The GDB Remote Serial Protocol ("Debugging with GDB", appendix E): packets `$...#checksum`, acknowledged by +. A server
does not answer while its target runs, so an access stops it (a byte 0x03) and then continues it (`c`).
"""

import contextlib
import re
import selectors
import socket
import time
from collections.abc import Iterator

from mtool.base.errors import CommunicationError
from mtool.device.transport.base import Transport

_CHUNK = 1 << 16
_CONNECT_S = 5.0
_USUAL_BYTES_PER_SECOND = 960.0  # there may be a serial line of 9,600 baud behind the port


class TcpTransport(Transport):
    """Connect to a host and exchange bytes as they are.

    Bytes may be lost behind it: by a serial line, or by RTT's ring buffer.

    Args:
        host: its name or address.
        port: the TCP port.
        name: the name of the other end in messages.
        hint: what to try if nothing listens.
        greeting: bytes to send first.
        bytes_per_second: the lowest rate in each direction, including what is behind the port.

    Raises:
        CommunicationError: nothing listens there, or the host is unknown.
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
        self._arrived = bytearray()
        self._is_open = False
        try:
            self._socket = socket.create_connection((host, port), timeout=_CONNECT_S)
        except (OSError, UnicodeError) as failed:
            reason = failed.strerror if isinstance(failed, OSError) else "the host name is invalid"
            what = f"can't connect to {self.name}"
            details = [f"{host} port {port}: {reason or failed}"]
            raise CommunicationError(what, details=details, hint=hint or "check that a server listens there") from None
        self._is_open = True
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self.write(greeting, timeout_s=_CONNECT_S)

    def write(self, data: bytes, *, timeout_s: float) -> None:
        """Send all of `data`; receives meanwhile, so that full buffers never block both ends."""
        deadline = time.monotonic() + timeout_s
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                if not self._wait(deadline - time.monotonic(), to_write=True):
                    raise CommunicationError(f"{self.name} did not accept all bytes within {timeout_s:.3g} s") from None
                self._arrived += self._receive()
            except OSError as failed:
                raise self._lost(failed.strerror or str(failed), is_open=self._is_open) from None

    def read(self, *, timeout_s: float) -> bytes:
        """Return the bytes that have arrived, as soon as there are any; empty after `timeout_s` without a byte."""
        return self._drain() or self._receive() or (self._receive() if self._wait(timeout_s, to_write=False) else b"")

    def close(self) -> None:
        """Close the connection."""
        self._is_open = False
        self._socket.close()

    def _receive(self) -> bytes:
        """Return the available bytes; empty if there are none.

        Raises:
            CommunicationError: the other end closed the connection.
        """
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return b""
        except OSError as failed:
            raise self._lost(failed.strerror or str(failed), is_open=self._is_open) from None
        if not data:
            raise self._lost("the other end closed the connection", is_open=self._is_open)
        return data

    def _wait(self, timeout_s: float, *, to_write: bool) -> bool:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ | (selectors.EVENT_WRITE if to_write else 0))
                return bool(selector.select(max(timeout_s, 0.0)))
        except ValueError:  # the socket is closed
            raise self._lost("", is_open=self._is_open) from None


_ANSWER_S = 5.0
_MOST_BYTES = 512  # of memory in a packet; servers accept at least 400 hex digits
_PACKET = re.compile(rb"\$([^#$]*)#([0-9a-fA-F]{2})", re.DOTALL)
_ESCAPED = re.compile(rb"}(.)", re.DOTALL)
_REPEATED = re.compile(rb"(.)\*(.)", re.DOTALL)


class GdbMemory:
    """The memory of the device behind a gdb server; the device continues to run between two accesses.

    Args:
        host: the server's host.
        port: its TCP port.

    Raises:
        CommunicationError: nothing listens there, or it is not a gdb server.
    """

    def __init__(self, host: str, port: int) -> None:
        self.name = f"the gdb server {host}:{port}"
        hint = "start one: pyocd gdbserver, openocd, JLinkGDBServer; or QEMU with -gdb tcp::PORT"
        self._channel = TcpTransport(host, port, name=self.name, hint=hint)
        self._received = b""
        self._is_held = False
        try:
            self._send(b"?")
            self._stopped(self._packet())  # a server stops its target when a client connects
            self._resume()
        except BaseException:
            self._channel.close()
            raise

    def read(self, address: int, count: int) -> bytes:
        """Return `count` bytes."""
        data = b""
        while len(data) < count:
            piece = min(count - len(data), _MOST_BYTES)
            answer = self._ask(f"m{address + len(data):x},{piece:x}".encode())
            try:
                received = bytes.fromhex(answer.decode("ascii"))
            except ValueError:
                received = b""
            if len(received) != piece:
                what = f"{self.name} can't read {piece} B at 0x{address + len(data):08x}"
                raise CommunicationError(what, details=[f"its answer: {answer!r}"])
            data += received
        return data

    def write(self, address: int, data: bytes) -> None:
        """Write all of `data`."""
        for begin in range(0, len(data), _MOST_BYTES):
            piece = data[begin : begin + _MOST_BYTES]
            answer = self._ask(f"M{address + begin:x},{len(piece):x}:{piece.hex()}".encode())
            if answer != b"OK":
                what = f"{self.name} can't write {len(piece)} B at 0x{address + begin:08x}"
                raise CommunicationError(what, details=[f"its answer: {answer!r}"])

    @contextlib.contextmanager
    def access(self) -> Iterator[None]:
        """Stop the device for several reads and writes."""
        self._channel.write(b"\x03", timeout_s=_ANSWER_S)
        self._stopped(self._packet())
        self._is_held = True
        yield
        self._resume()

    def close(self) -> None:
        """Let the device continue, and end the connection."""
        with contextlib.suppress(CommunicationError):
            if not self._is_held:
                self._channel.write(b"\x03", timeout_s=_ANSWER_S)
                self._packet()
            self._send(b"D")
            self._packet()
        self._channel.close()

    def _resume(self) -> None:
        self._send(b"c")
        self._is_held = False

    def _ask(self, command: bytes) -> bytes:
        """Return the answer to a command, skipping up to two reports that the target has stopped."""
        self._send(command)
        while (answer := self._packet())[:1] in (b"T", b"S"):
            pass
        return answer

    def _send(self, command: bytes) -> None:
        packet = b"$" + command + f"#{sum(command) & 0xFF:02x}".encode()
        self._channel.write(packet, timeout_s=_ANSWER_S)

    def _packet(self) -> bytes:
        """Return the next packet's contents, and acknowledge it; printed output (`O`) is skipped."""
        deadline = time.monotonic() + _ANSWER_S
        while True:
            while match := _PACKET.search(self._received):
                self._received = self._received[match.end() :]
                self._channel.write(b"+", timeout_s=_ANSWER_S)
                text = _expanded(match[1])
                if text == b"OK" or not text.startswith(b"O"):
                    return text
            rest_s = deadline - time.monotonic()
            if rest_s <= 0:
                raise CommunicationError(f"{self.name} does not answer like a gdb server")
            self._received += self._channel.read(timeout_s=rest_s)

    def _stopped(self, answer: bytes) -> None:
        """Check that the target has stopped.

        Raises:
            CommunicationError: the target has ended, or the answer is invalid.
        """
        if answer[:1] in (b"W", b"X"):
            raise CommunicationError(f"{self.name}: the program has ended", details=[answer.decode(errors="replace")])
        if answer[:1] not in (b"T", b"S"):
            raise CommunicationError(f"{self.name} did not stop its target", details=[f"its answer: {answer!r}"])


def _expanded(text: bytes) -> bytes:
    """Return a packet's text without its escapes and run lengths."""
    plain = _REPEATED.sub(lambda match: match[1] * (match[2][0] - 29 + 1), text)
    return _ESCAPED.sub(lambda match: bytes([match[1][0] ^ 0x20]), plain)
