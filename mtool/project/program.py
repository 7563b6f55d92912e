"""A user's own program: what a template needs to build it as the standalone firmware."""

import math
import os
from pathlib import Path
from typing import Any

from mtool.base.configuration import FILE_NAME
from mtool.base.errors import UsageError
from mtool.base.frozen import frozen
from mtool.manifest import Tensor

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
        elements: what it reads of the model's first output: the names of mtool.toml, and the elements' indices.
    """

    folder: str
    above: str
    sources: tuple[str, ...]
    port: bool = False
    settings: str = ""
    elements: tuple[tuple[str, int], ...] = ()

    def check(self, output: Tensor) -> None:
        """Check that the model's first output has the elements.

        Raises:
            UsageError: it lacks one.
        """
        count = math.prod(output.shape)
        for name, element in self.elements:
            if element >= count:
                raise UsageError(
                    f"[app.keywords] of {FILE_NAME} is not valid",
                    details=[f"{name}: expected 0 to {count - 1}, elements of {output.name}, found {element}"],
                )


def program_in(source_folder: Path, project_folder: Path, *, only_c: bool = False, **how: Any) -> Program:
    """Return the program with the sources in one folder, for a project in another.

    Args:
        source_folder: the folder of the sources.
        project_folder: the folder of the project.
        only_c: without its C++ files.
        how: further attributes of the program.
    """
    folder = Path(os.path.relpath(source_folder.resolve(), project_folder.resolve()))
    names = sorted(
        path.name
        for path in source_folder.glob("*")
        if path.suffix in (_SOURCES[:1] if only_c else _SOURCES) and path.is_file()
    )
    return Program(
        folder=folder.as_posix(),
        above=folder.parent.as_posix(),
        sources=tuple((folder / name).as_posix() for name in names),
        **how,
    )
