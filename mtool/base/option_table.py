"""The options and arguments of commands: the tables of option_table.toml.

The command line's parameters, the fields of `mtool.Options`, the table [options] in mtool.toml, the names in error
messages and the site's page of the commands are made from it.
"""

import tomllib
from pathlib import Path
from typing import Any

from mtool.base import option_values
from mtool.base.frozen import frozen

_KINDS = {"text": str, "texts": list[str], "flag": bool, "choice": bool, "path": Path, "int": int, "float": float}
_EMPTY = {"text": "", "flag": False}  # defaults of types where the table has none; else None


@frozen
class Option:
    """One option or argument; option_table.toml explains its fields."""

    name: str
    of: list[str]
    help: str
    usage: str = ""
    argument: str = ""
    section: str = ""
    type: str = ""
    default: Any = None
    field: str = ""
    least: float | None = None
    most: float | None = None
    reads: str = ""
    completes: str = ""
    rare: bool | list[str] = False

    def is_rare_in(self, place: str) -> bool:
        """Return whether a command or group of options has it in --help-all only."""
        return self.rare if isinstance(self.rare, bool) else place in self.rare

    @property
    def flags(self) -> list[str]:
        """Its flags on the command line, the long one first."""
        return [word for word in self.usage.split() if word.startswith("-")]

    @property
    def metavar(self) -> str:
        """The placeholder of its value in --help; empty: the possible values are listed."""
        return self.argument or " ".join(word for word in self.usage.split() if not word.startswith("-"))

    @property
    def kind(self) -> Any:
        """The type of its value, as the command line reads it."""
        kind: Any = _KINDS.get(self.type) or getattr(option_values, self.type)
        return kind | None if self.default is None else kind

    @property
    def python_name(self) -> str:
        """Its name in Python."""
        return self.field or self.name


_FILE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
TABLE = tuple(Option(**{"default": _EMPTY.get(row.get("type", "")), **row}) for row in _FILE["option"])

COMMANDS: dict[str, str] = _FILE["commands"]
"""Each command with a summary of what it does."""

OPTIONS = {option.name: option for option in reversed(TABLE) if option.type}
"""The options that Python and mtool.toml also have, by name."""

DEFAULTS: dict[str, Any] = {name: option.default for name, option in OPTIONS.items()}
"""The default of each of them."""

OF_DEPLOYMENT = ("output_dir", "port", "probe", "timeout", "flash_command", "power")
"""The options for a project's folder and its device; all others determine how it is compiled and built."""

LEAST_TIMEOUT_S = OPTIONS["timeout"].least or 0.0
"""The shortest time limit of an inference: the device's watchdog counts milliseconds."""


def of_group(group: str) -> tuple[Option, ...]:
    """Return the options that a group has, in the order of --help."""
    return tuple(option for option in TABLE if group in option.of and option.type)


def of_command(command: str, name: str) -> Option:
    """Return the option or argument of a command by the name of its parameter."""
    return next(option for option in TABLE if option.name == name and command in option.of)
