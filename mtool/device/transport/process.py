"""A program as a device, through its standard input and output."""

import queue
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import IO

from mtool.base.errors import CommunicationError, MtoolError
from mtool.base.proc import Child, last_lines
from mtool.device.transport.base import Transport

OnExit = Callable[[int], MtoolError | None]

_STDERR_LINES = 10
_GRACE_S = 0.5
_CHUNK = 1 << 16


class Pipes:
    """A program's standard input and output. A thread waits for each, so that full pipes never block both ends.

    Windows can't wait for a pipe with a timeout. The threads end with the pipes: with the program, or when they are
    closed, and never use the handle of a closed file, which may belong to another file by then.
    """

    def __init__(self, to_program: IO[bytes], from_program: IO[bytes]) -> None:
        self._to_send: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._sent = threading.Condition()
        self._unsent = 0
        self._failed: OSError | None = None
        self._at_end = False
        for work, file in ((self._send, to_program), (self._receive, from_program)):
            threading.Thread(target=work, args=(file,), daemon=True).start()

    def write(self, data: bytes, *, timeout_s: float) -> bool:
        """Send all of `data`; False: not within `timeout_s`.

        Raises:
            OSError: the program accepts no more.
        """
        with self._sent:
            self._unsent += 1
            self._to_send.put(data)
            done = self._sent.wait_for(lambda: self._unsent == 0 or self._failed is not None, timeout_s)
            if self._failed is not None:
                raise self._failed
            return done

    def read(self, *, timeout_s: float) -> bytes | None:
        """Return the bytes that have arrived, as soon as there are any; None after `timeout_s`; empty: the end."""
        if self._at_end:
            return b""
        try:
            data = self._arrived.get(timeout=max(timeout_s, 0.0))
        except queue.Empty:
            return None
        self._at_end = not data
        return data

    def _send(self, file: IO[bytes]) -> None:
        while self._failed is None:
            rest = memoryview(self._to_send.get())
            failed = None
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except (OSError, ValueError) as error:  # ValueError: it was closed here
                failed = error if isinstance(error, OSError) else OSError(str(error))
            with self._sent:
                self._failed = failed
                self._unsent -= 1
                self._sent.notify_all()

    def _receive(self, file: IO[bytes]) -> None:
        data = b"-"
        while data:
            try:
                data = file.read(_CHUNK)
            except (OSError, ValueError):
                data = b""
            self._arrived.put(data)


class ProcessTransport(Transport):
    """Start a program and exchange bytes through pipes.

    Its standard error goes to a file; its last lines are in the message if the program
    ends. It is killed when the transport is closed or collected, at the interpreter's exit, and
    when this process is killed.

    Args:
        argv: the program and its arguments.
        name: its name in messages ("the firmware's process").
        bytes_per_second: the lowest rate in each direction.
        on_exit: returns the error for its exit status, or None: then it is a CommunicationError like any
            other end of the channel.

    Raises:
        CommunicationError: it can't be started.
    """

    is_lossless = True
    is_process = True

    def __init__(
        self, argv: Sequence[str], *, name: str, bytes_per_second: float = 1e6, on_exit: OnExit | None = None
    ) -> None:
        self.name = name
        self._on_exit = on_exit
        self.bytes_per_second = bytes_per_second
        self._argv = tuple(argv)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = Child(self._argv, errors=self._errors)
        except OSError as failed:
            self._errors.close()
            raise CommunicationError(
                f"{name} can't be started", details=[_command(argv), failed.strerror or str(failed)]
            ) from None
        self._finalizer = weakref.finalize(self, _end, self._process, self._errors)
        self._pipes = Pipes(self._process.stdin, self._process.stdout)

    @property
    def pid(self) -> int:
        """The program's process id."""
        return self._process.pid

    def write(self, data: bytes, *, timeout_s: float) -> None:
        """Send all of `data`; receives meanwhile, so that full buffers never block both ends."""
        if not self._finalizer.alive:
            raise self._closed()
        try:
            done = self._pipes.write(data, timeout_s=timeout_s)
        except OSError:
            raise self._closed() from None
        if not done:
            raise CommunicationError(
                f"{self.name} did not accept all bytes within {timeout_s:.3g} s", details=[_command(self._argv)]
            )

    def read(self, *, timeout_s: float) -> bytes:
        """Return the bytes that have arrived, as soon as there are any; empty after `timeout_s` without a byte."""
        data = self._pipes.read(timeout_s=timeout_s) if self._finalizer.alive else b""
        if data == b"":
            raise self._closed()
        return data or b""

    def close(self) -> None:
        """End the program: by closing its input, else by a signal, else by force."""
        self._finalizer()

    def _closed(self) -> MtoolError:
        if not self._finalizer.alive:
            return CommunicationError(f"{self.name} was closed")
        status = self._process.wait(_GRACE_S)
        meant = self._on_exit(status) if self._on_exit is not None and status is not None else None
        if meant is not None:
            return meant
        if status is None:
            ended = "closed its output"
        elif status < 0:
            ended = f"was killed by signal {-status}"
        else:
            ended = f"ended with exit code {status}"
        try:
            words = last_lines(self._errors, _STDERR_LINES)
        except ValueError:  # another thread has closed it meanwhile
            return CommunicationError(f"{self.name} was closed")
        return CommunicationError(f"{self.name} {ended}", details=[_command(self._argv), *words])


def _command(argv: Sequence[str]) -> str:
    return "$ " + " ".join(argv)


def _end(process: Child, errors: IO[bytes]) -> None:
    process.end()
    errors.close()
