"""A device's memory through a gdb server: QEMU's stub, OpenOCD, pyOCD, J-Link's, a Black Magic Probe.

The GDB Remote Serial Protocol ("Debugging with GDB", appendix E): packets `$...#checksum`, acknowledged by +. A server
answers nothing while its target runs, so that an access stops it (a byte 0x03) and lets it go on (`c`).
"""

import contextlib
import re
import time
from collections.abc import Iterator

from mtool.base.errors import CommunicationError
from mtool.device.transport.tcp import TcpTransport

_ANSWER_S = 5.0
_MOST_BYTES = 512  # of memory in a packet; the least that servers take is 400 hex digits
_PACKET = re.compile(rb"\$([^#$]*)#([0-9a-fA-F]{2})", re.DOTALL)
_ESCAPED = re.compile(rb"}(.)", re.DOTALL)
_REPEATED = re.compile(rb"(.)\*(.)", re.DOTALL)


class GdbMemory:
    """The memory of the device behind a gdb server; the device runs on between two accesses.

    Args:
        host: where the server is.
        port: its TCP port.

    Raises:
        CommunicationError: nothing listens there, or it is no gdb server.
    """

    def __init__(self, host: str, port: int) -> None:
        self.name = f"the gdb server {host}:{port}"
        hint = "start one: pyocd gdbserver, openocd, JLinkGDBServer; or QEMU with -gdb tcp::PORT"
        self._channel = TcpTransport(host, port, name=self.name, hint=hint)
        self._received = b""
        self._is_held = False
        try:
            self._send(b"?")
            self._stopped(self._packet())  # a server stops its target for who connects
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
                found = bytes.fromhex(answer.decode("ascii"))
            except ValueError:
                found = b""
            if len(found) != piece:
                raise CommunicationError(
                    f"{self.name} can't read {piece} B at 0x{address + len(data):08x}",
                    details=[f"its answer: {answer!r}"],
                )
            data += found
        return data

    def write(self, address: int, data: bytes) -> None:
        """Write all of `data`."""
        for begin in range(0, len(data), _MOST_BYTES):
            piece = data[begin : begin + _MOST_BYTES]
            answer = self._ask(f"M{address + begin:x},{len(piece):x}:{piece.hex()}".encode())
            if answer != b"OK":
                raise CommunicationError(
                    f"{self.name} can't write {len(piece)} B at 0x{address + begin:08x}",
                    details=[f"its answer: {answer!r}"],
                )

    @contextlib.contextmanager
    def access(self) -> Iterator[None]:
        """Stop the device for several reads and writes."""
        self._channel.write(b"\x03", timeout_s=_ANSWER_S)
        self._stopped(self._packet())
        self._is_held = True
        yield
        self._resume()

    def close(self) -> None:
        """Let the device go on, and end the connection."""
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
        """Return the answer to a command; that the target has stopped may have been told twice before it."""
        self._send(command)
        while (answer := self._packet())[:1] in (b"T", b"S"):
            pass
        return answer

    def _send(self, command: bytes) -> None:
        packet = b"$" + command + f"#{sum(command) & 0xFF:02x}".encode()
        self._channel.write(packet, timeout_s=_ANSWER_S)

    def _packet(self) -> bytes:
        """Return what the next packet holds, and acknowledge it; what is printed (`O`) is passed over."""
        deadline = time.monotonic() + _ANSWER_S
        while True:
            while found := _PACKET.search(self._received):
                self._received = self._received[found.end() :]
                self._channel.write(b"+", timeout_s=_ANSWER_S)
                text = _expanded(found[1])
                if text == b"OK" or not text.startswith(b"O"):
                    return text
            left = deadline - time.monotonic()
            if left <= 0:
                raise CommunicationError(f"{self.name} does not answer as a gdb server does")
            self._received += self._channel.read(timeout_s=left)

    def _stopped(self, answer: bytes) -> None:
        """Check that the target has stopped.

        Raises:
            CommunicationError: it has ended, or that is no answer to it.
        """
        if answer[:1] in (b"W", b"X"):
            raise CommunicationError(f"{self.name}: the program has ended", details=[answer.decode(errors="replace")])
        if answer[:1] not in (b"T", b"S"):
            raise CommunicationError(f"{self.name} did not stop its target", details=[f"its answer: {answer!r}"])


def _expanded(text: bytes) -> bytes:
    """Return a packet's text without its escapes and run lengths."""
    plain = _REPEATED.sub(lambda found: found[1] * (found[2][0] - 29 + 1), text)
    return _ESCAPED.sub(lambda found: bytes([found[1][0] ^ 0x20]), plain)
