"""The files of a model that are compiled at another optimisation level: <model>_O3.c."""

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import get_args

from mtool.base.option_values import Level


def levels_of(paths: Iterable[str], model: str, cores: Iterable[str] = ()) -> dict[str, str]:
    """Return the compiler option of each such file, by its path.

    `cores` are suffixes of the names in packages for many cores.
    """
    ends = ["", *(f"_{core}" for core in cores)]
    options = {f"{model}_{level}{end}.c": f"-{level}" for level in get_args(Level) for end in ends}
    return {path: options[name] for path in paths if (name := PurePosixPath(path).name) in options}
