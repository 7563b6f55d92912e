"""Files that one process at a time holds; the lock ends with that process, however that ends.

By `flock` where the system has it: programs that a process starts can hold the lock on, through the handle that they
inherit. Elsewhere by the package filelock.
"""

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mtool.base import resources, system
from mtool.base.errors import UsageError, of_os_error

try:
    import fcntl
except ImportError:  # Windows
    HAS_FLOCK = False
else:
    HAS_FLOCK = system.HAS_FOLDER_HANDLES


@dataclass(frozen=True, slots=True)
class Taken:
    """A lock that this process holds, and the handle that programs may inherit, if there is one."""

    release: Callable[[], None]
    handle: int | None = None


def take(name: str) -> Taken | str:
    """Lock the file of a name, or return the number of the process that holds it.

    Raises:
        UsageError: no folder for locks can be had, or the file is none of mtool's.
    """
    return _take_by_flock(name) if HAS_FLOCK else _take_by_filelock(name)


def _take_by_flock(name: str) -> Taken | str:
    path, own = _own_folder()
    try:
        while True:
            handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=own)
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                os.close(handle)
                raise UsageError(f"{path / name} is not a lock of mtool's", hint="remove it")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(handle, 64, 0).decode(errors="replace").strip()
                os.close(handle)
                return holder
            if os.fstat(handle).st_nlink == 1:
                break
            os.close(handle)  # who held it has removed it meanwhile

        owner = os.getpid()

        def release() -> None:
            if os.getpid() == owner:  # not a fork of it
                with contextlib.suppress(OSError):
                    (path / name).unlink()
            os.close(handle)

        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{owner}\n".encode(), 0)
        except OSError:  # a full disk. Without its number this process would wait for itself
            release()
            raise
        return Taken(release, handle)
    except OSError as failed:
        raise of_os_error(failed, f"{path / name} can't be locked") from None
    finally:
        os.close(own)


def _take_by_filelock(name: str) -> Taken | str:
    import filelock

    state = resources.state_folder() or Path(tempfile.gettempdir()) / "mtool"
    path = state / "locks" / name
    holder = path.with_suffix(".holder")  # a file that is locked can't be read there
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

    return Taken(release)


def _own_folder() -> tuple[Path, int]:
    """Return the folder of locks and a handle to it: the first that is this user's own, or can be.

    Raises:
        UsageError: there is none.
    """
    refused = []
    for above, path in candidates():
        try:
            if above is not None and above.stat().st_uid != os.geteuid():
                raise PermissionError(0, f"{above} belongs to another user")
            with contextlib.suppress(FileExistsError):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.mkdir(mode=0o700)
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as failed:
            refused.append(f"{path}: {failed.strerror or failed}")
            continue
        found = os.fstat(handle)
        if found.st_uid == os.geteuid():
            if stat.S_IMODE(found.st_mode) != 0o700:
                os.fchmod(handle, 0o700)
            return path, handle
        os.close(handle)
        refused.append(f"{path}: it belongs to another user")
    raise UsageError("there is no folder for locks", details=refused, hint="set XDG_STATE_HOME to a folder of your own")


def candidates() -> Iterator[tuple[Path | None, Path]]:
    """Yield folders for locks, best first, each with what above it has to be this user's own."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        yield Path(runtime), Path(runtime) / "mtool"
    state = resources.state_folder()
    if state is not None:
        there = next(above for above in state.parents if os.path.exists(above))  # noqa: PTH110 - asks no rights
        yield there, state / "locks"
    with contextlib.suppress(FileNotFoundError):
        yield None, Path(tempfile.gettempdir()) / f"mtool-{os.geteuid()}"
