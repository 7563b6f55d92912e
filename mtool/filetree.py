"""A set of text or binary files, as pure data: made by one stage, written by one function."""

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from mtool.errors import UsageError


@dataclass(frozen=True, slots=True)
class FileTree:
    """Map relative POSIX paths to file contents.

    Raises:
        ValueError: a path is absolute or climbs out of the tree.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path in self.files:
            parts = PurePosixPath(path)
            if parts.is_absolute() or ".." in parts.parts or not path:
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


def from_folder(folder: Path, *, skip: tuple[str, ...] = ()) -> FileTree:
    """Read every file below `folder` into a tree, but for the names at its top in `skip` (for instance `build`)."""
    tops = [top for top in folder.iterdir() if top.name not in skip]
    paths = [path for top in tops for path in (top.rglob("*") if top.is_dir() else [top]) if path.is_file()]
    return FileTree({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})


def write(tree: FileTree, folder: Path, *, marker: str, keep: tuple[str, ...] = ()) -> bool:
    """Make `folder` hold exactly `tree`; a failure on the way leaves what was there untouched.

    Files whose content is already right are kept with their times, so that build systems see
    only what changed. A new folder is written aside and renamed into place.

    Args:
        tree: what to write.
        folder: where; created with its parents if missing.
        marker: a file that shows that an existing folder is mtool's to overwrite (for instance `mtool.json`).
        keep: names at the top of `folder` to leave alone (for instance `build`).

    Returns:
        Whether anything changed.

    Raises:
        UsageError: `folder` exists, is not empty and does not hold `marker`.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, not a folder", hint="give another folder")
    if not folder.exists() or not any(folder.iterdir()):
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            for path in tree:
                write_file(aside / path, tree[path])
            aside.chmod(0o755)
            if folder.exists():
                folder.rmdir()
            aside.replace(folder)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        return True
    if not (folder / marker).exists():
        raise UsageError(
            f"{folder} is not empty and was not made by mtool",
            details=[f"it has no {marker}"],
            hint="give an empty or a new folder",
        )
    changed = False
    for old in sorted(folder.rglob("*")):
        relative = old.relative_to(folder)
        if relative.parts[0] not in keep and old.is_file() and relative.as_posix() not in tree.files:
            old.unlink()
            changed = True
    for path in tree:
        target = folder / path
        if not target.is_file() or target.read_bytes() != tree[path]:
            write_file(target, tree[path])
            changed = True
    return changed


def write_file(path: Path, data: bytes) -> None:
    """Write a file aside and rename it into place; its folder is created if missing.

    Raises:
        OSError: it can't be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.new")
    aside.write_bytes(data)
    aside.replace(path)
