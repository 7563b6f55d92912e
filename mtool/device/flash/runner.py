"""The interface of a flash runner: one tool that writes a firmware into a board, behind one small class."""

import getpass
import platform
import re
import shlex
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import ClassVar, Literal

from mtool.base import proc
from mtool.base.errors import BoardError, FlashError, UsageError
from mtool.base.proc import Completed
from mtool.boards import Board

# Why a flash tool failed, told in the same words whatever the tool.


_LAST_LINES = 8
_NO_DEVICE = "connect the board with a USB cable that carries data, then look for it: mtool boards --attached"
_WSL = (
    "in a Windows terminal: usbipd list, usbipd bind --busid BUSID, usbipd attach --wsl --busid BUSID; "
    "Windows keeps USB devices from WSL until then"
)


class Kind(Enum):
    """What can be wrong."""

    NO_PROBE = "no probe"
    NO_BOOT_LOADER = "no boot loader"
    WRONG_CHIP = "wrong chip"
    PERMISSION = "permission"
    LOCKED = "locked"
    BUSY = "busy"
    VERIFY = "verify"


@dataclass(frozen=True, slots=True)
class Cause:
    """A kind of failure, and the pattern in a tool's output that tells it."""

    kind: Kind
    pattern: str

    def matches(self, output: str) -> bool:
        """Say whether the output tells this cause."""
        return re.search(self.pattern, output, re.IGNORECASE) is not None


def is_wsl() -> bool:
    """Say whether this is Linux in the Windows Subsystem for Linux."""
    return "microsoft" in platform.release().lower()


def no_device_hint() -> str:
    """Return what to try where nothing is attached."""
    return _WSL if is_wsl() else _NO_DEVICE


def explain(
    done: Completed,
    causes: Sequence[Cause],
    board: Board,
    *,
    tool: str,
    port: str = "",
    probe: str = "",
    unlock: str = "",
) -> BoardError | FlashError:
    """Return the error that a tool's output stands for: a BoardError if it found no board.

    Args:
        done: the tool that failed.
        causes: what its output may say; the first that matches counts.
        board: the board that was to be flashed.
        tool: the tool's name.
        port: the serial port that it was given.
        probe: the probe's serial number that it was given.
        unlock: the command that removes a lock from the flash.
    """
    kind = next((cause.kind for cause in causes if cause.matches(done.output)), None)
    details = ["$ " + shlex.join(done.argv), *_last_lines(done.output)]
    match kind:
        case Kind.NO_PROBE:
            what = f"{tool} found no {board.name}" + (f" with the probe {probe}" if probe else "")
            hint = no_device_hint()
        case Kind.NO_BOOT_LOADER:
            what = f"{tool} opened {port or 'the port'}, and no boot loader of {board.name} answers there"
            hint = (
                f"is it the port of the {board.name}? mtool boards --attached. Close what else has the port open, take "
                "off what is wired to pins 0 and 1, press reset just before; a board with another boot loader has "
                "another baud rate (of a Nano's old one 57600): flash: in an entry of your own"
            )
        case Kind.WRONG_CHIP:
            what = f"{tool} found another chip than that of {board.name}"
            hint = "is it another board? see what is attached: mtool boards --attached, and choose with --probe"
        case Kind.PERMISSION:
            what = f"{tool} may not use {port or 'the probe'}"
            hint = permission_hint(board, port)
        case Kind.LOCKED:
            what = f"the flash of {board.name} is locked"
            hint = (
                f"this erases it and removes the lock: {unlock}" if unlock else "remove the read-out protection first"
            )
        case Kind.BUSY:
            what = f"{port or 'the probe'} is in use by another program"
            hint = "close the serial monitor, the debugger or the IDE that has it open"
        case Kind.VERIFY:
            what = f"what {tool} wrote to {board.name} reads back differently"
            hint = "flash it again; if it stays so, try a slower probe, or the flash is worn or protected"
        case None:
            what = f"{tool} failed with exit code {done.returncode}"
            hint = ""
    return (BoardError if kind is Kind.NO_PROBE else FlashError)(what, details=details, hint=hint)


def permission_hint(board: Board, port: str) -> str:
    """Return the command that gives this user the serial port, or the USB device of the board's probe."""
    if port:
        return f"sudo usermod -aG dialout {getpass.getuser()}, then log out and in again"
    vendors = sorted({usb_id.split(":")[0] for usb_id in board.usb.ids}) if board.usb else []
    match = f'ATTRS{{idVendor}}=="{vendors[0]}", ' if vendors else ""
    rule = f'SUBSYSTEM=="usb", {match}MODE="0660", TAG+="uaccess"'
    return (
        f"echo '{rule}' | sudo tee /etc/udev/rules.d/60-mtool.rules; sudo udevadm control --reload; "
        "then connect the board again"
    )


def _last_lines(output: str) -> list[str]:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-_LAST_LINES:]


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
