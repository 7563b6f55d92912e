"""`mtool.toml`: what holds for a folder and those below it, unless a command or the environment says otherwise.

Its tables [project] and [options] make the folder a project of a user's own (mtool.commands.user_project reads them).

It may name programs that mtool runs, as a Makefile does. So one that another user could have put into a folder above
the working folder (/tmp/mtool.toml) is refused.
"""

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from mtool.base import system
from mtool.base.errors import UsageError, of_os_error

FILE_NAME = "mtool.toml"
ROOTS = ("board_root", "soc_root", "dts_root")
"""Keys of folders outside of the Zephyr tree."""
_PATHS = ("boards", "tuned", *ROOTS)  # a path, or a list of them
_TABLES = ("project", "options")


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a file says.

    Attributes:
        port, probe: the board's serial port, and the serial number of it or its probe.
        flash: the command that flashes the board, in place of a runner.
        power: the command that cycles the board's power.
        boards: files of further boards, as boards.yaml has them.
        tuned: tuning logs to take schedules from.
        board_root, soc_root, dts_root: folders of boards, chips and bindings outside of the Zephyr tree.
        project, options: the tables of a project of a user's own, as they are.
        file: where all that was read; None: there is no `mtool.toml`.
    """

    port: str = ""
    probe: str = ""
    flash: str = ""
    power: str = ""
    boards: tuple[Path, ...] = ()
    tuned: tuple[Path, ...] = ()
    board_root: tuple[Path, ...] = ()
    soc_root: tuple[Path, ...] = ()
    dts_root: tuple[Path, ...] = ()
    project: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None


def read_toml(path: Path, what: str = "") -> tuple[dict[str, Any], os.stat_result]:
    """Read a TOML file; its tables, and its status. `what` stands before its path in messages ("the device file ").

    Raises:
        UsageError: it can't be read, or is not TOML.
    """
    try:
        with path.open("rb") as file:
            text = file.read().decode("utf-8-sig")  # an editor may put a mark first
            return tomllib.loads(text), os.fstat(file.fileno())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as invalid:
        raise UsageError(f"{what}{path} is not TOML", details=[str(invalid)]) from None
    except OSError as failed:
        raise of_os_error(failed, f"{what}{path} can't be read") from None


def load(folder: Path | None = None) -> Configuration:
    """Read the nearest `mtool.toml`, in a folder (default: the working folder) or above it; empty, if there is none.

    Paths in it are relative to its own folder.

    Raises:
        UsageError: it can't be read, is not TOML, belongs to another user, or has an unknown key or a value of another
            type.
    """
    path = nearest(folder)
    if path is None:
        return Configuration()
    read, status = read_toml(path)
    check_owner(path, status)
    wrong = [key for key, value in read.items() if not _is_right(key, value)]
    if wrong:
        raise UsageError(f"{path}: {wrong[0]} is unknown or no text", details=[f"expected: {', '.join(_expected())}"])
    found: dict[str, Any] = {key: _paths(value, path) if key in _PATHS else value for key, value in read.items()}
    return Configuration(**found, file=path)


def nearest(folder: Path | None = None) -> Path | None:
    """Return the nearest `mtool.toml`, in a folder (default: the working folder) or above it; None: there is none."""
    here = folder or Path.cwd()
    return next((up / FILE_NAME for up in (here, *here.parents) if (up / FILE_NAME).is_file()), None)


def check_owner(path: Path, status: os.stat_result) -> None:
    """Refuse a file that nobody named and that may be another user's.

    Raises:
        UsageError: it is not this user's or root's, or everybody may write it.
    """
    if system.user() is not None and (status.st_uid not in (system.user(), 0) or status.st_mode & stat.S_IWOTH):
        what = f"{path} could be another user's, and may name programs to run"
        details = ["expected  a file of yours or of root's, that not everybody may write"]
        raise UsageError(what, details=details, hint="remove it, or make it yours: chown, chmod o-w")


def _is_right(key: str, value: Any) -> bool:
    if key in _TABLES:
        return isinstance(value, dict)
    if key in _PATHS and isinstance(value, list):
        return all(isinstance(one, str) for one in value)
    return key in _names() and isinstance(value, str)


def _paths(value: str | list[str], file: Path) -> tuple[Path, ...]:
    return tuple(file.parent / one for one in ([value] if isinstance(value, str) else value))


def _names() -> list[str]:
    return [each.name for each in fields(Configuration) if each.name not in (*_TABLES, "file")]


def _expected() -> list[str]:
    texts = [f'{name} = ["..", ".."]' if name in _PATHS else f'{name} = ".."' for name in _names()]
    return [*texts, *(f"[{name}]" for name in _TABLES)]
