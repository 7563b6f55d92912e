"""What of the runtime a model needs: the headers that it includes, and the sources that stand behind them."""

import re
from pathlib import Path

from mtool.filetree import FileTree

_INCLUDE = re.compile(r'^#include "(\w+)\.h"', re.MULTILINE)


def runtime_sources(files: FileTree, runtime: FileTree) -> list[str]:
    """Return the sources of the runtime that a model itself needs: those whose header it or one of them includes.

    Args:
        files: what codegen made. `<model>_rpc.c` does not count: where it is built, the whole runtime is.
        runtime: the runtime's sources.
    """
    by_header = {Path(path).stem: path for path in runtime if path.endswith(".c")}
    texts = [files.text(path) for path in files if path.endswith(".c") and not path.endswith("_rpc.c")]
    needed: set[str] = set()
    while texts:
        for name in _INCLUDE.findall(texts.pop()):
            if name in by_header and by_header[name] not in needed:
                needed.add(by_header[name])
                texts.append(runtime.text(by_header[name]))
    return sorted(needed)
