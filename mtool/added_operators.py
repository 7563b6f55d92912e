"""The packages installed beside mtool that add operators, by their entry points. Nothing of them is loaded here."""

import importlib.util
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path

GROUP = "mtool.operators"


def entries() -> EntryPoints:
    """Return the entry points, each a mapping of operators (mtool.lowerings.own_domains)."""
    return entry_points(group=GROUP)


def sources() -> list[Path]:
    """Return the files, and the folders of packages, that the operators are from."""
    specs = [importlib.util.find_spec(entry.module) for entry in entries()]
    origins = [Path(spec.origin) for spec in specs if spec is not None and spec.origin is not None]
    return sorted({origin.parent if origin.name == "__init__.py" else origin for origin in origins})
