"""The two ends of a program's pipes: bytes go in while bytes come out, so that full pipes never block both sides."""

import contextlib
import math
import os
import queue
import select
import threading
import time
from typing import IO, Protocol

_CHUNK = 1 << 16


class Pipes(Protocol):
    """What is written to a program's standard input, and read from its standard output."""

    def write(self, data: bytes, *, timeout_s: float) -> bool:
        """Send all of `data`; False: not within `timeout_s`.

        Raises:
            OSError: the program takes no more.
        """

    def read(self, *, timeout_s: float) -> bytes | None:
        """Return what has arrived, once there is something; None after `timeout_s`; empty: there will be no more."""


def of(to_program: IO[bytes], from_program: IO[bytes]) -> Pipes:
    """Return the ends of two pipes: waited for by the system where it can, by threads elsewhere."""
    if os.name == "posix":
        return PolledPipes(to_program, from_program)
    return ThreadedPipes(to_program, from_program)


class PolledPipes:
    """Pipes that the system can wait for, and that take and give what they can without waiting."""

    def __init__(self, to_program: IO[bytes], from_program: IO[bytes]) -> None:
        self._input, self._output = to_program.fileno(), from_program.fileno()
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self._arrived: list[bytes] = []
        self._readable, self._any = select.poll(), select.poll()
        for waited in (self._readable, self._any):
            waited.register(self._output, select.POLLIN)
        self._any.register(self._input, select.POLLOUT)

    def write(self, data: bytes, *, timeout_s: float) -> bool:
        """Send all of `data`; False: not within `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._input, left) :]
            except BlockingIOError:
                if not _wait(self._any, deadline - time.monotonic()):
                    return False
                with contextlib.suppress(BlockingIOError):
                    piece = os.read(self._output, _CHUNK)
                    if not piece:
                        raise BrokenPipeError from None
                    self._arrived.append(piece)
        return True

    def read(self, *, timeout_s: float) -> bytes | None:
        """Return what has arrived, once there is something; None after `timeout_s`; empty: there will be no more."""
        if self._arrived:
            data = b"".join(self._arrived)
            self._arrived.clear()
            return data
        return os.read(self._output, _CHUNK) if _wait(self._readable, timeout_s) else None


def _wait(waited: "select.poll", timeout_s: float) -> bool:
    """Wait until there are bytes to read, or room to write, as was registered; False after `timeout_s`."""
    return bool(waited.poll(math.ceil(1e3 * max(timeout_s, 0.0))))


class ThreadedPipes:
    """Pipes each of which a thread waits for: Windows can't wait for a pipe and a time at once.

    The threads end with the pipes: with the program, or when they are closed.
    """

    def __init__(self, to_program: IO[bytes], from_program: IO[bytes]) -> None:
        self._to_send: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._sent = threading.Condition()
        self._unsent = 0
        self._failed: OSError | None = None
        self._at_end = False
        for work, file in ((self._send, to_program), (self._receive, from_program)):
            threading.Thread(target=work, args=(file.fileno(),), daemon=True).start()

    def write(self, data: bytes, *, timeout_s: float) -> bool:
        """Send all of `data`; False: not within `timeout_s`."""
        with self._sent:
            self._unsent += 1
            self._to_send.put(data)
            done = self._sent.wait_for(lambda: self._unsent == 0 or self._failed is not None, timeout_s)
            if self._failed is not None:
                raise self._failed
            return done

    def read(self, *, timeout_s: float) -> bytes | None:
        """Return what has arrived, once there is something; None after `timeout_s`; empty: there will be no more."""
        if self._at_end:
            return b""
        try:
            data = self._arrived.get(timeout=max(timeout_s, 0.0)) if timeout_s > 0 else self._arrived.get_nowait()
        except queue.Empty:
            return None
        self._at_end = not data
        return data

    def _send(self, handle: int) -> None:
        while True:
            left = memoryview(self._to_send.get())
            try:
                while left:
                    left = left[os.write(handle, left) :]
            except OSError as failed:
                with self._sent:
                    self._failed = failed
                    self._sent.notify_all()
                return
            with self._sent:
                self._unsent -= 1
                self._sent.notify_all()

    def _receive(self, handle: int) -> None:
        data = b"-"
        while data:
            try:
                data = os.read(handle, _CHUNK)
            except OSError:  # it was closed here
                data = b""
            self._arrived.put(data)
