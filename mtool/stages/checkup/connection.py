"""What a board on a cable needs: that it is seen, that this user may use its port and its probe, and WSL's help."""

import getpass
import os
import platform
import sys
from pathlib import Path

from mtool.base import system
from mtool.boards import Board
from mtool.device.flash import RUNNERS, ports
from mtool.device.flash.runner import is_wsl, no_device_hint, permission_hint
from mtool.stages.checkup.item import Item, required

_GROUPS = ("dialout", "uucp")  # of serial ports: Debian and Fedora, Arch
RULES = ("/etc/udev/rules.d", "/run/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d")
_MOST_BYTES = 1 << 20  # of a file of rules


def items(board: Board, runners: list[str]) -> list[Item]:
    """Return what the connection of a board needs; `runners` are the flash tools that are used for it."""
    rows = []
    found = ports.matching(board, ports.attached())
    ids = ", ".join(board.usb.ids) if board.usb else ""
    if is_wsl():
        rows.append(Item("WSL", platform.release(), "USB devices of Windows", "" if found else no_device_hint()))
    there = "; ".join(map(str, found))
    rows.append(Item("the board", there, f"USB {ids}" if ids else "a serial port", "" if there else no_device_hint()))
    if sys.platform != "linux":
        return rows
    rows.append(_serial(found[0].port if found else ""))
    if any(RUNNERS[name].selects == "probe" or name == "west" for name in runners) and ids:
        rows.append(_probe(board))
    return rows


def _serial(port: str) -> Item:
    needed = f"{port or 'serial ports'}: to be read and written by you"
    if system.user() == 0:
        return required("serial port", "you are root", needed)
    if port and os.access(port, os.R_OK | os.W_OK):
        return required("serial port", f"{port} may be used", needed)
    mine, known = groups()
    member = next((group for group in _GROUPS if group in mine), "")
    group = next((group for group in _GROUPS if group in known), _GROUPS[0])
    if member and not port:
        return required("serial port", f"you are in the group {member}", needed)
    install = f"sudo usermod -aG {group} {getpass.getuser()}, then log out and in again"
    return required("serial port", f"you are not in the group {group}", needed, install)


def groups() -> tuple[set[str], set[str]]:
    """Return the names of this user's groups, and of all."""
    import grp

    every = {one.gr_gid: one.gr_name for one in grp.getgrall()}
    return {every[number] for number in {*os.getgroups(), os.getegid()} if number in every}, {*every.values()}


def _probe(board: Board) -> Item:
    """Return whether rules of udev give the probe's USB device to users."""
    assert board.usb is not None
    vendors = {usb_id.partition(":")[0] for usb_id in board.usb.ids}
    needed = f"a rule for USB vendor {' or '.join(sorted(vendors))}"
    if system.user() == 0:
        return required("udev", "you are root", needed)
    for folder in map(Path, RULES):
        for file in sorted(folder.glob("*.rules")):
            text = _text(file)
            if any(f'"{vendor}"' in text and "idvendor" in text for vendor in vendors):
                return required("udev", str(file), needed)
    return required("udev", "", needed, permission_hint(board, ""))


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(_MOST_BYTES).decode(errors="replace").lower()
    except OSError:
        return ""
