"""One user at a time for each device: a lock that ends with its process, however that ends."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mtool.errors import BoardError

try:
    import fcntl
except ImportError:  # Windows, where a serial port has but one user anyway
    fcntl = None  # type: ignore[assignment]


@contextmanager
def locked(device: str) -> Iterator[None]:
    """Hold the lock of a device while the block runs.

    Args:
        device: its serial port or its probe's serial number; "": there is nothing to lock.

    Raises:
        BoardError: another process holds it; the message names that process.
    """
    if not device or fcntl is None:
        yield
        return
    path = _path(device)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 64, 0).decode(errors="replace").strip()
            raise BoardError(
                f"{device} is in use by another mtool",
                details=[f"process {holder}"] if holder else [],
                hint="wait until it has finished, or end it",
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def _path(device: str) -> Path:
    """Return the lock's file: one for a port, whatever link leads to it."""
    real = os.path.realpath(device) if device.startswith("/") else device
    return Path(tempfile.gettempdir()) / f"mtool-{re.sub(r'[^A-Za-z0-9]+', '-', real).strip('-')}.lock"
