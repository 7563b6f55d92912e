"""Boards are data: `boards.yaml`, a user's own files, and any board of a Zephyr tree."""

import re
from pathlib import Path

from mtool.base import escaping, resources, spelling
from mtool.base.errors import BoardError
from mtool.boards import zephyr
from mtool.boards.reading import FOLDER, VARIABLE, Broken, board_of, file_of, files_of, read, read_files
from mtool.boards.schema import ROLES, Board, Cache, Draw, Emulator, FrameworkMemory, Memory, Reads, Role, Timer, Usb

__all__ = [
    "FOLDER",
    "ROLES",
    "VARIABLE",
    "Board",
    "Broken",
    "Cache",
    "Draw",
    "Emulator",
    "FrameworkMemory",
    "Memory",
    "Reads",
    "Role",
    "Timer",
    "Usb",
    "board_of",
    "broken",
    "file_of",
    "files_of",
    "get",
    "load_all",
    "of_zephyr",
    "read_files",
    "shipped",
]


def load_all() -> dict[str, Board]:
    """Return the boards of boards.yaml and of the user's files (mtool.toml, boards/, MTOOL_BOARDS) by name.

    An entry of a user's takes the place of one of the same name. His entries that are wrong are not among them:
    `broken` has those.

    Raises:
        UsageError: a file can't be read or is not YAML.
    """
    return dict(read().boards)


def shipped() -> frozenset[str]:
    """Return the names of mtool's own boards."""
    return frozenset(read_files((resources.path("boards.yaml"),)).boards)


def broken() -> list[Broken]:
    """Return the entries of the user's files that break the schema.

    Raises:
        UsageError: as `load_all`.
    """
    return list(read().broken.values())


def get(name: str) -> Board:
    """Return a board by its name, or by Zephyr's: "zephyr:NAME", or NAME alone where a Zephyr tree has it.

    Raises:
        BoardError: there is none of that name; the message has the names that come near.
        UsageError: the entry of that name breaks the schema, or a file of boards can't be read.
        BuildError: the board is Zephyr's, and the tree, a module of a vendor or a tool is missing.
    """
    found = read()
    if name in found.boards:
        return found.boards[name]
    if name in found.broken:
        raise found.broken[name].error
    if name.startswith(zephyr.PREFIX):
        return of_zephyr(name.removeprefix(zephyr.PREFIX))
    tree = zephyr.find()
    if tree is not None and zephyr.knows(tree, name, zephyr.roots().get("BOARD_ROOT", ())):
        return of_zephyr(name)
    near = spelling.near(name, [*found.boards, *found.broken])
    unread = Path(FOLDER) / f"{name}.yaml"
    is_there = re.fullmatch(r"[\w.-]+", name) is not None and unread.is_file()
    if is_there and unread.resolve() not in [file.resolve() for file in files_of()]:
        raise BoardError(
            f"there is no board named {name!r}",
            details=[f"{unread} is not read: there is no mtool.toml beside {FOLDER}/, and nothing else names the file"],
            hint=f'name it: --boards {escaping.argument(str(unread))}, or say in mtool.toml: boards = "{unread}"',
        )
    raise BoardError(
        f"there is no board named {name!r}",
        details=[f"near: {', '.join(near)}"] if near else [],
        hint=f"see the list: mtool boards; add one: mtool boards --new {name if name.isidentifier() else 'NAME'}; "
        "any of Zephyr's: --board zephyr:NAME",
    )


def of_zephyr(name: str) -> Board:
    """Return a board as a Zephyr tree describes it.

    Raises:
        MtoolError: as `mtool.boards.zephyr.describe`.
    """
    entry = zephyr.describe(name)
    return board_of(Path(f"Zephyr's {name}"), f"{zephyr.PREFIX}{name}", entry)
