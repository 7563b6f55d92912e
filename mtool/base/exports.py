"""The names that a package takes from its modules, which are imported when a name is first used."""

import ast
from pathlib import Path


def modules_by_name(file: str) -> dict[str, str]:
    """Return the module of each name that a package's `__init__.py` imports below `if TYPE_CHECKING:`.

    There the names stand once, for type checkers and for `__getattr__`, so that importing the package stays light.
    """
    blocks = [one for one in ast.parse(Path(file).read_bytes()).body if isinstance(one, ast.If)]
    imports = [one for block in blocks for one in block.body if isinstance(one, ast.ImportFrom)]
    return {name.name: one.module or "" for one in imports for name in one.names}
