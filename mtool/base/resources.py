"""Paths of mtool's data files, in a checkout or the installed package, and of the folders that it keeps for a user."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]


def path(name: str) -> Path:
    """Return the path of a data file or folder: "boards.yaml", "crt", "project_templates", "examples/digits"."""
    installed = PACKAGE / "data" / name
    return installed if installed.exists() else PACKAGE.parent / name


def read_yaml(source: Path | bytes | str) -> Any:
    """Return the contents of a YAML file or text.

    Raises:
        OSError, ValueError, RecursionError, yaml.YAMLError: it can't be read.
    """
    import yaml  # not needed by `mtool --help`

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, if PyYAML was built with it, is 10 times as fast
    text = source.read_bytes() if isinstance(source, Path) else source
    return yaml.load(text, Loader=loader)


def warnings_are_errors() -> bool:
    """Whether a warning fails a build (MTOOL_WERROR): set in tests, but not for users, whose compiler may be newer."""
    return bool(os.environ.get("MTOOL_WERROR"))


def plans_are_verified() -> bool:
    """Whether every compilation checks where its tensors lie (MTOOL_VERIFY_PLAN): set in tests."""
    return bool(os.environ.get("MTOOL_VERIFY_PLAN"))


def state_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder for data that mtool keeps between runs, which need not exist yet; None: there is no home.

    As the XDG Base Directory Specification requires, a path that is not absolute is ignored.
    """
    return _of_user("XDG_STATE_HOME", ".local/state", environment)


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder for cached data, which may be removed at any time; None: there is no home folder."""
    return _of_user("XDG_CACHE_HOME", ".cache", environment)


def _of_user(variable: str, below_home: str, environment: Mapping[str, str]) -> Path | None:
    named = environment.get(variable, "")
    if named.startswith("/"):
        return Path(named) / "mtool"
    if not environment.get("HOME", "/").startswith("/"):
        return None
    try:
        return Path.home() / below_home / "mtool"
    except RuntimeError:  # a user without a home
        return None
