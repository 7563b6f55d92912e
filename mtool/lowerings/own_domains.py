"""Operators of one's own domain, which installed packages add: docs/add-an-operator.md shows one.

A package names a mapping from (domain, name) to `OwnOperator` in its entry points, in the group "mtool.operators".
"""

import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from mtool.errors import UsageError
from mtool.ir import Attributes, TensorType
from mtool.lowerings.lowering import Operator

GROUP = "mtool.operators"
Outputs = Callable[[Attributes, Sequence[TensorType]], Sequence[TensorType]]


@dataclass(frozen=True, slots=True)
class OwnOperator:
    """An operator of one's own domain.

    operator: its lowering, and the class of its attributes, whose fields are called as in the model.
    outputs: the types of its outputs, from its attributes and the types of its inputs.
    """

    operator: Operator
    outputs: Outputs


@functools.cache
def own_operators() -> Mapping[tuple[str, str], OwnOperator]:
    """Return the operators that installed packages add, by domain and name.

    Raises:
        UsageError: a package's operators can't be loaded.
    """
    found: dict[tuple[str, str], OwnOperator] = {}
    for entry in entry_points(group=GROUP):
        try:
            found |= _checked(entry.load())
        except (Exception, SystemExit) as failed:  # of code that is not mtool's
            raise UsageError(
                f"the operators of {entry.value} can't be loaded",
                details=[f"{type(failed).__name__}: {failed}"],
                hint="mend that package, or uninstall it",
            ) from failed
    return found


def _checked(operators: Any) -> Mapping[tuple[str, str], OwnOperator]:
    """Return what a package gives, if it is a mapping as it should be.

    Raises:
        TypeError: it is not.
    """
    for key, own in dict(operators).items():
        if not (isinstance(key, tuple) and [type(part) for part in key] == [str, str] and isinstance(own, OwnOperator)):
            raise TypeError(f"{key!r} is not the domain and name of an OwnOperator")
    return dict(operators)


def own_kind(domain: str, name: str) -> str:
    """Return what the nodes of an operator are called in a graph."""
    return f"{domain}.{name}"


def own_by_kind() -> Mapping[str, Operator]:
    """Return the lowerings of the operators, by what their nodes are called."""
    return {own_kind(*key): own.operator for key, own in own_operators().items()}


def paths() -> list[Path]:
    """Return the files, and the folders of packages, that the operators are from.

    One that can't be found is left out: only a model that needs its operators fails.
    """
    origins = [origin for entry in entry_points(group=GROUP) if (origin := _origin(entry)) is not None]
    return sorted({origin.parent if origin.name == "__init__.py" else origin for origin in origins})


def _origin(entry: EntryPoint) -> Path | None:
    try:
        spec = importlib.util.find_spec(entry.module)
    except (Exception, SystemExit):  # of a package around it, whose code runs, or of an entry that names no module
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None
