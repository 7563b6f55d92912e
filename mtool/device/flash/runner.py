"""The flash runners: each one a tool that writes firmware to a board, described by its record in flash_runners.yaml."""

import getpass
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mtool.base import proc
from mtool.base.errors import BoardError, FlashError, UsageError
from mtool.base.proc import Completed
from mtool.boards import Board
from mtool.device.flash import uf2

_LAST_LINES = 8
_NO_DEVICE = "connect the board with a USB data cable, then check with: mtool boards --attached"
_WSL = (
    "in a Windows terminal: usbipd list, usbipd bind --busid BUSID, usbipd attach --wsl --busid BUSID; "
    "Windows keeps USB devices from WSL until then"
)
_VERSION_TIMEOUT_S = 20.0
_BOOTLOADER_S = 2.5  # from a touch at 1200 baud until the bootloader answers
_FORMATS = {".hex": "ihex", ".bin": "binary"}
_PLACE = re.compile(r"\{\w+\}|<[\w|*]+>")

Version = tuple[int, ...]
NEWEST: Version = (9999,)


def is_wsl() -> bool:
    """Return whether this is Linux in the Windows Subsystem for Linux."""
    return "microsoft" in platform.release().lower()


def no_device_hint() -> str:
    """Return a hint for the case that no device is attached."""
    return _WSL if is_wsl() else _NO_DEVICE


def permission_hint(board: Board, port: str) -> str:
    """Return the command that gives this user access to the serial port, or to the USB device of the board's probe."""
    if port:
        return f"sudo usermod -aG dialout {getpass.getuser()}, then log out and in again"
    vendors = sorted({usb_id.split(":")[0] for usb_id in board.usb.ids}) if board.usb else []
    match = f'ATTRS{{idVendor}}=="{vendors[0]}", ' if vendors else ""
    rule = f'SUBSYSTEM=="usb", {match}MODE="0660", TAG+="uaccess"'
    return (
        f"echo '{rule}' | sudo tee /etc/udev/rules.d/60-mtool.rules; sudo udevadm control --reload; "
        "then connect the board again"
    )


@dataclass(frozen=True, slots=True)
class Job:
    """What to flash, and where to.

    Attributes:
        folder: the project's.
        firmware: the ELF file that the build made, or will make.
        board: the board.
        framework_board: the framework's name for the board (a Zephyr board, an Arduino FQBN).
        settings: the runner's, from the board's entry.
        probe: the USB serial number of the probe; "": the only one.
        port: the serial port, or "host:port" of an emulator's gdb stub; "": unknown.
        built_formats: suffixes of the files that the build writes beside the ELF (".hex").
    """

    folder: Path
    firmware: Path
    board: Board
    framework_board: str = ""
    settings: Mapping[str, str | int] = field(default_factory=dict)
    probe: str = ""
    port: str = ""
    built_formats: frozenset[str] = frozenset()

    def setting(self, name: str, default: str | int | None = None) -> str:
        """Return one of the runner's settings as text.

        Raises:
            UsageError: the board's entry does not have it, and there is no default.
        """
        value = self.settings.get(name, default)
        if value is None:
            what = f"the flash runner of {self.board.name} needs the setting {name!r}"
            details = [f"it has: {', '.join(self.settings) or 'none'}"]
            raise UsageError(what, details=details, hint="add it to the board's entry in boards.yaml, below flash")
        return f"0x{value:08x}" if isinstance(value, int) and name in ("address", "offset") else str(value)

    def code_address(self) -> str:
        """Return the image's start address: the setting `address`, else the base of the memory that holds code."""
        memory = self.board.memory_for("code")
        return self.setting("address", None if memory is None else memory.base)


@dataclass(frozen=True, slots=True)
class Command:
    """One program to run, and the time to let the board settle after it."""

    argv: tuple[str, ...]
    settle_s: float = 0.0


Words = Sequence[str | Sequence[str]]
"""A record's arguments: words with placeholders, and lists of optional words."""


@dataclass(frozen=True, kw_only=True)
class Runner:
    """One flash tool; mtool/base/flash_runners.yaml explains the fields and has a record for each tool.

    Attributes:
        name: its name in boards.yaml and for --runner.
    """

    name: str
    install: str
    takes: Literal[".elf", ".hex", ".bin", ".uf2", "project"]
    selects: Literal["probe", "port", ""]
    programs: Sequence[str] = ()
    arguments: Words = ()
    causes: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    verifies: bool = False
    template: str = ""
    builds: bool = False
    least_version: Sequence[int] = ()
    version_argv: Sequence[str] = ("--version",)
    timeout_s: float = 120.0
    renamed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    proof: Sequence[str] = ()
    refuted_by: str = ""
    unlocks: tuple[Words, str] = ((), "")
    gdb_server: Words = ()

    def argv(self, job: Job, version: Version = NEWEST) -> list[str]:
        """Return the tool's arguments, its program first.

        Args:
            job: what to flash.
            version: the tool's, as some options were renamed.
        """
        changes = [
            change
            for first, names in self.renamed.items()
            if version and version < tuple(map(int, first.split(".")))
            for change in names.items()
        ]
        return [self.program(), *self.words(job, self.arguments, changes)]

    def words(self, job: Job, parts: Words, changes: Sequence[tuple[str, str]] = ()) -> list[str]:
        """Return the arguments for a record's list, with `changes` of words in that list.

        Raises:
            UsageError: the board's entry lacks a setting.
            BoardError: the serial port is unknown.
        """
        result: list[str] = []
        for part in parts:
            group = [part] if isinstance(part, str) else part
            values = {text: self._value(job, text) for word in group for text in _PLACE.findall(word)}
            if isinstance(part, str) or all(values.values()):
                several = next((text for text in values if text.endswith("*>")), "")
                for value in values[several].split() if several else [""]:
                    result += [_filled(word, {**values, several: value}, changes) for word in group]
        return result

    def _value(self, job: Job, text: str) -> str:
        """Return the value of a placeholder in a record; unknown ones are left as they are."""
        if text.startswith("<"):
            name, has_default, default = text.strip("<*>").partition("|")
            return job.setting(name, default if has_default else None)
        value = _VALUES.get(text.strip("{}"))
        return text if value is None else value(self, job)

    def commands(self, job: Job, version: Version = NEWEST) -> list[Command]:
        """Return all commands, in order: a conversion if the tool takes no ELF file, a touch, then the tool."""
        commands = self.conversions(job, self.takes)
        if "touch" in self.settings and job.setting("touch", 0) != "0":
            touch = ("stty", "-f" if sys.platform == "darwin" else "-F", self.port(job), "1200", "hupcl")
            commands.append(Command(touch, settle_s=_BOOTLOADER_S))
        return [*commands, Command(tuple(self.argv(job, version)))]

    def conversions(self, job: Job, *suffixes: str) -> list[Command]:
        """Return the commands that convert the firmware to files with these suffixes, unless the build makes them."""
        objcopy = job.board.toolchain.removesuffix("gcc").removesuffix("cc") + "objcopy"
        return [
            Command((objcopy, "-O", _FORMATS[suffix], str(job.firmware), str(job.firmware.with_suffix(suffix))))
            for suffix in suffixes
            if suffix in _FORMATS and suffix not in job.built_formats
        ]

    def files(self, job: Job) -> Mapping[Path, bytes]:
        """Return the files that the commands read and that no build makes."""
        if self.takes == ".uf2" and self.takes not in job.built_formats:
            return {self.image(job): uf2.convert(job.firmware, int(job.setting("family"), 0))}
        return {job.folder / path: "".join(self.words(job, [text])).encode() for path, text in self.scripts.items()}

    def succeeded(self, done: Completed) -> bool:
        """Return whether the tool succeeded; some always end with exit code 0."""
        if self.refuted_by and self.cause_of(done.output) == self.refuted_by:
            return False
        return all(text in done.output for text in self.proof) if self.proof else not done.returncode

    def cause_of(self, output: str) -> str:
        """Return the cause of a failure from a tool's output; "": unknown."""
        causes = (cause for cause, pattern in self.causes.items() if re.search(pattern, output, re.IGNORECASE))
        return next(causes, "")

    def reads_back(self, job: Job) -> bool:
        """Return whether the flash is compared with the firmware afterwards."""
        return self.verifies

    def unlock(self, job: Job) -> str:
        """Return the command that removes the flash's read-out protection, or ""."""
        words, further = self.unlocks
        return shlex.join(self.words(job, words)) + further

    def program(self) -> str:
        """Return the program: the first on PATH, the first beside this Python's interpreter, or else the first.

        It is "" if the runner has no program.
        """
        beside = Path(sys.executable).parent
        paths = [name for name in self.programs if shutil.which(name)]
        paths += [str(beside / name) for name in self.programs if shutil.which(name, path=str(beside))]
        return (*paths, *self.programs, "")[0]

    def probe_version(self) -> Version:
        """Return the version of the installed tool; () if it does not print one.

        Raises:
            FlashError: it is not installed, or too old.
        """
        program = self.program()
        if shutil.which(program) is None:
            raise FlashError(f"{program} is not installed", details=["it is not on PATH"], hint=self.install)
        if not self.version_argv:
            return ()
        argv = [program, *self.version_argv]
        done = proc.run(argv, what=f"{program}'s version", timeout_s=_VERSION_TIMEOUT_S, error=FlashError, check=False)
        match = re.search(r"\d+(?:\.\d+)+", done.output)
        version = tuple(map(int, match[0].split("."))) if match else ()
        if version and version < tuple(self.least_version):
            expected = f"expected  {'.'.join(map(str, self.least_version))} or newer"
            details = [expected, f"found     {match and match[0]}"]
            raise FlashError(f"{program} is too old", details=details, hint=self.install)
        return version

    def image(self, job: Job) -> Path:
        """Return the file that the tool flashes."""
        return job.firmware if self.takes in (".elf", "project") else job.firmware.with_suffix(self.takes)

    def port(self, job: Job) -> str:
        """Return the serial port for a tool that needs one.

        Raises:
            BoardError: it is unknown.
        """
        if not job.port:
            what = f"found no serial port for {job.board.name}"
            raise BoardError(what, details=[f"{self.program()} needs one"], hint=no_device_hint())
        return job.port

    def explain(self, done: Completed, job: Job) -> BoardError | FlashError:
        """Return the error for a failed command: a BoardError if the tool found no board."""
        tool, board, port = done.argv[0], job.board.name, job.port or "the probe"
        details = ["$ " + shlex.join(done.argv)]
        details += [line.strip() for line in done.output.splitlines() if line.strip()][-_LAST_LINES:]
        cause = self.cause_of(done.output) if tool == self.program() else ""
        match cause:
            case "no probe":
                what = f"{tool} found no {board}" + (f" with the probe {job.probe}" if job.probe else "")
                return BoardError(what, details=details, hint=no_device_hint())
            case "no boot loader":
                what = f"{tool} opened {job.port or 'the port'}, but {board}'s boot loader does not answer"
                hint = (
                    "check the port: mtool boards --attached. Close other programs that use it, disconnect "
                    "anything on pins 0 and 1, and press reset just before; a board with another boot loader has "
                    "another baud rate (57600 for a Nano's old one): set it under flash in your own board entry"
                )
            case "wrong chip":
                what = f"{tool} found a chip that is not {board}'s"
                hint = "check the attached boards: mtool boards --attached, and choose one with --probe"
            case "permission":
                what = f"{tool} has no permission to use {port}"
                hint = permission_hint(job.board, job.port)
            case "locked":
                unlock = self.unlock(job)
                what = f"the flash of {board} is locked"
                erases = f"this erases it and removes the lock: {unlock}"
                hint = erases if unlock else "remove the read-out protection first"
            case "busy":
                what = f"{port} is in use by another program"
                hint = "close the serial monitor, the debugger or the IDE that has it open"
            case "verify":
                what = f"the flash of {board} differs from what {tool} wrote"
                hint = "flash it again; if that fails too, try a slower probe; the flash may be worn or protected"
            case _:
                what, hint = f"{tool} failed with exit code {done.returncode}", ""
        return FlashError(what, details=details, hint=hint)


def _filled(word: str, values: Mapping[str, str], changes: Sequence[tuple[str, str]]) -> str:
    for newer, older in changes:
        word = word.replace(newer, older)
    return _PLACE.sub(lambda place: values[place[0]], word)


_VALUES: Mapping[str, Callable[[Runner, Job], str]] = {
    "program": lambda runner, job: runner.program(),
    "elf": lambda runner, job: str(job.firmware),
    "image": lambda runner, job: str(runner.image(job)),
    "folder": lambda runner, job: str(job.folder),
    "firmware_folder": lambda runner, job: str(job.firmware.parent),
    "build_folder": lambda runner, job: str(job.firmware.parents[1]),  # build/<kind>/zephyr/zephyr.elf
    "sketch": lambda runner, job: str(job.folder / job.firmware.parent.name),
    "framework_board": lambda runner, job: job.framework_board,
    "port": lambda runner, job: runner.port(job),
    "port_name": lambda runner, job: runner.port(job).removeprefix("/dev/"),
    "probe": lambda runner, job: job.probe,
    # The USB descriptor pads it with zeros, the tool does not.
    "probe_number": lambda runner, job: job.probe.lstrip("0"),
    "code_address": lambda runner, job: job.code_address(),
    "drive": lambda runner, job: str(uf2.drive(job.setting("volume"))),
}
