"""Write one file, whole or not at all, or a line more, with the rights that the umask gives. Nothing else does.

What a person names to be read is opened here too: what is no file is refused.
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
    """Open a file that a person named, to be read; close it.

    A pipe that this process already has open is right too: `--tuned <(cat a.jsonl b.jsonl)`, /dev/stdin. To open
    another would wait for a writer, and a device may have no end.

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
    """Return all of a file that a person named; errors are those of `open_named`."""
    with open_named(path) as file:
        return file.read()


def check_plain(path: Path) -> None:
    """Check that a program which opens a path finds a plain file there, or nothing.

    Raises:
        UsageError: it is a pipe, which would be waited for, a device, a socket or a folder.
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
    """Write a temporary file beside a file and rename it to that; its folder is created if missing.

    Args:
        path: the file.
        data: all of it.
        follow: a person named the file: where it is a link, the file that it leads to is written, and where it is
            a character device or what this process has open ("/dev/stdout"), it is written to as it is; what else is no
            plain file is refused. Otherwise whatever stands there is replaced.

    Raises:
        UsageError: it can't be written; what stood there is untouched.
    """
    with _refusing(path):
        if follow and _is_special(path):
            _write_special(path, data)
            return
        target = path.resolve() if follow else path
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, data)


def append_line(path: Path, line: bytes) -> None:
    """Append a line to a file, which is on the disk when this returns; a line there that was cut is ended before it.

    Args:
        path: the file, which is made if it is missing, and its folder too.
        line: without its end.

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
            left = memoryview((b"\n" if is_cut else b"") + line + b"\n")
            while left:  # a disk that becomes full takes a part, and refuses the rest
                left = left[file.write(left) :]
            if is_plain:
                os.fsync(handle)


def open_log(path: Path) -> IO[str]:
    """Open a file that a person named for a log, which is there line by line while it is written; close it.

    Raises:
        UsageError: it can't be written.
    """
    check_writable(path)
    with _refusing(path):
        return path.open("w", encoding="utf-8", errors="backslashreplace", buffering=1)


def check_writable(path: Path, read: Iterable[Path | None] = (), *, makes_folder: bool = False) -> None:
    """Say now that a file which a person named, and which is written after much work, can't be; nothing is left behind.

    Args:
        path: the file.
        read: what the work reads, and must not overwrite.
        makes_folder: where its folder is missing, that is made when the file is written.

    Raises:
        UsageError: its folder is not there or can't be written, it is a folder, a pipe or a disk, or it is one of
            `read`.
    """
    for source in read:
        with contextlib.suppress(OSError):
            if source is not None and path.is_file() and path.samefile(source):
                raise UsageError(f"{path} would be overwritten, and is read: {source}", hint="give another name")
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
    """Say now that a folder, which is made with those above it if it is missing, can't be made or written to.

    Raises:
        UsageError: one of them is a file, or may not be written to.
    """
    with _refusing(folder):
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(there, os.W_OK | os.X_OK):
            raise _refusal(there)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as failed:  # links in a circle are a RuntimeError of pathlib's
        refused = failed if isinstance(failed, OSError) else OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        error = of_os_error(refused, f"{path} can't be written")
        details = [*error.details]
        with contextlib.suppress(OSError):  # it is no link
            details.append(f"it is a link to {path.readlink()}")
        raise UsageError(error.what, details=details, hint=error.hint) from None


def create(name: str, data: bytes, folder: int | None) -> None:
    """Create a new file in an open folder, or, without a folder, at a path, and write all of it.

    Raises:
        OSError: it is there already, or it can't be written; then there is no file.
    """
    handle = os.open(name, _NEW, _RIGHTS, dir_fd=folder)
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
    """Refuse what a rename would replace without asking: a folder, and a file that is protected against writing."""
    if target.is_dir() and not target.is_symlink():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if target.is_file() and not os.access(target, os.W_OK):
        raise _refusal(target)


def _refusal(path: Path) -> OSError:
    """Return why a path may not be written to: os.access doesn't say."""
    is_read_only = hasattr(os, "statvfs") and os.statvfs(path).f_flag & os.ST_RDONLY
    code = errno.EROFS if is_read_only else errno.EACCES
    return OSError(code, os.strerror(code))


def _beside(target: Path) -> Path:
    """Return a new name in the same folder, which is short even where the file's own is as long as names may be."""
    return target.with_name(f".mtool-{secrets.token_hex(6)}")


def _is_special(target: Path) -> bool:
    """Return whether there is a device, a pipe or a socket."""
    return target.exists() and not target.is_file() and not target.is_dir()


def _check_special(target: Path) -> None:
    """Refuse what would wait for a reader, and what a whole file system may lie on.

    Raises:
        UsageError: it is no character device, and this process has not got it open.
    """
    if not (target.is_char_device() or _has_open(target)):
        kind = "a pipe" if target.is_fifo() else "a disk" if target.is_block_device() else "a socket"
        what = f"{target} can't be written"
        raise UsageError(what, details=[f"it is {kind}, not a file"], hint="give the name of a file, or /dev/stdout")


def _has_open(target: Path) -> bool:
    """Return whether this process has a file open, for instance as its standard output."""
    there = target.stat()
    for descriptor in Path("/dev/fd").iterdir() if Path("/dev/fd").is_dir() else ():
        with contextlib.suppress(OSError):  # the descriptor of this very list
            if os.path.samestat(os.fstat(int(descriptor.name)), there):
                return True
    return False


def _write_special(target: Path, data: bytes) -> None:
    _check_special(target)
    handle = os.open(target, os.O_WRONLY | system.NO_WAIT | system.NO_TERMINAL)  # no wait for a reader, a modem
    if system.NO_WAIT:
        os.set_blocking(handle, True)
    with open(handle, "wb", buffering=0) as file:  # noqa: PTH123
        while data:
            data = data[file.write(data) :]
