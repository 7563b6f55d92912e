"""The part of the runtime that a model needs: the headers that it includes, and their sources."""

import re
from collections.abc import Iterable
from pathlib import Path

from mtool.base.filetree import FileTree

_INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]+["<](?:[^">\n]*/)?(\w+)\.h[">]', re.MULTILINE)
_C = (".c", ".h", ".S", ".s", ".cpp", ".hpp", ".cc", ".hh", ".cxx", ".hxx", ".inc", ".inl", ".ipp", ".ino")


def runtime_sources(files: FileTree, runtime: FileTree) -> list[str]:
    """Return the runtime's sources that a model itself needs: those whose headers it or one of them includes.

    Args:
        files: the generated files. `<model>_rpc.c` does not count: it is built with the whole runtime.
        runtime: the runtime's sources.
    """
    texts = (files[path] for path in files if path.endswith(".c") and not path.endswith("_rpc.c"))
    return _reached(texts, FileTree({path: runtime[path] for path in runtime if path.endswith(".c")}))


def runtime_headers(files: Iterable[FileTree], headers: FileTree) -> list[str]:
    """Return the runtime's headers that some files include, directly or indirectly.

    Args:
        files: all compiled files; files other than C or C++ do not count.
        headers: the runtime's headers.
    """
    return _reached((tree[path] for tree in files for path in tree if path.endswith(_C)), headers)


def _reached(texts: Iterable[bytes], runtime: FileTree) -> list[str]:
    """Return the runtime's files whose headers the texts include, directly or indirectly."""
    by_header = {Path(path).stem: path for path in runtime}
    waiting, reached = [*texts], set[str]()
    while waiting:
        text = waiting.pop()
        last = text.find(b"\n", max(text.rfind(b"#"), 0))  # megabytes of constants may follow
        included = {name.decode() for name in _INCLUDE.findall(text, 0, last if last >= 0 else len(text))}
        new = {by_header[name] for name in included & by_header.keys()} - reached
        reached |= new
        waiting += [runtime[path] for path in new]
    return sorted(reached)
