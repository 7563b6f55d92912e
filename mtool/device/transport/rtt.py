"""SEGGER RTT by reads and writes of a device's memory: two ring buffers, and the control block that describes them.

The layout is SEGGER's (RTT, UM08001, "RTT control block"): 16 bytes of identifier, the numbers of rings up (to the
host) and down, then 24 bytes for each: name, buffer, size, write offset, read offset, flags. Each side writes one of
a ring's two offsets only; a ring is empty if its offsets are equal, so it holds a byte less than its size.
"""

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from mtool.base.errors import CommunicationError
from mtool.device.transport.base import Transport
from mtool.device.transport.gdb_remote import GdbMemory

IDENTIFIER = b"SEGGER RTT"
SYMBOL = "_SEGGER_RTT"
_HEAD = struct.Struct("<16sii")
_RING = struct.Struct("<IIIIII")
_MOST_RINGS = 32  # in each direction; a larger number is not a control block's
_FIRST_POLL_S = 0.0005
_LONGEST_POLL_S = 0.01
_START_S = 10.0


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring buffer from the control block; `at` is the address of its 24 bytes."""

    at: int
    buffer: int
    size: int
    write_offset: int
    read_offset: int

    @property
    def waiting(self) -> int:
        """The number of bytes in it."""
        return (self.write_offset - self.read_offset) % self.size

    @property
    def room(self) -> int:
        """The number of bytes that fit in addition."""
        return self.size - 1 - self.waiting


class RttTransport(Transport):
    """Exchange bytes through the first ring in each direction.

    Args:
        memory: the device's.
        block: the control block's address.
        start_s: how long the firmware may take until the block exists.

    Raises:
        CommunicationError: there is no control block.
    """

    is_lossless = True
    bytes_per_second = 2e3  # through a slow probe

    def __init__(self, memory: GdbMemory, block: int, *, start_s: float = _START_S) -> None:
        self.name = f"RTT through {memory.name}"
        self._memory = memory
        self._block = block
        self._arrived = bytearray()
        self._downs_at = 0
        try:
            self._poll(self._find, start_s)
            if not self._downs_at:
                details = [f"looked for {IDENTIFIER.decode()!r} for {start_s:.3g} s"]
                hint = "check that this firmware runs and was built with --option channel=rtt"
                raise CommunicationError(f"{self.name}: no control block at 0x{block:08x}", details=details, hint=hint)
        except BaseException:
            memory.close()
            raise

    def write(self, data: bytes, *, timeout_s: float) -> None:
        """Send all of `data`; bytes that arrive meanwhile are kept."""
        rest = data

        def send() -> bool:
            nonlocal rest
            up, down = self._rings()
            self._arrived += self._take(up)
            rest = rest[self._put(down, rest) :]
            return not rest

        if not self._poll(send, timeout_s):
            raise CommunicationError(f"{self.name} did not accept all bytes within {timeout_s:.3g} s")

    def read(self, *, timeout_s: float) -> bytes:
        """Return the bytes that have arrived, as soon as there are any; empty after `timeout_s` without a byte."""

        def receive() -> bool:
            self._arrived += self._take(self._rings()[0])
            return bool(self._arrived)

        if not self._arrived:
            self._poll(receive, timeout_s)
        return self._drain()

    def close(self) -> None:
        """Release the device, which continues to run."""
        self._memory.close()

    def _poll(self, step: Callable[[], bool], timeout_s: float) -> bool:
        """Repeat a step until it returns true, or return False after `timeout_s`; the device runs between two steps."""
        deadline = time.monotonic() + timeout_s
        wait_s = _FIRST_POLL_S
        while True:
            with self._memory.access():
                done = step()
            rest_s = deadline - time.monotonic()
            if done or rest_s <= 0:
                return done
            time.sleep(min(wait_s, rest_s))
            wait_s = min(2 * wait_s, _LONGEST_POLL_S)

    def _find(self) -> bool:
        identifier, ups, downs = _HEAD.unpack(self._memory.read(self._block, _HEAD.size))
        if identifier.rstrip(b"\0") != IDENTIFIER or not (0 < ups <= _MOST_RINGS and 0 < downs <= _MOST_RINGS):
            return False
        self._downs_at = self._block + _HEAD.size + ups * _RING.size
        return True

    def _rings(self) -> tuple[Ring, Ring]:
        """Return the first ring up and the first ring down."""
        up_at = self._block + _HEAD.size
        both = self._memory.read(up_at, self._downs_at + _RING.size - up_at)  # and, rarely, further ones between
        return self._ring(up_at, both[: _RING.size]), self._ring(self._downs_at, both[-_RING.size :])

    def _ring(self, at: int, data: bytes) -> Ring:
        _, buffer, size, write_offset, read_offset, _ = _RING.unpack(data)
        if not size or write_offset >= size or read_offset >= size:
            what = f"{self.name}: the ring at 0x{at:08x} is damaged"
            details = [f"{size} B, written to {write_offset}, read to {read_offset}"]
            raise CommunicationError(
                what, details=details, hint="the firmware may have overwritten it: reset the board"
            )
        return Ring(at, buffer, size, write_offset, read_offset)

    def _take(self, up: Ring) -> bytes:
        if not up.waiting:
            return b""
        first = min(up.waiting, up.size - up.read_offset)
        data = self._memory.read(up.buffer + up.read_offset, first)
        if first < up.waiting:
            data += self._memory.read(up.buffer, up.waiting - first)
        self._memory.write(up.at + 16, struct.pack("<I", up.write_offset))
        return data

    def _put(self, down: Ring, data: bytes) -> int:
        """Write as much as fits and return its size."""
        count = min(down.room, len(data))
        if count:
            first = min(count, down.size - down.write_offset)
            self._memory.write(down.buffer + down.write_offset, data[:first])
            if first < count:
                self._memory.write(down.buffer, data[first:count])
            end = (down.write_offset + count) % down.size
            self._memory.write(down.at + 12, struct.pack("<I", end))
        return count
