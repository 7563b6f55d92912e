"""The files of a model that are compiled at an optimisation level of their own: <model>_O3.c."""

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import get_args

from mtool.option_values import Level


def levels_of(paths: Iterable[str], model: str) -> dict[str, str]:
    """Return the compiler's option of each such file, by its path."""
    options = {f"{model}_{level}.c": f"-{level}" for level in get_args(Level)}
    return {path: options[name] for path in paths if (name := PurePosixPath(path).name) in options}
