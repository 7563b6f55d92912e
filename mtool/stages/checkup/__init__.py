"""What a board needs here and whether it is there: programs, a Zephyr tree, the cable, permissions."""

from collections.abc import Sequence
from dataclasses import replace

from mtool import project
from mtool.boards import Board
from mtool.device import flash
from mtool.device.build import toolchains
from mtool.device.build.build import BUILDERS
from mtool.stages.checkup import connection, of_zephyr, programs
from mtool.stages.checkup.item import Item

__all__ = ["Item", "flash_tool", "missing", "of_board", "overview", "programs_of", "to_build"]

_HOST = "cc"  # the compiler of the board that is always there


def of_board(board: Board, template: str = "") -> list[Item]:
    """Return all that a board needs with a template (empty: its first): to build, to reach it, to compare its outputs.

    Raises:
        UsageError: the template is not one of the board's.
    """
    name = project.choose(board, template, {})[0].name if template or board.templates else ""
    items = to_build(name, board) if name else []
    emulated = board.emulator is not None
    if board.emulator is not None:
        items.append(programs.toolchain(board.emulator.program, required=True))
    if board.usb is not None or board.flash:
        tools = programs.flash_tools(board, name)
        used = [runner for runner in flash.runners_of(board, name) if any(runner in one.needed for one in tools)]
        cabled = [*tools, *connection.items(board, used[:1])]
        items += [replace(item, required=False) for item in cabled] if emulated else cabled
    return [*dict.fromkeys(items), *programs.references()]


def to_build(template: str, board: Board | None = None) -> list[Item]:
    """Return what builds a template's projects, for a board or for any.

    Raises:
        UsageError: there is no such template.
    """
    builder = project.load(template).builder
    if builder == "west":
        return of_zephyr.items(board)
    if builder == "arduino":
        return programs.sketch(board)
    names = [*BUILDERS[builder].needs, board.toolchain if board is not None else ""]
    return [programs.toolchain(name, required=True) for name in dict.fromkeys(names) if name]


def programs_of(board: Board) -> list[Item]:
    """Return the programs that build for a board with its first template, and emulate it."""
    emulator = [programs.toolchain(board.emulator.program, required=True)] if board.emulator else []
    return [*to_build(next(iter(board.templates)), board), *emulator]


def flash_tool(name: str, board: Board) -> list[Item]:
    """Return the program of a flash runner, and the one that this runs; none for a user's own command."""
    if name not in flash.RUNNERS:
        return []
    items = [programs.runner(name), programs.inner_runner(board, name)]
    return [replace(item, required=True) for item in items if item is not None]


def overview() -> list[Item]:
    """Return every program that mtool knows; none but this computer's compiler is required."""
    found = [programs.toolchain(name, required=name == _HOST) for name in toolchains.known()]
    tools = [item for name in flash.RUNNERS if (item := programs.runner(name)) is not None]
    return [*found, *programs.references(), *tools]


def missing(items: Sequence[Item]) -> list[Item]:
    """Return what is required and not there."""
    return [item for item in items if item.state == "missing"]
