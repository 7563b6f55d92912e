"""`mtool.toml`: settings for a folder and those below it, which commands and the environment may override.

Its tables [project], [options] and [app] make the folder a user's own project (mtool.commands.user_project reads them).

Like a Makefile, it may name programs that mtool runs. So a file that another user could have put into a folder above
the working folder (/tmp/mtool.toml) is refused.
"""

import os
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from mtool.base import spelling, system
from mtool.base.errors import UsageError, of_os_error
from mtool.base.frozen import frozen

FILE_NAME = "mtool.toml"
ROOTS = ("board_root", "soc_root", "dts_root")
"""The keys of folders outside the Zephyr tree."""
_PATHS = ("boards", "tuned", *ROOTS)  # a path, or a list of them
_TABLES = ("project", "options", "app")


@frozen
class Configuration:
    """The settings in a file.

    Attributes:
        port: the board's serial port.
        probe: the serial number of the board or its probe.
        flash: the command that flashes the board, instead of a runner.
        power: the command that power-cycles the board.
        boards: files with more boards, in the form of boards.yaml.
        tuned: tuning logs to take schedules from.
        board_root: folders of boards outside the Zephyr tree.
        soc_root: folders of chips outside the Zephyr tree.
        dts_root: folders of devicetree bindings outside the Zephyr tree.
        project: the table of a user's own project (docs/own-project.md), as read.
        options: the options of the project's commands, as read.
        app: the settings of an application, as read.
        file: the file; None: there is no `mtool.toml`.
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
    app: Mapping[str, Any] = field(default_factory=dict)
    file: Path | None = None


def read_toml(path: Path, what: str = "") -> tuple[dict[str, Any], os.stat_result]:
    """Read a TOML file; return its tables and its status. `what` precedes its path in messages ("the device file ").

    Raises:
        UsageError: it can't be read, or is not TOML.
    """
    try:
        with path.open("rb") as file:
            text = file.read().decode("utf-8-sig")  # an editor may write a byte order mark
            return tomllib.loads(text), os.fstat(file.fileno())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as invalid:
        raise UsageError(f"{what}{path} is not TOML", details=[str(invalid)]) from None
    except OSError as failed:
        raise of_os_error(failed, f"{what}{path} can't be read") from None


def load(folder: Path | None = None) -> Configuration:
    """Read the nearest `mtool.toml`, in a folder (default: the working folder) or above it; empty if there is none.

    Paths in it are relative to its own folder.

    Raises:
        UsageError: it can't be read, is not TOML, may be another user's, or has an unknown key or a value of the wrong
            type.
    """
    path = nearest(folder)
    if path is None:
        return Configuration()
    read, status = read_toml(path)
    check_owner(path, status)
    for key, value in read.items():
        expected = _expected()
        if key not in expected:
            details, hint = [f"expected: {', '.join(expected.values())}"], spelling.did_you_mean(key, expected)
            raise UsageError(f"{path}: unknown key {key!r}", details=details, hint=hint)
        if not _is_right(key, value):
            raise UsageError(f"{path}: {key} can't be {value!r}", details=[f"expected: {expected[key]}"])
    values: dict[str, Any] = {key: _paths(value, path) if key in _PATHS else value for key, value in read.items()}
    return Configuration(**values, file=path)


def nearest(folder: Path | None = None) -> Path | None:
    """Return the nearest `mtool.toml`, in a folder (default: the working folder) or above it; None: there is none."""
    here = folder or Path.cwd()
    return next((up / FILE_NAME for up in (here, *here.parents) if (up / FILE_NAME).is_file()), None)


def check_owner(path: Path, status: os.stat_result) -> None:
    """Refuse a file that mtool found by itself and that may be another user's.

    Raises:
        UsageError: it does not belong to this user or root, or everyone may write to it.
    """
    if system.user() is not None and (status.st_uid not in (system.user(), 0) or status.st_mode & stat.S_IWOTH):
        what = f"{path} could be another user's, and may name programs to run"
        details = ["expected  a file that belongs to you or root, and that not everyone may write to"]
        raise UsageError(what, details=details, hint="remove it, or make it yours: chown, chmod o-w")


def _is_right(key: str, value: Any) -> bool:
    if key in _TABLES:
        return isinstance(value, dict)
    if key in _PATHS and isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    return isinstance(value, str)


def _paths(value: str | list[str], file: Path) -> tuple[Path, ...]:
    return tuple(file.parent / name for name in ([value] if isinstance(value, str) else value))


def _expected() -> dict[str, str]:
    """Return the forms of the allowed entries, by key."""
    texts = dict.fromkeys(_PATHS, '{0} = ["..", ".."]') | dict.fromkeys(_TABLES, "[{0}]")
    names = [field.name for field in fields(Configuration) if field.name != "file"]
    return {name: texts.get(name, '{0} = ".."').format(name) for name in names}
