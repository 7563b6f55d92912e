"""A model's C as it was compiled before, from the user's cache: of the same model, board and options by this mtool.

What was warned of then is told again.
"""

import contextlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path

from mtool import cache, manifest
from mtool.boards import Board
from mtool.cache import File
from mtool.errors import MtoolError
from mtool.filetree import FileTree
from mtool.frontend.budget import LIMITS
from mtool.manifest import Firmware, Manifest
from mtool.request import Request
from mtool.workflow.made_of import made_of

_PACKAGE = "mtool"
_TOLD = "told.json"  # no file of a model, whose names its own begins
_RESULT = manifest.FILE_NAME

log = logging.getLogger(__name__)


def compiled(path: Path, board: Board, request: Request) -> tuple[FileTree, Manifest, bool]:
    """Compile a model, unless that was done before; return its files, its manifest and whether it was.

    Raises:
        MtoolError: as mtool.compiler.compile_model.
    """
    kept = cache.of_user()
    key = _key(path, board, request) if kept else ""
    if kept is None or not key:
        return *_compile(path, board, request), False
    found = kept.get(key)
    if found and {_TOLD, _RESULT} <= set(found):
        for name, level, message in json.loads(found.pop(_TOLD).data):
            logging.getLogger(name).log(level, "%s", message)
        (described,) = Firmware.model_validate_json(found.pop(_RESULT).data).manifests()
        return FileTree({name: one.data for name, one in found.items()}), described, True
    with _noted() as told:
        files, described = _compile(path, board, request)
    kept.put(
        key,
        {
            **{name: File(files[name]) for name in files},
            _RESULT: File(described.to_json()),
            _TOLD: File(json.dumps(told).encode()),
        },
    )
    return files, described, False


def _key(path: Path, board: Board, request: Request) -> str:
    """Return the hash of all that the C is made of; empty: it can't be told, and the compiler says why."""
    if request.backends:  # whose own files and compilers may have changed
        return ""
    try:
        if path.is_file() and path.stat().st_size <= LIMITS["file"][0]:
            return made_of(path, board, request, request.known)
    except (MtoolError, OSError, UnicodeError) as failed:
        log.debug("%s has no key: %s", path.name, failed)
    return ""


def _compile(path: Path, board: Board, request: Request) -> tuple[FileTree, Manifest]:
    from mtool.compiler import compile_model

    done = compile_model(path, board, request)
    return done.files, done.manifest


@contextlib.contextmanager
def _noted() -> Iterator[list[tuple[str, int, str]]]:
    """Note what is warned of meanwhile: who says it, how urgent it is, and what."""
    told: list[tuple[str, int, str]] = []

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append((record.name, record.levelno, record.getMessage()))

    notes, logger = Notes(logging.WARNING), logging.getLogger(_PACKAGE)
    logger.addHandler(notes)
    try:
        yield told
    finally:
        logger.removeHandler(notes)
