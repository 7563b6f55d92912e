"""A user's own program: what a template needs to build it as the standalone firmware."""

import os
from pathlib import Path

from mtool.base.frozen import frozen

_SOURCES = (".c", ".cpp", ".cc", ".cxx", ".S")


@frozen
class Program:
    """The program's paths, relative to the project folder.

    Attributes:
        folder: the folder of its sources ("../src").
        above: the parent folder, with the user's files for a framework: app.cmake, prj.conf, app.overlay.
        sources: its C and C++ files, for builders that can't search for them.
        port: it uses mtool.h: the bytes and the timer of the board.
        settings: an application's mt_app.h; "": it is not one.
    """

    folder: str
    above: str
    sources: tuple[str, ...]
    port: bool = False
    settings: str = ""


def program_in(
    source_folder: Path, project_folder: Path, *, port: bool = False, settings: str = "", only_c: bool = False
) -> Program:
    """Return the program with the sources in one folder, for a project in another; `only_c`: without its C++ files."""
    folder = Path(os.path.relpath(source_folder.resolve(), project_folder.resolve()))
    found = sorted(
        path.name
        for path in source_folder.glob("*")
        if path.suffix in (_SOURCES[:1] if only_c else _SOURCES) and path.is_file()
    )
    return Program(
        folder=folder.as_posix(),
        above=folder.parent.as_posix(),
        sources=tuple((folder / name).as_posix() for name in found),
        port=port,
        settings=settings,
    )
