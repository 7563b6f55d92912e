"""A program that runs beside mtool and ends when mtool does, however that ends, with all that it has started itself.

It has a process group of its own, which is signalled as a whole: an emulator may be a script that starts the true one.
"""

import contextlib
import os
import subprocess
from collections.abc import Sequence
from typing import IO

from mtool.base import system

_GRACE_S = 0.5
# Waits for a line, which comes when the program has ended; the end of input comes if this process is gone before.
_WATCHER = ("sh", "-c", 'read -r _ || kill -KILL "-$1"', "sh")


class Child:
    """Start a program whose standard input and output are pipes.

    A watcher beside it kills its group should this process be killed, as what computes without end does not notice
    that its input has ended.

    Args:
        argv: the program and its arguments.
        errors: the file that its standard error goes to.

    Raises:
        OSError: it can't be started.
    """

    def __init__(self, argv: Sequence[str], *, errors: IO[bytes]) -> None:
        with system.Interrupts():  # none comes before its watcher
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0, process_group=0
            )
            self._watcher = _watch(process)
        assert process.stdin is not None and process.stdout is not None
        self.stdin: IO[bytes] = process.stdin
        self.stdout: IO[bytes] = process.stdout
        self.pid = process.pid
        self._starter = os.getpid()
        self._process = process

    def write(self, data: bytes | memoryview) -> None:
        """Write all of it to the standard input.

        Raises:
            BrokenPipeError: its input is closed, most likely as it has ended.
        """
        left = memoryview(data)
        while left:
            left = left[os.write(self.stdin.fileno(), left) :]

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return the exit status, a negative signal number where one killed it; None: it still runs after `timeout_s`.

        What it leaves behind of its own is killed.
        """
        if self._process.returncode is None:
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return None
            system.kill_group(self._process)
        return self._process.returncode

    def end(self) -> None:
        """End it: by closing its input, else by a signal, else by force. A fork of who started it leaves it alone."""
        with contextlib.suppress(OSError):
            self.stdin.close()
        if os.getpid() != self._starter:
            self.stdout.close()
            return
        for gently in (True, False):
            if self.wait(_GRACE_S) is not None:
                break
            system.kill_group(self._process, gently=gently)
        self.wait()
        if self._watcher is not None:
            with contextlib.suppress(OSError):
                self._watcher.communicate(b"\n")
        self.stdout.close()


def _watch(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes] | None:
    """Start a shell that kills a process group should this process be killed; None where there is no shell."""
    try:
        return subprocess.Popen(
            [*_WATCHER, str(process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C in the terminal is not for it
        )
    except OSError:
        return None


def last_lines(errors: IO[bytes], count: int) -> list[str]:
    """Return the last lines that a child wrote to its file of errors, whose position is left to the child."""
    chunk = 1 << 16
    size = os.fstat(errors.fileno()).st_size
    last = system.read_at(errors.fileno(), chunk, max(0, size - chunk))
    return last.decode(errors="replace").rstrip().splitlines()[-count:]
