"""The origin of model files, from a tab-separated table: repository, path, bytes, optionally options."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class Origin:
    """A repository, a path in it, and the options that the model needs, as on the command line."""

    repository: str
    path: str
    size: int | None = None
    options: str = ""


def read(path: Path) -> list[Origin]:
    """Read a table."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return [
        Origin(
            row["repository"], row["path"], int(row["bytes"]) if row.get("bytes") else None, row.get("options") or ""
        )
        for row in rows
    ]


def origin(file: Path, folder: Path, table: Sequence[Origin]) -> Origin:
    """Return where a file is from: of the rows with its name and size the one whose path is most like its own.

    A file that is not in the table is from where it lies: its first folder is the repository.
    """
    parts = file.relative_to(folder).parts
    size = file.stat().st_size

    def likeness(row: Origin) -> tuple[bool, int]:
        theirs = PurePosixPath(row.path).parts
        same = 0
        for mine, other in zip(reversed(parts), reversed(theirs), strict=False):
            if mine != other:
                break
            same += 1
        return row.repository.rpartition("/")[2] in parts, same

    of_name = [row for row in table if PurePosixPath(row.path).name == file.name and row.size in (None, size)]
    if of_name:
        return max(of_name, key=likeness)
    return Origin(parts[0] if len(parts) > 1 else "", "/".join(parts[1:] or parts), size)
