"""Write one file, whole or not at all, or append a line, with the umask's permissions. All writing goes through here.

Files that a person names for reading are opened here too; what is not a plain file is refused.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from mtool.base import system
from mtool.base.errors import UsageError, of_os_error

_NEW = system.NEW | system.NO_LINK
_RIGHTS = 0o666  # less the umask


def open_named(path: Path) -> IO[bytes]:
    """Open a file that a person named, for reading; the caller closes it.

    A pipe that this process already has open is allowed too: `--tuned <(cat a.jsonl b.jsonl)`, /dev/stdin. Opening
    another pipe would wait for a writer, and a device may have no end.

    Raises:
        UsageError: it is a pipe, a device, a socket or a folder.
        OSError: it is missing, or can't be read.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not (stat.S_ISFIFO(mode) and _has_open(path)):
        raise _no_file(path, mode)
    handle = os.open(path, system.READ | system.NO_WAIT)
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
            raise _no_file(path, mode)
        if system.NO_WAIT:
            os.set_blocking(handle, True)
        return open(handle, "rb")  # noqa: PTH123
    except BaseException:
        os.close(handle)
        raise


def read_named(path: Path) -> bytes:
    """Return the contents of a file that a person named; errors are those of `open_named`."""
    with open_named(path) as file:
        return file.read()


def check_plain(path: Path) -> None:
    """Check that a path is a plain file, or does not exist.

    Raises:
        UsageError: it is a pipe, whose opening would block, a device, a socket or a folder.
    """
    with contextlib.suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise _no_file(path, mode)


def _no_file(path: Path, mode: int) -> UsageError:
    is_pipe, is_folder = stat.S_ISFIFO(mode), stat.S_ISDIR(mode)
    kind = "a pipe" if is_pipe else "a folder" if is_folder else "a socket" if stat.S_ISSOCK(mode) else "a device"
    return UsageError(f"{path} is {kind}, not a file", hint="give the name of a file")


def write(path: Path, data: bytes, *, follow: bool = False) -> None:
    """Write a file by renaming a temporary file beside it; its folder is created if missing.

    Args:
        path: the file.
        data: its contents.
        follow: set this if a person named the file: a link is followed; a character device, or what this process has
            open ("/dev/stdout"), is written to directly; anything else except a plain file is refused. Otherwise
            whatever is there is replaced.

    Raises:
        UsageError: it can't be written; what was there is untouched.
    """
    with _refusing(path):
        if follow and _is_special(path):
            _write_special(path, data)
            return
        target = path.resolve() if follow else path
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, data)


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file and sync it to disk; an incomplete last line is ended first.

    Args:
        path: the file; it and its folder are created if missing.
        line: the line, without a newline.

    Raises:
        UsageError: it can't be written.
    """
    with _refusing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, system.APPEND, _RIGHTS)
        with open(handle, "r+b", buffering=0) as file:  # noqa: PTH123
            is_plain = stat.S_ISREG(os.fstat(handle).st_mode)
            size = file.seek(0, os.SEEK_END) if is_plain else 0
            is_cut = size > 0 and system.read_at(handle, 1, size - 1) != b"\n"
            rest = memoryview((b"\n" if is_cut else b"") + line + b"\n")
            while rest:  # a full disk may accept a part and refuse the rest
                rest = rest[file.write(rest) :]
            if is_plain:
                os.fsync(handle)


def open_to_append(path: Path) -> IO[bytes]:
    """Open a file to append to it; the caller closes it.

    Raises:
        UsageError: it can't be written.
    """
    with _refusing(path):
        return path.open("ab")


def open_log(path: Path) -> IO[str]:
    """Open a log file that a person named, flushed after each line; the caller closes it.

    Raises:
        UsageError: it can't be written.
    """
    check_writable(path)
    with _refusing(path):
        return path.open("w", encoding="utf-8", errors="backslashreplace", buffering=1)


def check_writable(path: Path, read: Iterable[Path | None] = (), *, makes_folder: bool = False) -> None:
    """Check, before long work, that a file which a person named can be written afterwards; nothing is changed.

    Args:
        path: the file.
        read: files that the work reads, which must not be overwritten.
        makes_folder: the file's folder will be created if it is missing.

    Raises:
        UsageError: its folder does not exist or can't be written to, it is a folder, a pipe or a disk, or it is one
            of `read`.
    """
    for source in read:
        with contextlib.suppress(OSError):
            if source is not None and path.is_file() and path.samefile(source):
                raise UsageError(f"{path} would overwrite {source}, which is read", hint="give another name")
    if not path.parent.is_dir():
        if makes_folder:
            check_folder(path.parent)
            return
        raise UsageError(f"{path} can't be written", details=[f"there is no folder {path.parent}"])
    with _refusing(path):
        if _is_special(path):
            _check_special(path)
            return
        target = path.resolve()
        _check_replaceable(target)
        probe = _beside(target)
        os.close(os.open(probe, _NEW, _RIGHTS))
        probe.unlink()


def check_folder(folder: Path) -> None:
    """Check that a folder can be written to, or created with its parents.

    Raises:
        UsageError: one of them is a file, or is not writable.
    """
    with _refusing(folder):
        nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not nearest.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise _refusal(nearest)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as failed:  # pathlib raises RuntimeError for a loop of links
        refused = failed if isinstance(failed, OSError) else OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        error = of_os_error(refused, f"{path} can't be written")
        details = [*error.details]
        with contextlib.suppress(OSError):  # it is not a link
            details.append(f"it is a link to {path.readlink()}")
        raise UsageError(error.what, details=details, hint=error.hint) from None


def create(name: str, data: bytes, folder: int | None, rights: int = _RIGHTS) -> None:
    """Create a new file in an open folder, or, without a folder, at a path, and write it.

    Raises:
        OSError: it exists already, or it can't be written; then no file is left.
    """
    handle = os.open(name, _NEW, rights, dir_fd=folder)
    try:
        with open(handle, "wb") as file:  # noqa: PTH123
            file.write(data)
    except BaseException:
        os.unlink(name, dir_fd=folder)
        raise


def _replace(target: Path, data: bytes) -> None:
    _check_replaceable(target)
    temporary = _beside(target)
    create(str(temporary), data, None)
    try:
        if target.is_file():
            temporary.chmod(stat.S_IMODE(target.stat().st_mode))
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _check_replaceable(target: Path) -> None:
    """Refuse a folder and a write-protected file, which a rename would replace."""
    if target.is_dir() and not target.is_symlink():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if target.is_file() and not os.access(target, os.W_OK):
        raise _refusal(target)


def _refusal(path: Path) -> OSError:
    """Return why a path may not be written to, which os.access does not report."""
    is_read_only = hasattr(os, "statvfs") and os.statvfs(path).f_flag & os.ST_RDONLY
    code = errno.EROFS if is_read_only else errno.EACCES
    return OSError(code, os.strerror(code))


def _beside(target: Path) -> Path:
    """Return a new name in the same folder, short even if the file's own name has the maximal length."""
    return target.with_name(f".mtool-{secrets.token_hex(6)}")


def _is_special(target: Path) -> bool:
    """Return whether a path is a device, a pipe or a socket."""
    return target.exists() and not target.is_file() and not target.is_dir()


def _check_special(target: Path) -> None:
    """Refuse a pipe, whose opening would block, and a disk, which may hold a file system.

    Raises:
        UsageError: it is not a character device, and this process does not have it open.
    """
    if not (target.is_char_device() or _has_open(target)):
        kind = "a pipe" if target.is_fifo() else "a disk" if target.is_block_device() else "a socket"
        what = f"{target} can't be written"
        raise UsageError(what, details=[f"it is {kind}, not a file"], hint="give the name of a file, or /dev/stdout")


def _has_open(target: Path) -> bool:
    """Return whether this process has a file open, for instance as its standard output."""
    there = target.stat()
    for descriptor in Path("/dev/fd").iterdir() if Path("/dev/fd").is_dir() else ():
        with contextlib.suppress(OSError):  # the descriptor of this listing itself
            if os.path.samestat(os.fstat(int(descriptor.name)), there):
                return True
    return False


def _write_special(target: Path, data: bytes) -> None:
    _check_special(target)
    handle = os.open(target, os.O_WRONLY | system.NO_WAIT | system.NO_TERMINAL)  # does not wait for a reader or a modem
    if system.NO_WAIT:
        os.set_blocking(handle, True)
    with open(handle, "wb", buffering=0) as file:  # noqa: PTH123
        while data:
            data = data[file.write(data) :]
