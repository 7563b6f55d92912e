"""Files of boards: mtool's own boards.yaml, and those of a user, of which one wrong entry does not spoil the others."""

import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from mtool.base import configuration, files, resources
from mtool.base.errors import UsageError
from mtool.boards.schema import Board, told

VARIABLE = "MTOOL_BOARDS"
FOLDER = "boards"  # beside mtool.toml
_SUFFIXES = (".yaml", ".yml")
_LINES = 6  # of what a parser says
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where PyYAML was built with it: 10 times as fast


@dataclass(frozen=True, slots=True)
class Broken:
    """An entry of a user's file that breaks the schema: the board's name, its file, and the error."""

    name: str
    path: Path
    error: UsageError


@dataclass(frozen=True, slots=True)
class Read:
    """What files of boards hold: the boards by name, in the files' order, and the entries that are wrong."""

    boards: Mapping[str, Board]
    broken: Mapping[str, Broken]


def read(environment: Mapping[str, str] = os.environ) -> Read:
    """Read boards.yaml, then the user's files: a later entry takes the place of one of the same name.

    Raises:
        UsageError: a file can't be read, is not YAML or might be another user's; or an entry of mtool's own breaks the
            schema.
    """
    return read_files(tuple(files_of(environment)))


def files_of(environment: Mapping[str, str] = os.environ) -> Iterator[Path]:
    """Yield the files of boards in their order: mtool's own, mtool.toml's, those beside it in boards/, MTOOL_BOARDS'.

    A folder stands for its .yaml files.

    Raises:
        UsageError: one that is named is not there.
    """
    yield resources.path("boards.yaml")
    for path in configuration.load().boards:
        yield from _in(path)
    project = configuration.nearest()
    if project is not None and (project.parent / FOLDER).is_dir():
        for path in _in(project.parent / FOLDER):
            configuration.check_owner(path, path.stat())  # nobody named it, and an entry names programs to run
            yield path
    for name in filter(None, environment.get(VARIABLE, "").split(os.pathsep)):
        yield from _in(Path(name))


def file_of(name: str) -> Path | None:
    """Return the user's file that a board is read from; None: it is mtool's own, or none of a file."""
    _, *own = files_of()
    return next((path for path in reversed(own) if name in _entries(path)), None)


def _in(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES and file.is_file())
    return [path.absolute()]


@functools.cache
def read_files(paths: tuple[Path, ...]) -> Read:
    """Read files of boards; the first is mtool's own, where a wrong entry is an error."""
    found: dict[str, Board] = {}
    broken: dict[str, Broken] = {}
    for number, path in enumerate(paths):
        for name, entry in _entries(path).items():
            try:
                found[name] = board_of(path, name, entry)
                broken.pop(name, None)
            except UsageError as wrong:
                if number == 0:
                    raise
                found.pop(name, None)
                broken[str(name)] = Broken(str(name), path, wrong)
    return Read(found, broken)


def _entries(path: Path) -> dict[Any, Any]:
    try:
        entries = yaml.load(files.read_named(path), Loader=_LOADER)
    except OSError as failed:
        missing = isinstance(failed, FileNotFoundError)
        raise UsageError(
            f"there is no file of boards {path}" if missing else f"{path} can't be read",
            details=[] if missing else [(failed.strerror or str(failed)).lower()],
            hint=f"--boards, {VARIABLE} and mtool.toml name a file of boards, or a folder of them",
        ) from None
    except (yaml.YAMLError, RecursionError, ValueError) as wrong:
        raise UsageError(f"{path} can't be read", details=str(wrong).splitlines()[:_LINES]) from None
    if not isinstance(entries, dict):
        raise UsageError(f"{path} holds no boards", details=["expected  a mapping: each board's name, and its entry"])
    return entries


def board_of(path: Path, name: str, entry: object) -> Board:
    """Return the board of an entry.

    Raises:
        UsageError: it breaks the schema; the message names the keys.
    """
    try:
        return Board.model_validate({**entry, "name": name} if isinstance(entry, dict) else entry)
    except ValidationError as invalid:
        raise UsageError(
            f"{path.name}: the entry of {name} breaks the schema",
            details=told(invalid),
            hint="what each key means: docs/add-a-board.md",
        ) from None
