"""The drivers of crt/ports that a board's firmware needs: their files, and the macros that configure them."""

from dataclasses import field
from typing import Any

from mtool.base import resources
from mtool.base.errors import UsageError
from mtool.base.filetree import FileTree
from mtool.base.frozen import frozen
from mtool.boards import Board, Usb, drivers


@frozen
class ChipDrivers:
    """The drivers of a firmware.

    Attributes:
        files: their sources, and their header.
        macros: the macros of mt_board.h, by name.
    """

    files: FileTree = field(default_factory=FileTree)
    macros: dict[str, str] = field(default_factory=dict)

    def for_templates(self) -> dict[str, Any]:
        """Return the template's variables."""
        return {"sources": [path for path in self.files if path.endswith(".c")], "macros": self.macros}


def of_board(board: Board, folder: str) -> ChipDrivers:
    """Return the drivers of a board.

    Args:
        board: the board.
        folder: the project's folder for them; empty: the template has its own.

    Raises:
        UsageError: there is no driver for the board's timer.
    """
    if not folder:
        return ChipDrivers()
    settings = {role: {**ports} for role, ports in board.ports.items()}
    macros = {"MT_CORE_HZ": f"{board.clock_hz}u"} if board.clock_hz else {}
    if board.timer is not None:
        settings["timer"] = {"driver": board.timer.kind, **board.timer_settings()}
        macros["MT_TIMER_HZ"] = f"{board.timer.hz}u"
    if "uart" in settings:
        macros["MT_UART_BAUD"] = f"{(board.usb or Usb()).uart}u"
    header = resources.path("crt") / drivers.FOLDER / "mt_ports.h"
    files = {f"{folder}/{header.name}": header.read_bytes()}
    for role, values in settings.items():
        name = f"mt_{values.pop('driver')}.c"
        path = resources.path("crt") / drivers.FOLDER / name
        if not path.is_file():
            names = [driver_name for driver_name, driver in drivers.load_all().items() if driver.role == role]
            what = f"the {role} of {board.name} has no driver"
            raise UsageError(what, details=[f"crt/ports/{name} does not exist", f"available: {', '.join(names)}"])
        files[f"{folder}/{name}"] = path.read_bytes()
        macros |= drivers.macros(role, values)
    return ChipDrivers(FileTree(files), macros)
