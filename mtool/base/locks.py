"""One user at a time for each device and each project folder: a lock that ends with its process, however that ends.

Locks are files (mtool/base/lock_files.py) in a folder of the user's own: no other user can put a link in their place.
"""

import contextlib
import hashlib
import logging
import os
import re
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from mtool.base.errors import BoardError, UsageError
from mtool.base.lock_files import Taken, take

log = logging.getLogger(__name__)

_PATIENCE_S = 600.0
_POLL_S = 0.1
_READABLE = 40  # characters of what is locked that its file's name shows

_handles: ContextVar[tuple[int, ...]] = ContextVar("handles", default=())
_kept: ContextVar[contextlib.ExitStack | None] = ContextVar("kept", default=None)


class Lock:
    """Hold the lock of a device until `release`, or this process's end.

    What this process holds already may be taken again: the second lock then does nothing, and the first has to be
    released last.

    Args:
        device: its serial port or its probe's serial number; "": there is nothing to lock.

    Raises:
        BoardError: another process holds it; the message names that process.
        UsageError: no folder for locks can be had.
    """

    def __init__(self, device: str) -> None:
        self._release: Callable[[], object] | None = None
        if not device:
            return
        taken = _take(_called(device))
        if isinstance(taken, Taken):
            self._release = weakref.finalize(self, taken.release)
        elif taken != str(os.getpid()):
            raise BoardError(
                f"{device} is in use by another mtool",
                details=[f"process {taken}"] if taken else [],
                hint="wait until it has finished, or end it",
            )

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


@contextmanager
def keep_locks() -> Iterator[None]:
    """Let go of the folders that are locked within only at the end of the block, or of the function it decorates."""
    if _kept.get() is not None:
        yield
        return
    with contextlib.ExitStack() as held:
        token = _kept.set(held)
        try:
            yield
        finally:
            _kept.reset(token)


@contextmanager
def folder(path: Path, *, patience_s: float = _PATIENCE_S) -> Iterator[None]:
    """Hold a folder while the block runs, or longer where `keep_locks` says so; wait while another process does.

    Args:
        path: the folder, which need not be there yet.
        patience_s: how long to wait at most.

    Raises:
        UsageError: another process does not let go of it, or no folder for locks can be had.
    """
    real = os.path.realpath(path)
    deadline = time.monotonic() + patience_s
    told = False
    while isinstance(taken := _take(real), str) and taken != str(os.getpid()):
        if time.monotonic() > deadline:
            raise UsageError(
                f"{path} is in use by another mtool",
                details=[f"process {taken}, for more than {patience_s:g} s"],
                hint="wait until it has finished, or end it",
            )
        if not told:
            log.warning("waiting for process %s, or what it started, which uses %s", taken, path)
            told = True
        time.sleep(_POLL_S)
    kept = _kept.get()
    with contextlib.ExitStack() as here:
        if isinstance(taken, Taken):
            held = here if kept is None else kept
            held.callback(taken.release)
            inherited = () if taken.handle is None else (taken.handle,)
            held.callback(_handles.reset, _handles.set((*_handles.get(), *inherited)))
        yield


@contextmanager
def file(path: Path) -> Iterator[None]:
    """Hold a file that this process writes to while the block runs, or longer where `keep_locks` says so.

    Raises:
        UsageError: another process holds it; the message names that process.
    """
    taken = _take(f"file {os.path.realpath(path)}")
    if isinstance(taken, str) and taken != str(os.getpid()):
        raise UsageError(
            f"{path} is in use by another mtool",
            details=[f"process {taken}"] if taken else [],
            hint="wait until it has finished, or write another file",
        )
    kept = _kept.get()
    with contextlib.ExitStack() as here:
        if isinstance(taken, Taken):
            (here if kept is None else kept).callback(taken.release)
        yield


def handles() -> tuple[int, ...]:
    """Return the handles of the folders that are held.

    A program that works in a folder inherits them: if this process is killed, the folder stays locked until that
    program has ended too.
    """
    return _handles.get()


def _take(what: str) -> Taken | str:
    """Lock what is named, or return the number of the process that holds it."""
    known = hashlib.sha256(what.encode(errors="surrogateescape")).hexdigest()[:16]
    return take(re.sub(r"[^A-Za-z0-9]+", "-", what)[-_READABLE:].strip("-") + f"-{known}.lock")


def _called(device: str) -> str:
    """Return the one name of a device that has several: a path's target, a port of Windows, macOS's two of a port."""
    if re.fullmatch(r"(?i)com\d+", device):
        return device.upper()
    if device.startswith("/dev/tty.") and sys.platform == "darwin":
        return "/dev/cu." + device.removeprefix("/dev/tty.")
    return os.path.realpath(device) if device.startswith("/") else device
