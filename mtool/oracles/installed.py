"""Which version of an oracle's package is installed."""

import importlib.metadata


def version_of(package: str) -> str:
    """Return the version of a package, or "" if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
