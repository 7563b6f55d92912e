"""`mtool doctor`: what is missing here, and the command that installs it."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from mtool.cli import parameters
from mtool.cli.output import Output, table
from mtool.errors import BuildError

if TYPE_CHECKING:
    from mtool.boards import Board


def doctor(
    out: Output,
    board: Annotated[
        list[str] | None,
        parameters.boards("Only what this board needs; may be repeated."),
    ] = None,
) -> None:
    """Tell what is missing here and how to install it.

    Ends with exit code 5 if a board that was named, or else the host board, can't be used.
    """
    from mtool import boards
    from mtool.build import toolchains
    from mtool.oracles import litert, ort

    named = [boards.get(name) for name in board or ()]
    wanted = {name for one in named for name in needs(one)} if named else set(toolchains.ALL)
    found = [toolchains.check(tool) for name, tool in toolchains.ALL.items() if name in wanted]
    rows = [
        [
            f.toolchain.name,
            "missing" if f.missing else f.version,
            f.toolchain.purpose,
            f.toolchain.install if f.missing else "",
        ]
        for f in found
    ]
    version = ort.version()
    rows.append(
        [
            "onnxruntime",
            version or "missing",
            "mtool verify without a golden file",
            "" if version else ort.INSTALL,
        ]
    )
    version = litert.version()
    rows.append(["LiteRT", version or "missing", "mtool verify of a .tflite file", "" if version else litert.INSTALL])
    rows += _flash_tools(named)
    out.result(
        {
            "tools": [
                {
                    "name": name,
                    "version": None if version == "missing" else version,
                    "purpose": purpose,
                    "install": install,
                }
                for name, version, purpose, install in rows
            ]
        }
    )
    out.text(table(("tool", "version", "needed for", "install it with"), rows))
    required = wanted if named else {"cc"}
    lacking = [f for f in found if f.missing and f.toolchain.name in required]
    if lacking:
        raise BuildError(
            f"{len(lacking)} tools are missing" if len(lacking) > 1 else f"{lacking[0].toolchain.name} is missing",
            details=[f.toolchain.install for f in lacking],
        )


def _flash_tools(boards: Sequence["Board"]) -> list[list[str]]:
    """Return a row for each tool that flashes these boards; without any, for each tool that flashes a board at all."""
    from mtool import flash
    from mtool.errors import FlashError

    wanted = {name for board in boards for name in flash.runners_of(board)} if boards else set(flash.RUNNERS)
    rows = []
    for name, runner in flash.RUNNERS.items():
        program, version = runner.program(), "missing"
        if name not in wanted or not program:
            continue
        if shutil.which(program):
            try:
                version = ".".join(map(str, runner.probe_version())) or "there"
            except FlashError as wrong:
                version = wrong.what.removeprefix(f"{program} is ")
        install = runner.install if version in ("missing", "too old") else ""
        rows.append([Path(program).name, version, f"mtool flash --runner {name}", install])
    return rows


def needs(board: "Board") -> set[str]:
    """Return the names of the tools that a board needs with its first template."""
    from mtool import project
    from mtool.build import toolchains
    from mtool.build.build import BUILDERS

    builder = BUILDERS[project.load(next(iter(board.templates))).builder]
    emulator = [board.emulator.program] if board.emulator else []
    return {board.toolchain, *emulator, *builder.needs} & set(toolchains.ALL)
