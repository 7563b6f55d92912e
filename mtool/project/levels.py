"""The files of a model that are built apart: at another optimisation level (<model>_O3.c), for RAM (<model>_hot.c)."""

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import get_args

from mtool.base.option_values import Level

LEVELS: tuple[Level, ...] = get_args(Level)
HOT = "_hot"
APART = (*(f"_{level}{hot}" for level in LEVELS for hot in ("", HOT)), HOT)
"""How the names of such files end, without ".c"."""


def levels_of(paths: Iterable[str], model: str, cores: Iterable[str] = ()) -> dict[str, str]:
    """Return the compiler option of each file with its own level, by its path.

    `cores` are suffixes of the names in packages for many cores.
    """
    ends = ["", *(f"_{core}" for core in cores)]
    options = {f"{model}_{level}{hot}{end}.c": f"-{level}" for level in LEVELS for hot in ("", HOT) for end in ends}
    return {path: options[name] for path in paths if (name := PurePosixPath(path).name) in options}


def hot_sources(paths: Iterable[str], models: Iterable[str]) -> list[str]:
    """Return the paths of the files whose code belongs in RAM."""
    names = {f"{model}{end}.c" for model in models for end in APART if end.endswith(HOT)}
    return [path for path in paths if PurePosixPath(path).name in names]
