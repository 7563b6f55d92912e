"""The project folder as a cache: it is used again if model, options and mtool are the same and nobody changed it.

What it was made of is remembered beside its build, as a hash, and so is what it consisted of. Where both still hold,
nothing is compiled or rendered again: the project itself says what it is.
"""

import contextlib
import logging
from pathlib import Path

from mtool import boards, manifest
from mtool.base import files, filetree
from mtool.base.errors import MtoolError
from mtool.base.filetree import FileTree
from mtool.base.identifiers import model_name
from mtool.boards import Board
from mtool.device.build.build import BUILD_FOLDER
from mtool.stages.compile_cache import made_of
from mtool.stages.compiling import Model, default_folder
from mtool.stages.options import Options, known_of

_STAMP = "compiled.key"

log = logging.getLogger(__name__)


def load(path: Path, board: str | Board, options: Options, folder: Path | None) -> tuple[Model, Path] | None:
    """Return the compiled model that a project folder holds, and the folder; None: it is not fresh, or not there.

    Args:
        path: the model file.
        board: a board or its name.
        options: how it is to be compiled.
        folder: the project folder; None: the one by the model's and the board's name.
    """
    if options.backends:  # whose own files and compilers may have changed
        return None
    try:
        target = boards.get(board) if isinstance(board, str) else board
        project = folder or default_folder(model_name(options.name or path.stem), target)
        stamp = _stamp(project)
        if not stamp.is_file() or filetree.interrupted(project):
            return None
        if stamp.read_text() != f"{_made_of(path, target, options)} {_consists_of(project)}":
            return None
        described = manifest.load(project)
        if described.project is None:
            return None
        below = project / described.project.model
        made = FileTree({name: (below / name).read_bytes() for name in _names(below, described.model)})
        filetree.tell_left(project)
        known_of(target, options)  # for its note, which a compilation gives
        return Model(path, target, options, made, described.model_copy(update={"project": None})), project
    except (MtoolError, OSError, UnicodeError) as stale:  # whoever compiles it anew tells what is wrong
        log.debug("%s is not fresh: %s", path.name, stale)
        return None


def store(model: Model, folder: Path) -> None:
    """Note what a project was made of and consists of."""
    with contextlib.suppress(MtoolError, OSError):  # it is compiled again then
        found = f"{_made_of(model.path, model.board, model.options)} {_consists_of(folder)}"
        files.write(_stamp(folder), found.encode())


def _stamp(folder: Path) -> Path:
    return folder / BUILD_FOLDER / _STAMP


def _consists_of(folder: Path) -> str:
    return filetree.digest_of(folder, skip=(BUILD_FOLDER,))


def _names(folder: Path, model: str) -> list[str]:
    return sorted(path.name for path in folder.glob(f"{model}*") if path.is_file())


def _made_of(path: Path, board: Board, options: Options) -> str:
    return made_of(path, board, options, known_of(board, options, tells=False))
