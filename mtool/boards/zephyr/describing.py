"""A board's entry, as boards.yaml would have it, from what a Zephyr tree says of it; remembered while that stays."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mtool.base import files, resources
from mtool.base.errors import BuildError, UsageError
from mtool.boards import zephyr
from mtool.boards.zephyr import facts
from mtool.boards.zephyr.configuring import configure
from mtool.boards.zephyr.failures import unknown_board
from mtool.version import __version__

PREFIX = "zephyr:"
_FORMAT = 2  # of what is remembered
_COMPILERS = {"arm": "arm-none-eabi-gcc", "riscv": "riscv64-unknown-elf-gcc", "posix": "cc"}
_VARIABLES = ("ZEPHYR_TOOLCHAIN_VARIANT", "ZEPHYR_EXTRA_MODULES", "EXTRA_ZEPHYR_MODULES", "ZEPHYR_MODULES")
_NAME = re.compile(r"\w[\w.+@/-]*")


def describe(name: str, folder: Path | None = None) -> dict[str, Any]:
    """Return the entry of a board by Zephyr's name of it, with its qualifiers ("nrf5340dk/nrf5340/cpuapp").

    The first time, Zephyr is configured for it, which takes some ten seconds.

    Args:
        name: Zephyr's name, without the prefix "zephyr:".
        folder: where a west workspace is looked for, if ZEPHYR_BASE is not set; default: the working folder.

    Raises:
        UsageError: that is no name.
        BoardError: the tree has no such board, or it needs a qualifier.
        BuildError: there is no Zephyr tree, a vendor's module is missing, or a compiler, CMake or Ninja.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is no name of a Zephyr board", hint="an example: zephyr:nrf5340dk/nrf5340/cpuapp")
    tree = zephyr.base(folder).resolve()
    roots = zephyr.roots()
    board_roots = roots.get("BOARD_ROOT", ())
    of_board = zephyr.board_folder(tree, name, board_roots)
    if of_board is None:
        raise unknown_board(name, tree, board_roots)
    architecture = zephyr.architecture(of_board, name)
    compiler = _COMPILERS.get(architecture, "")
    chosen = zephyr.variant_of(compiler)
    if not chosen and not compiler and "ZEPHYR_TOOLCHAIN_VARIANT" not in os.environ and not zephyr.has_sdk():
        what = f"there is no compiler for {name}"
        details = [f"it is of the architecture {architecture or 'that its files do not tell'}"]
        raise BuildError(what, details=details, hint="take Zephyr's SDK: west sdk install")
    env = {**os.environ, "ZEPHYR_BASE": str(tree), **chosen}
    variables = [f"{key}={env.get(key, '')}" for key in _VARIABLES]
    key = [__version__, str(_FORMAT), str(tree), zephyr.version(tree), name, *variables, str(sorted(roots.items()))]
    place = _place(key)
    known = _remembered(place)
    if known is not None:
        return known
    found = configure(tree, name, env=env, roots=roots, compiler=compiler)
    description = zephyr.full_name(tree, name, board_roots)
    source = f"Zephyr {zephyr.version(tree)}, a configure run for {name}"
    entry = facts.entry_of(found, name, description=description, source=source, compiler=compiler)
    of_boards = [*of_board.glob("*")]
    _remember(place, entry, sorted({*found.files, *(file for file in of_boards if file.is_file())}))
    return entry


def _place(key: Iterable[str]) -> Path | None:
    state = resources.state_folder()
    digest = hashlib.sha256("\n".join(key).encode()).hexdigest()
    return None if state is None else state / "zephyr" / f"{digest[:32]}.json"


def _remembered(place: Path | None) -> dict[str, Any] | None:
    """Return the entry that was found before, if all the files that it was made of are as they were."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        stored = json.loads(place.read_bytes()) if place is not None else {}
        if stored and stored["state"] == _state_of(map(Path, stored["files"])):
            entry: dict[str, Any] = stored["entry"]
            return entry
    return None


def _remember(place: Path | None, entry: dict[str, Any], of: list[Path]) -> None:
    if place is None:
        return
    stored = {"entry": entry, "files": [str(file) for file in of], "state": _state_of(of)}
    with contextlib.suppress(UsageError):  # it is configured again then
        files.write(place, json.dumps(stored).encode())


def _state_of(of: Iterable[Path]) -> str:
    """Return a hash over the sizes and times of files."""
    sha = hashlib.sha256()
    for file in of:
        try:
            status = file.stat()
            sha.update(f"{file} {status.st_size} {status.st_mtime_ns}\n".encode())
        except OSError:
            sha.update(f"{file} is not there\n".encode())
    return sha.hexdigest()
