"""All that decides what is generated for a model, as one hash: the model, the board, the options and mtool itself."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from mtool.base import filetree, resources
from mtool.boards import Board
from mtool.compiler import added_operators
from mtool.compiler.frontend.reading import file_hash
from mtool.compiler.request import Request
from mtool.compiler.tuned.known import Known
from mtool.version import __version__

_DATA = ("boards.yaml", "crt", "project_templates")


def made_of(path: Path, board: Board, options: Request, known: Known) -> str:
    """Return a SHA-256 over all that decides what a model's C and its project hold.

    Args:
        path: the model file, which is read.
        board: all of its entry counts.
        options: all of them count, a template's files too.
        known: what tuning has found.

    Raises:
        UsageError: the model or the template can't be read.
    """
    sha = hashlib.sha256()
    for part in (
        __version__,
        np.__version__,
        onnx.__version__,
        path.name,
        file_hash(path),
        board.model_dump_json(),
        repr([(memory.reads, memory.pool) for memory in board.memories.values()]),  # which no entry of JSON has
        *option_texts(options),
        repr(known),
        *program_texts(),
    ):
        data = part.encode("utf-8", "surrogatepass")
        sha.update(len(data).to_bytes(8, "little") + data)
    return sha.hexdigest()


def option_texts(options: Request) -> Iterator[str]:
    """Yield the values of options, and the content of the files that they name."""
    for each in fields(options):
        yield f"{each.name}={_text(getattr(options, each.name))}"
    template = getattr(options, "template", "")  # which a project's options name
    if template and Path(template).is_dir():
        yield filetree.digest_of(Path(template))


def _text(value: Any) -> str:
    """Return a value as text that is the same for the same value alone."""
    if isinstance(value, np.ndarray):
        data = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"{value.dtype.str}{value.shape}{data}"
    if isinstance(value, Mapping):
        return repr(sorted((key, _text(each)) for key, each in value.items()))
    return repr(value)


def program_texts() -> Iterator[str]:
    """Yield what tells mtool's own files and those of operators that are added, by their sizes and times."""
    package = resources.PACKAGE
    for root in (package, *map(resources.path, _DATA), *added_operators.sources()):
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file() and path.suffix not in (".pyc", ".pyo"):
                found = path.stat()
                yield f"{path} {found.st_size} {found.st_mtime_ns}"
