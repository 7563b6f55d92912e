"""What an operating system may lack: handles of folders, owners of files, groups of processes, as Windows does."""

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
"""The flags of `os.open` that every reading has; where there are no such flags, the system does that by itself."""

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _EVERY
"""The flags of a new file."""

APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | _EVERY
"""The flags of a file that is there, or is made, and is written to at its end."""

NO_LINK: int = getattr(os, "O_NOFOLLOW", 0)
FOLDER: int = getattr(os, "O_DIRECTORY", 0)
NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
NO_TERMINAL: int = getattr(os, "O_NOCTTY", 0)

HAS_FOLDER_HANDLES = hasattr(os, "O_DIRECTORY") and hasattr(os, "O_NOFOLLOW") and os.open in os.supports_dir_fd
"""Whether a folder can be opened, so that what is in it is reached without its path; else paths have to do."""

IS_LINUX = sys.platform.startswith("linux")


def user() -> int | None:
    """Return the number of this user, or None where files have no owner by a number."""
    return os.geteuid() if hasattr(os, "geteuid") else None


def read_at(handle: int, count: int, offset: int) -> bytes:
    """Return up to `count` bytes of a file from `offset` on."""
    if hasattr(os, "pread"):
        return os.pread(handle, count, offset)
    os.lseek(handle, offset, os.SEEK_SET)
    return os.read(handle, count)


def kill_group(process: "subprocess.Popen[bytes]", *, gently: bool = False) -> None:
    """End a process that has a group of its own with all of the group; where there are no groups, it alone."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGTERM if gently else signal.SIGKILL)
        else:
            process.kill()


_ENDINGS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
_GONE_S = 5.0
_POLL_S = 0.01


def kill_tree(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process that has a group of its own, its group, and all that descends from it; return when they are gone.

    Ninja starts each command in a group of its own, and `make` and shells may too. Each process is stopped before its
    children are looked for, so that it starts no more and keeps them as its children. Where there is no /proc, the
    group has to do. What the kernel has not ended after 5 s is left to it.
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
    """Return the processes that run in a group or descend from one of it; `root` is the first one's number."""
    processes = _processes()
    found = {number for number, (_, group) in processes.items() if root in (number, group)}
    while children := {number for number, (parent, _) in processes.items() if parent in found} - found:
        found |= children
    return found


def _processes() -> dict[int, tuple[int, int]]:
    """Return each process's parent and group; those that have ended are left out. Empty where there is no /proc."""
    found: dict[int, tuple[int, int]] = {}
    if not IS_LINUX:
        return found
    with contextlib.suppress(OSError):
        for name in filter(str.isdecimal, os.listdir("/proc")):  # noqa: PTH208
            with contextlib.suppress(OSError, ValueError):
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    state, parent, group = file.read().rpartition(b")")[2].split()[:3]  # a name may hold anything
                if state not in (b"Z", b"X"):
                    found[int(name)] = (int(parent), int(group))
    return found


class Interrupts:
    """Hold back Ctrl-C, SIGTERM and SIGHUP while a block runs, so that what it has started is ended whatever comes.

    In `allowed()` the first is let through, and what follows it is dropped: it is cleaned up for. What has come
    elsewhere takes effect at the end. Only the main thread gets either; in another, this does nothing.
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
        """Let the first one raise what its handler raises, also one that came before."""
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
            self._allowed = True  # it has raised nothing
        else:
            self._came.append(number)
