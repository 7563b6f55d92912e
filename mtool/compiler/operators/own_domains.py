"""Operators of one's own domain, which installed packages add: docs/add-an-operator.md shows one.

A package names a mapping from (domain, name) to `OwnOperator` in its entry points, in the group "mtool.operators".
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mtool.base.errors import UsageError
from mtool.compiler import added_operators
from mtool.compiler.ir import Attributes, TensorType
from mtool.compiler.operators.lowering import Operator

Outputs = Callable[[Attributes, Sequence[TensorType]], Sequence[TensorType]]


@dataclass(frozen=True, slots=True)
class OwnOperator:
    """An operator of one's own domain.

    operator: its lowering, and the class of its attributes, whose fields are called as in the model.
    outputs: the types of its outputs, from its attributes and the types of its inputs.
    package: the entry point that it is from, as a package names it; mtool fills it in.
    """

    operator: Operator
    outputs: Outputs
    package: str = ""


@functools.cache
def own_operators() -> Mapping[tuple[str, str], OwnOperator]:
    """Return the operators that installed packages add, by domain and name.

    Raises:
        UsageError: a package's operators can't be loaded.
    """
    found: dict[tuple[str, str], OwnOperator] = {}
    for entry in added_operators.entries():
        try:
            found |= {key: replace(own, package=entry.value) for key, own in _checked(entry.load()).items()}
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
        operator = own.operator
        if not (isinstance(operator, Operator) and callable(operator.lower) and callable(own.outputs)):
            raise TypeError(f"{key!r} has no lowering, or no function that gives the types of its outputs")
        if not (isinstance(operator.attributes, type) and issubclass(operator.attributes, Attributes)):
            raise TypeError(f"the attributes of {key!r} are no class that is derived from mtool.compiler.ir.Attributes")
    return dict(operators)


def own_kind(domain: str, name: str) -> str:
    """Return what the nodes of an operator are called in a graph."""
    return f"{domain}.{name}"


def own_of_kind(kind: str) -> OwnOperator | None:
    """Return the operator of a package whose nodes are called so, or None; no package is loaded for one of ONNX's."""
    if "." not in kind:
        return None
    domain, _, name = kind.rpartition(".")
    return own_operators().get((domain, name))
