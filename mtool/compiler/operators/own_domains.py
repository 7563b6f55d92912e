"""Operators of one's own domain, which installed packages add: docs/add-an-operator.md shows one.

A package names its records, a tuple, in its entry points, in the group "mtool.operators".
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mtool.base.errors import UsageError
from mtool.compiler import added_operators
from mtool.compiler.ir import Attributes
from mtool.compiler.operators.operator import Operator


@functools.cache
def own_operators() -> Mapping[tuple[str, str], Operator]:
    """Return the operators that installed packages add, by domain and name.

    Raises:
        UsageError: a package's operators can't be loaded.
    """
    found: dict[tuple[str, str], Operator] = {}
    for entry in added_operators.entries():
        try:
            found |= {(one.domain, one.name): replace(one, package=entry.value) for one in _checked(entry.load())}
        except (Exception, SystemExit) as failed:  # of code that is not mtool's
            raise UsageError(
                f"the operators of {entry.value} can't be loaded",
                details=[f"{type(failed).__name__}: {failed}"],
                hint="mend that package, or uninstall it",
            ) from failed
    return found


def _checked(operators: Any) -> Sequence[Operator]:
    """Return what a package gives, if these are records as they should be.

    Raises:
        TypeError: they are not.
    """
    for one in operators:
        if not (isinstance(one, Operator) and type(one.name) is str and type(one.domain) is str and one.domain):
            raise TypeError(f"{one!r} is not an Operator with a name and a domain")
        if not (callable(one.lower) and callable(one.infer)):
            raise TypeError(f"{one.name} has no lowering, or no function that gives the types of its outputs")
        if not (isinstance(one.attributes, type) and issubclass(one.attributes, Attributes)):
            raise TypeError(f"the attributes of {one.name} are no class derived from mtool.compiler.ir.Attributes")
    return tuple(operators)


def own_kind(domain: str, name: str) -> str:
    """Return what the nodes of an operator are called in a graph."""
    return f"{domain}.{name}"


def own_of_kind(kind: str) -> Operator | None:
    """Return the operator of a package whose nodes are called so, or None; no package is loaded for one of ONNX's."""
    if "." not in kind:
        return None
    domain, _, name = kind.rpartition(".")
    return own_operators().get((domain, name))
