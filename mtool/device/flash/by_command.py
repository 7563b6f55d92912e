"""A command line from a board's entry, mtool.toml or an option, which flashes a board or cycles its power.

Its words (mtool.base.command_line) may contain `{port}`, `{probe}` and other placeholders. A program with a relative
path is looked up in the working folder.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from mtool.base.command_line import words_of
from mtool.base.errors import BoardError
from mtool.base.flash_runners import records
from mtool.device.flash.runner import NEWEST, Command, Job, Runner, Version

FLASH: Final = ("elf", "hex", "bin", "folder", "port", "probe")
POWER: Final = ("port", "probe")
"""The placeholders of a flash command and a power command."""

_PLACE = re.compile(r"\{([a-z]+)\}")


def argv(text: str, values: Mapping[str, str], *, what: str) -> list[str]:
    """Return the words of a command line, with its placeholders replaced.

    Args:
        text: the command line.
        values: of the placeholders, by their names; empty: unknown.
        what: the command's name in messages ("the power command").

    Raises:
        UsageError: it is empty, has an unclosed quote, or an unknown placeholder.
        BoardError: it needs an unknown value.
    """

    def filled(match: re.Match[str]) -> str:
        name = match[1]
        if name not in values:
            return match[0]
        if not values[name]:
            hint = f"set it with --{name}" if name in ("port", "probe") else ""
            raise BoardError(f"{what} needs the board's {name}, which is unknown", details=[text], hint=hint)
        return values[name]

    program, *rest = (_PLACE.sub(filled, word) for word in words_of(text, tuple(values), what=what))
    if "/" in program:
        program = str(Path.cwd() / program)
    return [program, *rest]


@dataclass(frozen=True, kw_only=True)
class ByCommand(Runner):
    """Run a command line; exit code 0 means that the firmware is on the board and runs.

    Attributes:
        text: the command line; empty: the setting `run`.
    """

    text: str = ""

    def probe_version(self) -> Version:
        """Return (): only the command line knows the program."""
        return ()

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """Replace the placeholders for the firmware and the device."""
        files = {suffix: str(job.firmware.with_suffix(f".{suffix}")) for suffix in ("hex", "bin")}
        values = {"elf": str(job.firmware), **files, "folder": str(job.folder), "port": job.port, "probe": job.probe}
        return argv(self._of(job), values, what="the flash command")

    def commands(self, job: Job, version: Version = NEWEST) -> list[Command]:
        """Convert the firmware first if the command line needs another format that no build makes."""
        named = _PLACE.findall(self._of(job))
        conversions = self.conversions(job, *(f".{kind}" for kind in ("hex", "bin") if kind in named))
        return [*conversions, Command(tuple(self.argv(job, version)))]

    def _of(self, job: Job) -> str:
        return self.text or job.setting("run")


def by_command(text: str = "") -> ByCommand:
    """Return the runner for a command line; empty: for the setting `run`."""
    return ByCommand(name="command", **records()["command"], text=text)
