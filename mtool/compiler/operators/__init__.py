"""The operators: one record (mtool.compiler.operators.operator.Operator) with everything about each.

Each module of this folder lists its records in `OPERATORS`: operators of ONNX's and onnxruntime's domains, and mtool's
own. mtool.compiler.operators.custom_domains finds those of installed packages.
"""

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mtool.compiler.operators.operator import Operator


@functools.cache
def operators() -> "Mapping[tuple[str, str], Operator]":
    """Return all operators except those of installed packages, by domain and name."""
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    every = [operator for module in modules for operator in getattr(module, "OPERATORS", ())]
    by_name = {(operator.domain, operator.name): operator for operator in every}
    assert len(by_name) == len(every), "an operator has two records"
    return by_name


def lowering_of(kind: str) -> "Operator | None":
    """Return the operator with this kind of canonical nodes, or None."""
    from mtool.compiler.operators.custom_domains import custom_operator

    return custom_operator(kind) or _lowered().get(kind)


@functools.cache
def _lowered() -> "Mapping[str, Operator]":
    every = [operator for operator in operators().values() if operator.lower is not None]
    by_name = {operator.name: operator for operator in every}
    assert len(by_name) == len(every), "two operators have canonical nodes of one name"
    return by_name
