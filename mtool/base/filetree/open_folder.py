"""An open folder: files below it are reached without following links."""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mtool.base import files, system
from mtool.base.frozen import frozen

_OPEN = system.READ | system.NO_LINK
_OPEN_FOLDER = _OPEN | system.FOLDER


@frozen
class FileState:
    """The file or other object at a path.

    Attributes:
        digest: the SHA-256 (hex) of a plain file.
        other: what else is there ("a link", "a folder"), or on the way to it ("below a link"); then nothing
            can be written there.
    """

    digest: str = ""
    other: str = ""

    @property
    def missing(self) -> bool:
        """Whether nothing is there."""
        return not self.digest and not self.other


@frozen
class OpenFolder:
    """A folder that is open, by its handle; `path` is for messages.

    Where folders have no handles (`mtool.base.system`), paths are used, and each step first checks for a link.
    """

    path: Path
    handle: int | None

    def look(self, path: str) -> FileState:
        """Return the kind of entry at a path.

        Raises:
            OSError: it can't be read.
        """
        try:
            with self.naming(path), self._parent(path) as (parent, name):
                if parent is None and Path(name).is_symlink():
                    return FileState(other="a link")
                if parent is None and Path(name).is_dir():
                    return FileState(other="a folder")
                handle = os.open(name, _OPEN | system.NO_WAIT, dir_fd=parent)
                try:
                    mode = os.fstat(handle).st_mode
                    if not stat.S_ISREG(mode):
                        return FileState(other="a folder" if stat.S_ISDIR(mode) else "not a plain file")
                    with open(handle, "rb", closefd=False) as file:
                        return FileState(digest=hashlib.file_digest(file, "sha256").hexdigest())
                finally:
                    os.close(handle)
        except FileNotFoundError:
            return FileState()
        except NotADirectoryError:
            return FileState(other="below a link or a file")
        except OSError as failed:
            if failed.errno == errno.ELOOP:
                return FileState(other="a link")
            raise

    def create(self, path: str, data: bytes, rights: int = 0o666) -> None:
        """Create a new file, and the folders above it.

        Raises:
            OSError: it can't be written; then no file is left.
        """
        with self.naming(path), self._parent(path, create=True) as (parent, name):
            files.create(name, data, parent, rights)

    def move(self, old: str, new: str) -> None:
        """Move a file to another path, replacing what is there, and create the folders above it.

        Raises:
            OSError: it can't be moved.
        """
        with self.naming(new), self._parent(old) as (source, name), self._parent(new, create=True) as (parent, other):
            os.replace(name, other, src_dir_fd=source, dst_dir_fd=parent)

    def remove(self, path: str) -> None:
        """Remove a file or a link, and the folders above it that are then empty.

        Raises:
            OSError: it can't be removed.
        """
        with self.naming(path), self._parent(path) as (parent, name):
            os.unlink(name, dir_fd=parent)
        self.prune(path)

    def prune(self, path: str) -> None:
        """Remove empty folders above a path."""
        above = path
        with contextlib.suppress(OSError):  # it has other files
            while above := above.rpartition("/")[0]:
                with self._parent(above) as (parent, name):
                    os.rmdir(name, dir_fd=parent)

    def names(self, path: str = ".") -> list[str]:
        """Return the names in a folder below, or in this one; empty if it does not exist.

        Raises:
            OSError: it is not a folder, or can't be read.
        """
        with self.naming(path):
            try:
                with self._parent(f"{path}/.") as (parent, name):
                    return sorted(os.listdir(name if parent is None else parent))  # noqa: PTH208
            except FileNotFoundError:
                return []

    @contextmanager
    def _parent(self, path: str, *, create: bool = False) -> Iterator[tuple[int | None, str]]:
        """Open the folder of a path, one name at a time; yield its handle and the path's last name.

        Where folders have no handles: None, and the whole path.
        """
        *folders, name = path.split("/")
        if self.handle is None:
            yield None, str(self._folder(folders, create=create) / name)
            return
        handle = os.dup(self.handle)
        try:
            for folder in folders:
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(folder, dir_fd=handle)
                inner = os.open(folder, _OPEN_FOLDER, dir_fd=handle)
                os.close(handle)
                handle = inner
            yield handle, name
        finally:
            os.close(handle)

    def _folder(self, names: list[str], *, create: bool) -> Path:
        """Return the path of a folder below, none of whose parents is a link."""
        path = self.path
        for name in names:
            path /= name
            if create and not path.is_symlink():
                path.mkdir(exist_ok=True)
            if path.is_symlink() or (path.exists() and not path.is_dir()):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return path

    @contextmanager
    def naming(self, path: str) -> Iterator[None]:
        """Make errors in the block name a whole path, not only its last part."""
        try:
            yield
        except OSError as failed:
            raise OSError(failed.errno, failed.strerror, str(self.path / path)) from None


@contextmanager
def open_folder(path: Path) -> Iterator[OpenFolder]:
    """Open a folder while the block runs.

    Raises:
        OSError: it is not a folder, or can't be opened.
    """
    if not system.HAS_FOLDER_HANDLES:
        yield OpenFolder(path, None)
        return
    handle = os.open(path, system.READ | system.FOLDER)
    try:
        yield OpenFolder(path, handle)
    finally:
        os.close(handle)
