"""Where mtool's data lies: at the top of a checkout, or inside the installed package."""

from pathlib import Path

_PACKAGE = Path(__file__).parent


def path(name: str) -> Path:
    """Return the path of a data file or folder: "boards.yaml", "crt", "project_templates", "examples/digits"."""
    installed = _PACKAGE / "data" / name
    return installed if installed.exists() else _PACKAGE.parent / name
