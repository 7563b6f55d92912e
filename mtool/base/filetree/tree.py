"""A set of text or binary files as pure data: a stage makes it, and one function writes it."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from mtool.base.frozen import frozen

RECORD = ".mtool"  # the folder with the record of mtool's files; never part of a tree
SECRETS = ("link.key", "mt_link_key.h")
"""The names of files that only their owner can read."""
IGNORED = ".gitignore"


@frozen
class FileTree:
    """Map relative POSIX paths to file contents.

    Raises:
        ValueError: a path is absolute, leaves the tree, or is in `.mtool`.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    outline: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """A description of the files for later stages, from the stage that made them; it can be written as JSON."""

    def __post_init__(self) -> None:
        for path in self.files:
            if not is_plain(path):
                raise ValueError(f"file tree path {path!r} is not a plain relative path")

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self.files))

    def __getitem__(self, path: str) -> bytes:
        return self.files[path]

    def text(self, path: str) -> str:
        """Return a file decoded as UTF-8."""
        return self.files[path].decode()

    def merged(self, other: "FileTree", under: str = "") -> "FileTree":
        """Return a tree with the files of `other` added in the folder `under`."""
        prefix = f"{under}/" if under else ""
        return FileTree({**self.files, **{prefix + path: data for path, data in other.files.items()}})

    def digest(self) -> str:
        """Return a SHA-256 (hex) over all paths and contents, independent of their order."""
        sha = hashlib.sha256()
        for path in self:
            name = path.encode()
            sha.update(len(name).to_bytes(4, "little") + name)
            sha.update(len(self.files[path]).to_bytes(8, "little") + self.files[path])
        return sha.hexdigest()


def is_plain(path: str) -> bool:
    """Return whether a path may be in a tree: relative, normalized, not in mtool's record."""
    parts = path.split("/")
    return not {"", ".", ".."} & {*parts} and "\0" not in path and parts[0] != RECORD


def from_folder(folder: Path, *, skip: tuple[str, ...] = ()) -> FileTree:
    """Read every file below `folder` into a tree, except the top-level names in `skip` (for instance `build`)."""
    tops = [top for top in folder.iterdir() if top.name not in (*skip, RECORD)]
    paths = [path for top in tops for path in (top.rglob("*") if top.is_dir() else [top]) if path.is_file()]
    return FileTree({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})


def digest_of(folder: Path, *, skip: tuple[str, ...] = ()) -> str:
    """Return a SHA-256 (hex) over every file below a folder and the targets of its links.

    Args:
        folder: the folder, which is read one file at a time.
        skip: top-level names to leave out, besides those that begin with a dot: mtool's record, `.git`.

    Raises:
        OSError: something in it can't be read.
    """
    sha = hashlib.sha256()
    for root, folders, names in os.walk(folder, onerror=_raise):
        if Path(root) == folder:
            folders[:] = [name for name in folders if name not in skip and not name.startswith(".")]
            names = [name for name in names if name not in skip]
        folders.sort()
        for path in sorted(Path(root, name) for name in [*folders, *names]):
            if path.is_symlink():
                content = os.fsencode(path.readlink())
            elif path.is_file():
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").digest()
            else:
                continue  # a folder, whose files follow, or a pipe
            for part in (os.fsencode(path.relative_to(folder)), content):
                sha.update(len(part).to_bytes(8, "little") + part)
    return sha.hexdigest()


def _raise(error: OSError) -> None:
    raise error
