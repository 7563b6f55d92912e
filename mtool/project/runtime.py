"""The part of the runtime that a model needs: the headers that it includes, and their sources."""

import re
from collections.abc import Iterable
from pathlib import Path

from mtool.base.filetree import FileTree

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]+["<](?:[^">\n]*/)?(\w+)\.h[">]', re.MULTILINE)
_C = (".c", ".h", ".S", ".s", ".cpp", ".hpp", ".cc", ".hh", ".cxx", ".hxx", ".inc", ".inl", ".ipp", ".ino")


def runtime_sources(files: FileTree, runtime: FileTree) -> list[str]:
    """Return the sources of the runtime that a model itself needs: those whose header it or one of them includes.

    Args:
        files: what codegen made. `<model>_rpc.c` does not count: where it is built, the whole runtime is.
        runtime: the runtime's sources.
    """
    by_header = {Path(path).stem: path for path in runtime if path.endswith(".c")}
    texts = [files[path] for path in files if path.endswith(".c") and not path.endswith("_rpc.c")]
    needed: set[str] = set()
    while texts:
        for name in _included(texts.pop()):
            if name in by_header and by_header[name] not in needed:
                needed.add(by_header[name])
                texts.append(runtime[by_header[name]])
    return sorted(needed)


def runtime_headers(files: Iterable[FileTree], headers: FileTree) -> list[str]:
    """Return the headers of the runtime that some files include, themselves or through one another.

    Args:
        files: all that is compiled; what is no C or C++ in them does not count.
        headers: the runtime's headers.
    """
    by_name = {Path(path).stem: path for path in headers}
    texts = [tree[path] for tree in files for path in tree if path.endswith(_C)]
    needed: set[str] = set()
    while texts:
        for name in _included(texts.pop()):
            if name in by_name and by_name[name] not in needed:
                needed.add(by_name[name])
                texts.append(headers[by_name[name]])
    return sorted(needed)


def _included(text: bytes) -> set[str]:
    return {name.decode() for name in _INCLUDE.findall(text)}
