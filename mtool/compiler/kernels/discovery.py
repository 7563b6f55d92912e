"""Discovery of an operator's schedules: a file in the folder of its instruction set is one."""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator

from mtool.compiler.kernels.schedule import Schedule

INSTRUCTION_SETS = ("c99", "integer", "f32", "dsp", "mve", "rvv", "simd")
"""The folders of an operator, in the order of its schedules: of those with the same cost, the first is taken."""

_TYPES = ("int8", "int16", "f32")  # with which the names of files end
_METHODS = ("pointwise", "im2col", "depthwise3x3", "depthwise")  # with which they begin: the more special come first


def schedules_of(package: str, path: Iterable[str]) -> tuple[Schedule, ...]:
    """Return the schedules of an operator: `SCHEDULE` of each module in its folders that has one.

    Args:
        package: the operator's, `__name__`.
        path: where that lies, `__path__`.
    """
    folders = {module.name for module in pkgutil.iter_modules(path) if module.ispkg}
    return tuple(
        schedule
        for folder in INSTRUCTION_SETS
        if folder in folders
        for schedule in _schedules_in(f"{package}.{folder}")
    )


def _schedules_in(package: str) -> Iterator[Schedule]:
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    for name in sorted((module.name for module in modules), key=_rank):
        found: Schedule | None = getattr(importlib.import_module(f"{package}.{name}"), "SCHEDULE", None)
        if found is not None:
            yield found


def _rank(name: str) -> tuple[int, int, str]:
    """Return what the files of a folder are ordered by."""
    words = name.split("_")
    of_type = _TYPES.index(words[-1]) if words[-1] in _TYPES else -1
    return of_type, _METHODS.index(words[0]) if words[0] in _METHODS else len(_METHODS), name
