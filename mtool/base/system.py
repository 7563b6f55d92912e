"""Features that an operating system may lack, as Windows does: folder handles, file owners, process groups."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Self

_EVERY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
READ = os.O_RDONLY | _EVERY
"""The flags of `os.open` for reading; a system without these flags behaves that way by default."""

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _EVERY
"""The flags of a new file."""

APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | _EVERY
"""The flags of a file that is opened or created, and appended to."""

NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
FOLDER: int = getattr(os, "O_DIRECTORY", 0)
NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
NO_TERMINAL: int = getattr(os, "O_NOCTTY", 0)

HAS_FOLDER_HANDLES = hasattr(os, "O_DIRECTORY") and hasattr(os, "O_NOFOLLOW") and os.open in os.supports_dir_fd
"""Whether a folder can be opened, so that files in it can be reached without its path; else paths are used."""

IS_LINUX = sys.platform.startswith("linux")


def user() -> int | None:
    """Return this user's number, or None where files have no numeric owner."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def read_at(handle: int, count: int, offset: int) -> bytes:
    """Return up to `count` bytes of a file, starting at `offset`."""
    if hasattr(os, "pread"):
        return os.pread(handle, count, offset)
    os.lseek(handle, offset, os.SEEK_SET)
    return os.read(handle, count)


def kill_group(process: "subprocess.Popen[bytes]", *, gently: bool = False) -> None:
    """End a process with its own group and all of that group; without process groups only the process."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGTERM if gently else signal.SIGKILL)
        else:
            process.kill()


_ENDINGS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_GONE_S = 5.0
_POLL_S = 0.01


def kill_tree(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process with its own group, the group, and all descendants; return when they are gone.

    Ninja starts each command in a separate group, and `make` and shells may too. Each process is stopped before its
    children are listed, so that it starts no more and keeps them as its children. Without /proc only the group is
    killed. Processes that still exist after 5 s are left to the kernel.
    """
    killed: set[int] = set()
    while new := _tree(process.pid) - killed:
        killed |= new
        for number in new:
            with contextlib.suppress(OSError):
                os.kill(number, signal.SIGSTOP)
    for number in killed:
        with contextlib.suppress(OSError):
            os.kill(number, signal.SIGKILL)
    kill_group(process)
    until = time.monotonic() + _GONE_S
    while killed & _processes().keys() and time.monotonic() < until:
        time.sleep(_POLL_S)


def _tree(root: int) -> set[int]:
    """Return the processes of a group and their descendants; `root` is the group's first process."""
    processes = _processes()
    tree = {number for number, (_, group) in processes.items() if root in (number, group)}
    while children := {number for number, (parent, _) in processes.items() if parent in tree} - tree:
        tree |= children
    return tree


def _processes() -> dict[int, tuple[int, int]]:
    """Return each process's parent and group; those that have ended are left out. Empty without /proc."""
    result: dict[int, tuple[int, int]] = {}
    if not IS_LINUX:
        return result
    with contextlib.suppress(OSError):
        for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
            with contextlib.suppress(OSError, ValueError):
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    state, parent, group = file.read().rpartition(b")")[2].split()[:3]  # a name may contain anything
                if state not in (b"Z", b"X"):
                    result[int(name)] = (int(parent), int(group))
    return result


class Interrupts:
    """Defer Ctrl-C, SIGTERM and SIGHUP while a block runs, so that child processes are always ended.

    In `allowed()` the first signal takes effect, and later ones are dropped, as the block is cleaning up. Signals
    outside it take effect at the end of the block. Only the main thread gets signals; in other threads this does
    nothing.
    """

    def __init__(self) -> None:
        self._allowed = False
        self._came: list[int] = []
        self._before: dict[int, Callable[[int, FrameType | None], object]] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDINGS:
                before = signal.getsignal(number)
                if callable(before):
                    self._before[number] = before
                    signal.signal(number, self._hold)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for number in reversed(_ENDINGS):
            if number in self._before:
                signal.signal(number, self._before[number])
        if self._came and (kind is None or issubclass(kind, Exception)):
            signal.raise_signal(self._came[0])

    @contextlib.contextmanager
    def allowed(self) -> Iterator[None]:
        """Let the first signal, also one that came before, take effect."""
        self._allowed = True
        try:
            if self._came:
                signal.raise_signal(self._came.pop())
            yield
        finally:
            self._allowed = False

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if self._allowed:
            self._allowed = False
            self._before[number](number, frame)
            self._allowed = True  # its handler has not raised
        else:
            self._came.append(number)
