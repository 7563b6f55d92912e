"""The user's cache of compiled C: results for the same models, board and options by this version of mtool.

The warnings of the first compilation are repeated.
"""

import hashlib
import importlib.util
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from mtool import manifest
from mtool.base import cache, filetree, resources
from mtool.base.cache import File
from mtool.base.errors import MtoolError
from mtool.base.filetree import FileTree
from mtool.base.notes import noted, replay
from mtool.base.option_values import Arenas
from mtool.boards import Board
from mtool.compiler import added_operators
from mtool.compiler.frontend.hashing import file_hash
from mtool.compiler.operators.budget import LIMITS
from mtool.compiler.request import Compilation, Request
from mtool.compiler.tuned.results import TuningResults
from mtool.manifest import Firmware
from mtool.version import __version__

_DATA = ("boards.yaml", "crt", "project_templates")


def cache_key(path: Path, board: Board, options: Request, tuning_results: TuningResults) -> str:
    """Return a SHA-256 over everything that a model's C and its project depend on.

    Args:
        path: the model file.
        board: its whole entry is hashed.
        options: all are hashed, a template's files too.
        tuning_results: the results of tuning.

    Raises:
        UsageError: the model or the template can't be read.
    """
    sha = hashlib.sha256()
    for part in (
        __version__,
        path.name,
        file_hash(path),
        board.model_dump_json(),
        repr([(memory.reads, memory.pool) for memory in board.memories.values()]),  # not in the JSON
        *option_texts(options),
        repr(tuning_results),
        *program_texts(),
    ):
        data = part.encode("utf-8", "surrogatepass")
        sha.update(len(data).to_bytes(8, "little") + data)
    return sha.hexdigest()


def option_texts(options: Request) -> Iterator[str]:
    """Yield the values of options, and the contents of the files that they name."""
    for option_field in fields(options):
        yield f"{option_field.name}={_text(getattr(options, option_field.name))}"
    template = getattr(options, "template", "")  # which a project's options name
    if template and Path(template).is_dir():
        yield filetree.digest_of(Path(template))


def _text(value: Any) -> str:
    """Return a text that is equal for equal values only."""
    if hasattr(value, "__array_interface__"):
        import numpy as np  # not imported for results in the cache

        data = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"{value.dtype.str}{value.shape}{data}"
    if isinstance(value, Mapping):
        return repr(sorted((key, _text(item)) for key, item in value.items()))
    return repr(value)


def program_texts() -> Iterator[str]:
    """Yield the versions of NumPy and ONNX; the paths, sizes and times of mtool's files and of added operators'."""
    for name in ("numpy", "onnx"):
        spec = importlib.util.find_spec(name)  # which does not import it
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin).with_name("version.py").read_text("utf-8")
    for root in (resources.PACKAGE, *map(resources.path, _DATA), *added_operators.sources()):
        for path, state in _files_in(root) if root.is_dir() else [(root, root.stat())]:
            yield f"{path} {state.st_size} {state.st_mtime_ns}"


def _files_in(folder: Path | str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield a folder's files, except caches of bytecode, which change nothing."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if not entry.is_dir():
                yield entry.path, entry.stat()
            elif entry.name != "__pycache__":
                yield from _files_in(entry.path)


_NOTES = "notes.json"  # can't clash with a model's files, which begin with the model's name
_RESULT = manifest.FILE_NAME
log = logging.getLogger(__name__)


def compiled(sources: Sequence[tuple[Path, Request]], board: Board, arenas: Arenas) -> Compilation:
    """Compile models for one firmware, or return the cached result.

    Raises:
        MtoolError: as mtool.compiler.compilation.compile_models.
    """
    keys = [_key(path, board, request) for path, request in sources]
    key = hashlib.sha256("\n".join([arenas, *keys]).encode()).hexdigest() if all(keys) else ""
    user_cache = cache.of_user()
    entry = user_cache.get(key) if user_cache is not None and key else None
    before = _read(entry) if entry else None
    if before is not None:
        return before
    from mtool.compiler.compilation import compile_models  # which loads the compile half

    if user_cache is None or not key:
        return compile_models(sources, board, arenas)
    if entry:
        user_cache.drop(key)
    with noted() as notes:
        done = compile_models(sources, board, arenas)
    details = {"notes": notes, "apart_bytes": done.apart_bytes, "outline": done.files.outline}
    user_cache.put(
        key,
        {
            **{name: File(done.files[name]) for name in done.files},
            _RESULT: File(done.manifest.to_json()),
            _NOTES: File(json.dumps(details).encode()),
        },
    )
    return done


def _read(entry: dict[str, File]) -> Compilation | None:
    """Return the compilation in a cache entry, and repeat its warnings; None: it is malformed."""
    try:
        noted = json.loads(entry.pop(_NOTES).data)
        notes = [(str(name), int(level), str(message)) for name, level, message in noted["notes"]]
        described = Firmware.model_validate_json(entry.pop(_RESULT).data).manifests()
        files = FileTree({name: file.data for name, file in entry.items()}, dict(noted["outline"]))
        result = Compilation(files, described, int(noted["apart_bytes"]), is_cached=True)
    except (KeyError, TypeError, ValueError, RecursionError, MtoolError) as malformed:
        log.debug("a cache entry is malformed: %s", malformed)
        return None
    replay(notes)
    return result


def _key(path: Path, board: Board, request: Request) -> str:
    """Return the cache key; empty: there is none, and the compiler will report why."""
    if request.backends or cache.of_user() is None:  # a backend's own files and compilers may have changed
        return ""
    try:
        if path.is_file() and path.stat().st_size <= LIMITS["file"][0]:
            return cache_key(path, board, request, request.tuning_results)
    except (MtoolError, OSError, UnicodeError) as failed:
        log.debug("%s has no cache key: %s", path.name, failed)
    return ""
