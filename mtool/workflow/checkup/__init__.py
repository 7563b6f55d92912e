"""What a board needs here and whether it is there: programs, a Zephyr tree, the cable, permissions."""

from collections.abc import Sequence
from dataclasses import replace

from mtool import flash, project
from mtool.boards import Board
from mtool.build import toolchains
from mtool.build.build import BUILDERS
from mtool.workflow.checkup import connection, of_zephyr, programs
from mtool.workflow.checkup.item import Item

__all__ = ["Item", "missing", "of_board", "overview", "programs_of"]

_HOST = "cc"  # the compiler of the board that is always there


def of_board(board: Board) -> list[Item]:
    """Return all that a board needs with its first template: to build for it, to reach it, to compare its outputs."""
    template = next(iter(board.templates), "")
    items: list[Item] = []
    if template:
        chosen = project.load(template)
        if chosen.builder == "west":
            items += of_zephyr.items(board)
        elif chosen.builder == "arduino":
            items += programs.sketch(board)
        else:
            items += programs_of(board)
    emulated = board.emulator is not None
    if board.emulator is not None:
        items.append(programs.toolchain(board.emulator.program, required=True))
    if board.usb is not None or board.flash:
        tools = programs.flash_tools(board, template)
        used = [name for name in flash.runners_of(board, template) if any(name in one.needed for one in tools)]
        cabled = [*tools, *connection.items(board, used[:1])]
        items += [replace(item, required=False) for item in cabled] if emulated else cabled
    return [*dict.fromkeys(items), *programs.references()]


def programs_of(board: Board) -> list[Item]:
    """Return the programs that build for a board and emulate it, of one whose builder is no framework's."""
    chosen = project.load(next(iter(board.templates)))
    emulator = [board.emulator.program] if board.emulator else []
    names = [*BUILDERS[chosen.builder].needs, board.toolchain, *emulator]
    return [programs.toolchain(name, required=True) for name in names if name]


def overview() -> list[Item]:
    """Return every program that mtool knows; none but this computer's compiler is required."""
    found = [programs.toolchain(name, required=name == _HOST) for name in toolchains.ALL]
    tools = [item for name in flash.RUNNERS if (item := programs.runner(name)) is not None]
    return [*found, *programs.references(), *tools]


def missing(items: Sequence[Item]) -> list[Item]:
    """Return what is required and not there."""
    return [item for item in items if item.state == "missing"]
