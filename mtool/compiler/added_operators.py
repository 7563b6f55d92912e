"""Installed packages that add operators, found by their entry points. Nothing in them is loaded here."""

import importlib.util
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path

GROUP = "mtool.operators"


def entries() -> EntryPoints:
    """Return the entry points, each a mapping of operators (mtool.compiler.operators.custom_domains)."""
    return entry_points(group=GROUP)


def sources() -> list[Path]:
    """Return the files and package folders that define the operators.

    A file that can't be found is left out: only a model that needs its operators fails.
    """
    origins = [origin for entry in entries() if (origin := _origin(entry)) is not None]
    return sorted({origin.parent if origin.name == "__init__.py" else origin for origin in origins})


def _origin(entry: EntryPoint) -> Path | None:
    try:
        spec = importlib.util.find_spec(entry.module)
    except (Exception, SystemExit):  # of a package around it, whose code runs, or of an entry that names no module
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None
