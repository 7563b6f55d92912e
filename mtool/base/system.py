"""What an operating system may lack: handles of folders, owners of files, groups of processes, as Windows does."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
"""The flags of `os.open` that every reading has; where there are no such flags, the system does that by itself."""

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
"""The flags of a new file."""

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
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM if gently else signal.SIGKILL)
    else:
        with contextlib.suppress(OSError):
            process.kill()


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM while the block runs: it cleans up after one. Only the main thread gets either."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
