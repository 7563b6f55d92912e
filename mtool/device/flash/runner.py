"""The interface of a flash runner: one tool that writes a firmware into a board, behind one small class."""

import re
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from mtool.base import proc
from mtool.base.errors import BoardError, FlashError, UsageError
from mtool.base.proc import Completed
from mtool.boards import Board
from mtool.device.flash.failures import Cause, no_device_hint

Version = tuple[int, ...]

NEWEST: Version = (9999,)
_VERSION_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Job:
    """What to flash, and where to.

    Attributes:
        folder: the project's.
        firmware: the ELF file that the build made, or will make.
        board: the board.
        framework_board: the framework's own name of it (a Zephyr board, an Arduino FQBN).
        settings: the runner's, from the board's entry.
        probe: the USB serial number of the probe; "": the only one.
        port: the serial port, or "host:port" of an emulator's gdb stub; "": none is known.
        made: suffixes of the files that the build makes beside the ELF (".hex").
    """

    folder: Path
    firmware: Path
    board: Board
    framework_board: str = ""
    settings: Mapping[str, str | int] = field(default_factory=dict)
    probe: str = ""
    port: str = ""
    made: frozenset[str] = frozenset()

    def setting(self, name: str, default: str | int | None = None) -> str:
        """Return one of the runner's settings as text.

        Raises:
            UsageError: the board's entry lacks it, and there is no default.
        """
        value = self.settings.get(name, default)
        if value is None:
            raise UsageError(
                f"the flash runner of {self.board.name} needs the setting {name!r}",
                details=[f"it has: {', '.join(self.settings) or 'none'}"],
                hint="add it to the board's entry in boards.yaml, below flash",
            )
        return f"0x{value:08x}" if isinstance(value, int) and name in ("address", "offset") else str(value)

    def code_address(self) -> str:
        """Return where the image starts: the setting `address`, else the base of the memory that holds code."""
        memory = self.board.memory_for("code")
        return self.setting("address", None if memory is None else memory.base)


@dataclass(frozen=True, slots=True)
class Command:
    """One program to run, and how long to let the board settle after it."""

    argv: tuple[str, ...]
    settle_s: float = 0.0


class Runner(ABC):
    """One flash tool. A file of this package has one runner, and says which settings it takes.

    Attributes:
        name: what boards.yaml and --runner call it.
        programs: its program; the first of these that is on PATH.
        install: the command that installs it, or the place it comes from.
        takes: what it writes: a file of that suffix, or "project" for a framework's own build folder.
        selects: what tells it which board: a "probe" (USB serial number), a "port", or nothing.
        verifies: it reads the flash back.
        least_version: older ones lack what the argv uses.
        version_argv: arguments that make it print its version.
        timeout_s: how long the tool may take.
        causes: what its output says when it fails.
    """

    name: ClassVar[str]
    programs: ClassVar[tuple[str, ...]]
    install: ClassVar[str]
    takes: ClassVar[Literal[".elf", ".hex", ".bin", ".uf2", "project"]]
    selects: ClassVar[Literal["probe", "port", ""]]
    verifies: ClassVar[bool]
    least_version: ClassVar[Version] = ()
    version_argv: ClassVar[tuple[str, ...]] = ("--version",)
    timeout_s: ClassVar[float] = 120.0
    causes: ClassVar[Sequence[Cause]]

    @abstractmethod
    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """Return the tool's arguments, its program first.

        Args:
            job: what to flash.
            version: the tool's, as some options changed their names.
        """

    def commands(self, job: Job, version: Version = NEWEST) -> list[Command]:
        """Return all that is run, in order: a conversion if the tool takes no ELF file, then the tool."""
        return [*self._conversion(job), Command(tuple(self.argv(job, version)))]

    def files(self, job: Job) -> Mapping[Path, bytes]:
        """Return files that the commands read and that no build makes."""
        return {}

    def succeeded(self, done: Completed) -> bool:
        """Say whether the tool did it; some end with exit code 0 whatever happens."""
        return done.returncode == 0

    def reads_back(self, job: Job) -> bool:
        """Say whether the flash is compared with the firmware afterwards."""
        return self.verifies

    def unlock(self, job: Job) -> str:
        """Return the command that removes a lock from the flash, or "" if there is none to offer."""
        return ""

    @classmethod
    def program(cls) -> str:
        """Return the program: the first on PATH, the first beside this Python's interpreter, or else the first.

        It is "" where the runner has none of its own.
        """
        beside = Path(sys.executable).parent
        found = [name for name in cls.programs if shutil.which(name)]
        found += [str(beside / name) for name in cls.programs if shutil.which(name, path=str(beside))]
        return (*found, *cls.programs, "")[0]

    def probe_version(self) -> Version:
        """Return the version of the tool that is installed; () if it does not tell.

        Raises:
            FlashError: it is not installed, or too old.
        """
        program = self.program()
        if shutil.which(program) is None:
            raise FlashError(f"{program} is not installed", details=["it was looked for on PATH"], hint=self.install)
        if not self.version_argv:
            return ()
        argv = [program, *self.version_argv]
        done = proc.run(argv, what=f"{program}'s version", timeout_s=_VERSION_TIMEOUT_S, error=FlashError, check=False)
        found = re.search(r"\d+(?:\.\d+)+", done.output)
        version = tuple(map(int, found[0].split("."))) if found else ()
        if version and version < self.least_version:
            raise FlashError(
                f"{program} is too old",
                details=[
                    f"expected  {'.'.join(map(str, self.least_version))} or newer",
                    f"found     {found and found[0]}",
                ],
                hint=self.install,
            )
        return version

    def image(self, job: Job) -> Path:
        """Return the file that the tool is given."""
        return job.firmware if self.takes in (".elf", "project") else job.firmware.with_suffix(self.takes)

    def port(self, job: Job) -> str:
        """Return the serial port, which the tool can't do without.

        Raises:
            BoardError: none is known.
        """
        if not job.port:
            raise BoardError(
                f"no serial port of {job.board.name} was found",
                details=[f"{self.program()} needs one"],
                hint=no_device_hint(),
            )
        return job.port

    def _conversion(self, job: Job) -> list[Command]:
        command = self._converted(job, self.takes)
        return [command] if command else []

    def _converted(self, job: Job, suffix: str) -> Command | None:
        """Return what makes the file of that suffix; None, if the build does, or if it is none that is converted."""
        formats = {".hex": "ihex", ".bin": "binary"}
        if suffix not in formats or suffix in job.made:
            return None
        objcopy = job.board.toolchain.removesuffix("gcc").removesuffix("cc") + "objcopy"
        return Command((objcopy, "-O", formats[suffix], str(job.firmware), str(job.firmware.with_suffix(suffix))))
