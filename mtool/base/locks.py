"""One user at a time for each device and each project folder: a lock ends with its process, however that ends.

Locks are files (mtool/base/locks.py) in a folder that belongs to the user: no other user can put a link in their place.
"""

import contextlib
import hashlib
import logging
import os
import re
import stat
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from mtool.base import resources, system
from mtool.base.errors import BoardError, UsageError, of_os_error
from mtool.base.frozen import frozen

# With `flock` where the system has it: a program that inherits the handle keeps the lock held. Elsewhere with the
# package filelock.
try:
    import fcntl
except ImportError:  # Windows
    HAS_FLOCK = False
else:
    HAS_FLOCK = system.HAS_FOLDER_HANDLES


@frozen
class HeldLock:
    """A lock that this process holds, and its handle, which child processes may inherit, if there is one."""

    release: Callable[[], None]
    handle: int | None = None


def take(name: str) -> HeldLock | str:
    """Lock the file with a name, or return the number of the process that holds it.

    Raises:
        UsageError: there is no folder for locks, or the file is not mtool's.
    """
    return _take_by_flock(name) if HAS_FLOCK else _take_by_filelock(name)


def _take_by_flock(name: str) -> HeldLock | str:
    path, folder_fd = _own_folder()
    try:
        while True:
            handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder_fd)
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                os.close(handle)
                raise UsageError(f"{path / name} is not an mtool lock", hint="remove it")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(handle, 64, 0).decode(errors="replace").strip()
                os.close(handle)
                return holder
            if os.fstat(handle).st_nlink == 1:
                break
            os.close(handle)  # its holder has removed it meanwhile

        owner = os.getpid()

        def release() -> None:
            if os.getpid() == owner:  # not in a fork
                with contextlib.suppress(OSError):
                    (path / name).unlink()
            os.close(handle)

        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{owner}\n".encode(), 0)
        except OSError:  # a full disk. Without its number in the file, this process would wait for itself
            release()
            raise
        return HeldLock(release, handle)
    except OSError as failed:
        raise of_os_error(failed, f"{path / name} can't be locked") from None
    finally:
        os.close(folder_fd)


def _take_by_filelock(name: str) -> HeldLock | str:
    import filelock

    state = resources.state_folder() or Path(tempfile.gettempdir()) / "mtool"
    path = state / "locks" / name
    holder = path.with_suffix(".holder")  # Windows does not let a locked file be read
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(path, timeout=0, thread_local=False)
        try:
            lock.acquire()
        except filelock.Timeout:
            return holder.read_text(encoding="ascii").strip() if holder.is_file() else ""
        holder.write_text(f"{os.getpid()}\n", encoding="ascii")
    except OSError as failed:
        raise of_os_error(failed, f"{path} can't be locked") from None

    def release() -> None:
        with contextlib.suppress(OSError):
            holder.unlink()
        lock.release()

    return HeldLock(release)


def _own_folder() -> tuple[Path, int]:
    """Return the folder for locks and a handle to it: the first that belongs to this user or can be created.

    Raises:
        UsageError: there is no such folder.
    """
    reasons = []
    for above, path in candidates():
        try:
            if above is not None and above.stat().st_uid != os.geteuid():
                raise PermissionError(0, f"{above} belongs to another user")
            with contextlib.suppress(FileExistsError):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.mkdir(mode=0o700)
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as failed:
            reasons.append(f"{path}: {failed.strerror or failed}")
            continue
        status = os.fstat(handle)
        if status.st_uid == os.geteuid():
            if stat.S_IMODE(status.st_mode) != 0o700:
                os.fchmod(handle, 0o700)
            return path, handle
        os.close(handle)
        reasons.append(f"{path}: it belongs to another user")
    raise UsageError("no usable folder for locks", details=reasons, hint="set XDG_STATE_HOME to a folder of your own")


def candidates() -> Iterator[tuple[Path | None, Path]]:
    """Yield folders for locks, best first, each with the parent that has to belong to this user."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        yield Path(runtime), Path(runtime) / "mtool"
    state = resources.state_folder()
    if state is not None:
        there = next(above for above in state.parents if os.path.exists(above))  # noqa: PTH110 - asks no rights
        yield there, state / "locks"
    with contextlib.suppress(FileNotFoundError):
        yield None, Path(tempfile.gettempdir()) / f"mtool-{os.geteuid()}"


log = logging.getLogger(__name__)
_PATIENCE_S = 600.0
_POLL_S = 0.1
_READABLE = 40  # characters of the locked thing's name in the file's name
_handles: ContextVar[tuple[int, ...]] = ContextVar("handles", default=())
_kept: ContextVar[contextlib.ExitStack | None] = ContextVar("kept", default=None)


class Lock:
    """The lock of a device, held until `release` or the end of this process.

    A lock that this process holds may be taken again: the second then does nothing, and the first has to be released
    last.

    Args:
        device: its serial port or its probe's serial number, or the file of an emulated flash; "": nothing to lock.
        only: also refuse a lock that this process holds.

    Raises:
        BoardError: another process holds it; the message names that process.
        UsageError: there is no folder for locks.
    """

    def __init__(self, device: str, *, only: bool = False) -> None:
        self._release: Callable[[], object] | None = None
        if not device:
            return
        lock_or_pid = _take(_canonical(device))
        if isinstance(lock_or_pid, HeldLock):
            self._release = weakref.finalize(self, lock_or_pid.release)
        elif only and lock_or_pid == str(os.getpid()):
            what = f"{device} is in use by this process"
            details = [f"process {lock_or_pid} has an open session with it"]
            raise BoardError(what, details=details, hint="use that session, or close it first")
        elif lock_or_pid != str(os.getpid()):
            what = f"{device} is in use by another mtool process"
            details = [f"process {lock_or_pid}"] if lock_or_pid else []
            raise BoardError(what, details=details, hint="wait until that process has finished, or end it")

    @property
    def is_held(self) -> bool:
        """Whether this lock is held; False if this process held it already through another one."""
        return isinstance(self._release, weakref.finalize) and self._release.alive

    def release(self) -> None:
        """Release it. May be called repeatedly."""
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
    """Keep folders that are locked in the block locked until its end, or that of the decorated function."""
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
    """Lock a folder while the block runs, or longer inside `keep_locks`; wait while another process holds it.

    Args:
        path: the folder, which need not exist yet.
        patience_s: the longest time to wait.

    Raises:
        UsageError: another process does not release it in time, or there is no folder for locks.
    """
    hint = "wait until that process has finished, or end it"
    with _held(os.path.realpath(path), path, patience_s, hint, is_inherited=True):
        yield


@contextmanager
def file(path: Path) -> Iterator[None]:
    """Lock a file that this process writes to while the block runs, or longer inside `keep_locks`.

    Raises:
        UsageError: another process holds it; the message names that process.
    """
    hint = "wait until that process has finished, or write another file"
    with _held(f"file {os.path.realpath(path)}", path, 0.0, hint, is_inherited=False):
        yield


@contextmanager
def _held(what: str, path: Path, patience_s: float, hint: str, *, is_inherited: bool) -> Iterator[None]:
    deadline = time.monotonic() + patience_s
    has_warned = False
    while isinstance(lock_or_pid := _take(what), str) and lock_or_pid != str(os.getpid()):
        if time.monotonic() >= deadline:
            waited = f", for more than {patience_s:g} s" if patience_s else ""
            details = [f"process {lock_or_pid}{waited}"] if lock_or_pid or waited else []
            raise UsageError(f"{path} is in use by another mtool process", details=details, hint=hint)
        if not has_warned:
            log.warning("waiting for process %s or its child processes, which use %s", lock_or_pid, path)
            has_warned = True
        time.sleep(_POLL_S)
    with contextlib.ExitStack() as here:
        if isinstance(lock_or_pid, HeldLock):
            held = _kept.get() or here
            held.callback(lock_or_pid.release)
            if is_inherited:
                inherited = () if lock_or_pid.handle is None else (lock_or_pid.handle,)
                held.callback(_handles.reset, _handles.set((*_handles.get(), *inherited)))
        yield


def handles() -> tuple[int, ...]:
    """Return the handles of the folder locks.

    A program that works in a folder inherits them: if this process is killed, the folder stays locked until that
    program has ended too.
    """
    return _handles.get()


def _take(what: str) -> HeldLock | str:
    """Take a lock, or return the number of the process that holds it."""
    digest = hashlib.sha256(what.encode(errors="surrogateescape")).hexdigest()[:16]
    return take(re.sub(r"[^A-Za-z0-9]+", "-", what)[-_READABLE:].strip("-") + f"-{digest}.lock")


def _canonical(device: str) -> str:
    """Return the canonical name of a device: a link's target, or one name for a Windows port or for macOS's two."""
    if re.fullmatch(r"(?i)com\d+", device):
        return device.upper()
    if device.startswith("/dev/tty.") and sys.platform == "darwin":
        return "/dev/cu." + device.removeprefix("/dev/tty.")
    return os.path.realpath(device) if device.startswith("/") else device
