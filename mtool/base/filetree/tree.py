"""A set of text or binary files, as pure data: made by one stage, written by one function."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RECORD = ".mtool"  # the folder that says what of a folder mtool wrote; no part of any tree


@dataclass(frozen=True, slots=True)
class FileTree:
    """Map relative POSIX paths to file contents.

    Raises:
        ValueError: a path is absolute, climbs out of the tree, or lies in `.mtool`.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    outline: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What files consist of, as the stage that made them describes it for a later one; JSON can hold it."""

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
        """Return a tree with the files of `other` added below the folder `under`."""
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
    """Return whether a path may stand in a tree: relative, in its normal form, not of mtool's own record."""
    parts = path.split("/")
    return not {"", ".", ".."} & {*parts} and "\0" not in path and parts[0] != RECORD


def from_folder(folder: Path, *, skip: tuple[str, ...] = ()) -> FileTree:
    """Read every file below `folder` into a tree, but for the names at its top in `skip` (for instance `build`)."""
    tops = [top for top in folder.iterdir() if top.name not in (*skip, RECORD)]
    paths = [path for top in tops for path in (top.rglob("*") if top.is_dir() else [top]) if path.is_file()]
    return FileTree({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})


def digest_of(folder: Path, *, skip: tuple[str, ...] = ()) -> str:
    """Return a SHA-256 (hex) over every file below a folder and where its links lead to.

    Args:
        folder: what is read, a file at a time.
        skip: names at its top to leave out. So is what begins with a dot there: mtool's record, `.git`.

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
