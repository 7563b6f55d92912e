"""A command line of a board's entry, mtool.toml or an option, which flashes a board or cycles its power.

Its words (mtool.base.command_line) may hold `{port}`, `{probe}` and the like. A program that is named with a relative
path is looked for from the working folder on.
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
"""The names that may stand in braces in a flash command and in a power command."""

_PLACE = re.compile(r"\{([a-z]+)\}")


def argv(text: str, values: Mapping[str, str], *, what: str) -> list[str]:
    """Return the words of a command line, with its places filled.

    Args:
        text: the command line.
        values: of the places, by their names; an empty one is not known.
        what: what it is ("the power command"), for messages.

    Raises:
        UsageError: it has no words, a quote that is not closed, or a place that there is not.
        BoardError: it needs a value that is not known.
    """

    def filled(match: re.Match[str]) -> str:
        name = match[1]
        if name not in values:
            return match[0]
        if not values[name]:
            hint = f"give it: --{name}" if name in ("port", "probe") else ""
            raise BoardError(f"{what} needs the board's {name}, which is not known", details=[text], hint=hint)
        return values[name]

    program, *rest = (_PLACE.sub(filled, word) for word in words_of(text, tuple(values), what=what))
    if "/" in program:
        program = str(Path.cwd() / program)
    return [program, *rest]


@dataclass(frozen=True, kw_only=True)
class ByCommand(Runner):
    """Run a command line; exit code 0 says that the firmware is on the board and runs.

    Attributes:
        text: the command line; empty: the setting `run`.
    """

    text: str = ""

    def probe_version(self) -> Version:
        """Return (): what the program is, its command line alone knows."""
        return ()

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """Put the firmware and the device into the command line."""
        files = {suffix: str(job.firmware.with_suffix(f".{suffix}")) for suffix in ("hex", "bin")}
        values = {"elf": str(job.firmware), **files, "folder": str(job.folder), "port": job.port, "probe": job.probe}
        return argv(self._of(job), values, what="the flash command")

    def commands(self, job: Job, version: Version = NEWEST) -> list[Command]:
        """Convert the firmware first, where the command line asks for another format that no build makes."""
        named = _PLACE.findall(self._of(job))
        made = self.conversions(job, *(f".{kind}" for kind in ("hex", "bin") if kind in named))
        return [*made, Command(tuple(self.argv(job, version)))]

    def _of(self, job: Job) -> str:
        return self.text or job.setting("run")


def by_command(text: str = "") -> ByCommand:
    """Return the runner of a command line; empty: of the setting `run`."""
    return ByCommand(name="command", **records()["command"], text=text)
