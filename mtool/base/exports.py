"""The names that a package exports from its modules; a module is imported when one of its names is first used."""

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def modules_by_name(file: str) -> dict[str, str]:
    """Return the module of each name that a package's `__init__.py` imports below `if TYPE_CHECKING:`.

    They are listed there once, for type checkers and for `__getattr__`, so that importing the package stays fast.
    """
    blocks = [block for block in ast.parse(Path(file).read_bytes()).body if isinstance(block, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {name.name: node.module or "" for node in imports for name in node.names}


def getter(package: str, modules: dict[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose names come from these modules."""

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    return get
