"""A board behind a USB-UART: a firmware's process whose bytes pass through a noisy or slow pseudo-terminal.

The firmware goes on running when the host closes the port or the cable is pulled, as a board does.
"""

import contextlib
import fcntl
import heapq
import math
import os
import random
import selectors
import struct
import subprocess
import termios
import threading
import time
import tty
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

HARMS = ("flip", "drop", "double", "delay")
_CHUNK = 4096
_PACED_CHUNK = 16  # bytes that arrive together on a line with a rate
_SHORT_S = (0.001, 0.02)
_LONG_S = (0.2, 0.6)  # long enough for every deadline of the window to pass
_LONG_SHARE = 0.1


class Noise:
    """Harm one byte in `1 / rate`, the same ones for the same seed."""

    def __init__(self, *, rate: float, seed: int, harms: Sequence[str] = HARMS) -> None:
        self._rate = rate
        self._random = random.Random(seed)
        self._harms = harms
        self._ahead = self._gap()
        self.harmed = 0

    def pieces(self, data: bytes) -> Iterator[tuple[bytes, float]]:
        """Yield what becomes of `data`: bytes, and for how many seconds they and all later ones are held back."""
        begin = 0
        while self._ahead < len(data) - begin:
            at = begin + self._ahead
            yield data[begin:at], 0.0
            yield self._harm(data[at])
            begin = at + 1
            self._ahead = self._gap()
        self._ahead -= len(data) - begin
        yield data[begin:], 0.0

    def _gap(self) -> int:
        """Draw how many bytes pass unharmed until the next that is not."""
        if self._rate <= 0:
            return 1 << 62
        return int(math.log(1.0 - self._random.random()) / math.log(1.0 - self._rate))

    def _harm(self, byte: int) -> tuple[bytes, float]:
        self.harmed += 1
        harm = self._random.choice(self._harms)
        if harm == "flip":
            return bytes([byte ^ 1 << self._random.randrange(8)]), 0.0
        if harm == "drop":
            return b"", 0.0
        if harm == "double":
            return bytes([byte, byte]), 0.0
        held = _LONG_S if self._random.random() < _LONG_SHARE else _SHORT_S
        return bytes([byte]), self._random.uniform(*held)


@dataclass
class Line:
    """One direction: bytes that wait for their time. `seconds_per_byte` 0: no rate."""

    noise: Noise | None
    seconds_per_byte: float

    def __post_init__(self) -> None:
        self._free_at = 0.0
        self._waiting: list[tuple[float, int, bytes]] = []
        self._count = 0
        self.carried = 0

    def feed(self, data: bytes, now: float) -> None:
        """Take bytes that were sent."""
        for piece, held_s in self.noise.pieces(data) if self.noise else [(data, 0.0)]:
            self._free_at = max(self._free_at, now) + held_s
            size = _PACED_CHUNK if self.seconds_per_byte else max(len(piece), 1)
            for begin in range(0, len(piece), size):
                chunk = piece[begin : begin + size]
                self._free_at += len(chunk) * self.seconds_per_byte
                heapq.heappush(self._waiting, (self._free_at, self._count, chunk))
                self._count += 1

    def due(self, now: float) -> bytes:
        """Return the bytes whose time has come."""
        out = bytearray()
        while self._waiting and self._waiting[0][0] <= now:
            out += heapq.heappop(self._waiting)[2]
        self.carried += len(out)
        return bytes(out)

    def next_s(self, now: float) -> float | None:
        """Return in how many seconds the next byte is due; None: nothing waits."""
        return max(self._waiting[0][0] - now, 0.0) if self._waiting else None


class Bridge:
    """Run a firmware whose UART is the pseudo-terminal `port`; use it in a `with` statement.

    Args:
        argv: the firmware's process, or the emulator, with the UART as its standard input and output.
        noise: of the direction to the device, and of the one from it.
        baud: pace the bytes by this rate; 0: as fast as they come.
        firmware_baud: what the firmware's UART is set to; a port that is set to another carries garbage. 0: any.
        ring_bytes: what the UART's interrupt holds until the firmware reads it; more is lost. 0: nothing is.
        cut_after: bytes in both directions together after which the cable is pulled; a new `port` is there then.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        noise: tuple[Noise, Noise] | None = None,
        baud: int = 0,
        firmware_baud: int = 0,
        cut_after: int | None = None,
        ring_bytes: int = 0,
    ) -> None:
        pace = 10 / baud if baud else 0.0
        self.lines = [Line(noise[way] if noise else None, pace) for way in range(2)]
        self.cut_after = cut_after
        self.overrun = 0
        self._ring_bytes = ring_bytes
        self._firmware_baud = getattr(termios, f"B{firmware_baud}") if firmware_baud else None
        self._argv = argv
        self._start()
        self._wake = os.pipe()
        self._was_reset = threading.Event()
        self._plug()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    overrun: int
    """Bytes that were lost because the ring was full."""

    port: str
    """The pseudo-terminal's name."""

    @property
    def harmed(self) -> int:
        """Bytes that were flipped, dropped, doubled or delayed."""
        return sum(line.noise.harmed for line in self.lines if line.noise)

    @property
    def pid(self) -> int:
        """Of the firmware's process."""
        return self._process.pid

    def reset(self) -> None:
        """Press the board's reset button: the firmware restarts, the port stays."""
        self._was_reset.clear()
        os.write(self._wake[1], b"r")
        assert self._was_reset.wait(10)

    def close(self) -> None:
        """End the firmware."""
        os.write(self._wake[1], b"x")
        self._thread.join(10)
        self._end()
        for end in (self._master, self._slave, *self._wake):
            os.close(end)

    def _start(self) -> None:
        self._process = subprocess.Popen(self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()

    def _plug(self) -> None:
        # The other end stays open here too: reading an unopened terminal returns errors instead of bytes.
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)
        os.set_blocking(self._master, False)
        self.port = os.ttyname(self._slave)

    def _run(self) -> None:
        to_device, to_host = self.lines
        alive = True
        while True:
            now = time.monotonic()
            if data := to_device.due(now):
                self._to_device(data)
            if data := to_host.due(now):
                self._to_host(data)
            waits = [wait for line in self.lines if (wait := line.next_s(now)) is not None]
            with selectors.DefaultSelector() as selector:
                selector.register(self._wake[0], selectors.EVENT_READ)
                selector.register(self._master, selectors.EVENT_READ)
                if alive:
                    selector.register(self._output, selectors.EVENT_READ)
                ready = [key.fd for key, _ in selector.select(min(waits, default=None))]
            now = time.monotonic()
            if self._wake[0] in ready:
                if os.read(self._wake[0], 1) == b"x":
                    return
                self._end()
                self._start()
                alive = True
                self._was_reset.set()
                continue
            if self._master in ready:
                with contextlib.suppress(BlockingIOError, OSError):
                    to_device.feed(self._as_sent(os.read(self._master, _CHUNK)), now)
            if self._output in ready:
                data = os.read(self._output, _CHUNK)
                alive = bool(data)
                to_host.feed(self._as_sent(data), now)

    def _as_sent(self, data: bytes) -> bytes:
        """Return what a UART makes of bytes that were sent at another rate than its own."""
        if self._firmware_baud in (None, termios.tcgetattr(self._master)[4]):
            return data
        return bytes(0x80 | byte ^ 0x55 for byte in data)

    def _to_device(self, data: bytes) -> None:
        data = self._into_the_ring(self._before_the_cut(data))
        with contextlib.suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._input, data) :]
        self._cut_if_due()

    def _to_host(self, data: bytes) -> None:
        data = self._before_the_cut(data)
        with contextlib.suppress(BlockingIOError):  # no reader: bytes that do not fit are lost
            while data:
                data = data[os.write(self._master, data) :]
        self._cut_if_due()

    def _into_the_ring(self, data: bytes) -> bytes:
        """Return what there is room for besides the bytes that the firmware has not read yet."""
        if not self._ring_bytes:
            return data
        (unread,) = struct.unpack("i", fcntl.ioctl(self._input, termios.FIONREAD, bytes(4)))
        room = max(self._ring_bytes - unread, 0)
        self.overrun += max(len(data) - room, 0)
        return data[:room]

    def _before_the_cut(self, data: bytes) -> bytes:
        if self.cut_after is None:
            return data
        data = data[: self.cut_after]
        self.cut_after -= len(data)
        return data

    def _cut_if_due(self) -> None:
        if self.cut_after == 0:
            self.cut_after = None
            ends = self._master, self._slave
            self._plug()  # first, so that who notices the loss finds the new port
            for end in ends:
                os.close(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
