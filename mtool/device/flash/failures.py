"""Why a flash tool failed, told in the same words whatever the tool."""

import getpass
import platform
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from mtool.base.errors import BoardError, FlashError
from mtool.base.proc import Completed
from mtool.boards import Board

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
