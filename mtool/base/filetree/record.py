"""The record of a folder: the files that mtool wrote there, with their hashes; it is in the folder itself."""

import json
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from mtool.base.errors import UsageError, of_os_error
from mtool.base.filetree.tree import RECORD, is_plain
from mtool.base.frozen import frozen

FOLDER = RECORD
FILE = "files.json"
_SCHEMA = 1


@frozen
class Record:
    """The files that mtool wrote into a folder.

    Attributes:
        files: the SHA-256 (hex) of each file as written.
        writing: the SHA-256 of each file about to be written; not empty only if mtool was stopped in the middle.
        left: files of the user that were left as they are, each with the reason.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    writing: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)

    def wrote(self, path: str, digest: str) -> bool:
        """Return whether a file is as mtool wrote it."""
        return bool(digest) and digest in (self.files.get(path), self.writing.get(path))

    def to_json(self) -> bytes:
        """Return the record as the bytes of its file; deterministic."""
        document = {"schema_version": _SCHEMA, "files": dict(sorted(self.files.items()))}
        for name, more in (("writing", self.writing), ("left", self.left)):
            if more:
                document[name] = dict(sorted(more.items()))
        return (json.dumps(document, indent=1) + "\n").encode()


def load(folder: Path) -> Record | None:
    """Read the record of a folder; None if it has none.

    Raises:
        UsageError: it is malformed, or it can't be read.
    """
    path = folder / FOLDER / FILE
    try:
        if path.exists() and not path.is_file():  # opening a pipe would block
            raise ValueError
        document = json.loads(path.read_bytes())
        lists = [document["files"], document.get("writing", {}), document.get("left", {})]
        if document["schema_version"] != _SCHEMA or not all(_is_list(paths) for paths in lists):
            raise ValueError
        return Record(*lists)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as failed:
        raise of_os_error(failed, f"{path} can't be read") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        hint = "remove it; mtool then treats every file there that it would change as yours, and asks"
        raise UsageError(f"{path} is not a list of the files that mtool wrote", hint=hint) from None


def interrupted(folder: Path) -> bool:
    """Return whether a folder was left half-written, by a killed process or because the disk was full."""
    record = load(folder)
    return record is not None and bool(record.writing)


def _is_list(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(path, str) and is_plain(path) and isinstance(digest, str) for path, digest in value.items()
    )
