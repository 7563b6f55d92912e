"""One user at a time for each device: a lock that ends with its process, however that ends."""

import contextlib
import os
import re
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mtool.errors import BoardError

try:
    import fcntl
except ImportError:  # Windows, where a serial port has but one user anyway
    fcntl = None  # type: ignore[assignment]


class Lock:
    """Hold the lock of a device until `release`, or this process's end.

    What this process holds already may be taken again: the second lock then does nothing, and the first has to be
    released last.

    Args:
        device: its serial port or its probe's serial number; "": there is nothing to lock.

    Raises:
        BoardError: another process holds it; the message names that process.
    """

    def __init__(self, device: str) -> None:
        self._release: Callable[[], object] | None = None
        if not device or fcntl is None:
            return
        handle = _open(_path(device))
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 64, 0).decode(errors="replace").strip()
            os.close(handle)
            if holder == str(os.getpid()):
                return
            raise BoardError(
                f"{device} is in use by another mtool",
                details=[f"process {holder}"] if holder else [],
                hint="wait until it has finished, or end it",
            ) from None
        self._release = weakref.finalize(self, os.close, handle)
        with contextlib.suppress(OSError):  # another user's file can be locked, but not written
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let go of it. May be called again."""
        if self._release is not None:
            self._release()


@contextmanager
def locked(*devices: str) -> Iterator[None]:
    """Hold the locks of devices, by port or by serial number, while the block runs.

    Raises:
        BoardError: another process holds one.
    """
    with contextlib.ExitStack() as held:
        for device in sorted(set(devices)):
            held.callback(Lock(device).release)
        yield


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError:  # another user's
        return os.open(path, os.O_RDONLY)


def _path(device: str) -> Path:
    """Return the lock's file: one for a port, whatever link leads to it."""
    real = os.path.realpath(device) if device.startswith("/") else device
    return Path(tempfile.gettempdir()) / f"mtool-{re.sub(r'[^A-Za-z0-9]+', '-', real).strip('-')}.lock"
