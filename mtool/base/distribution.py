"""The name under which mtool is installed: on PyPI another package is called `mtool`, as the import and command are."""

import importlib.metadata

NAME = "mtool-mcu"


def install(*extras: str) -> str:
    """Return the command that installs mtool with some of its extras ("verify", "emulator")."""
    return f"pip install '{NAME}[{','.join(extras)}]'"


def version_of(package: str) -> str:
    """Return the version of an installed package, or ""."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
