"""Backends: what computes parts of a network instead of mtool's own C.

A backend is a class (`Backend`): what it claims, and how it compiles a `Region` of claimed operations to a `Product`.
Each name is loaded when it is first used: most compiles have no backend.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtool.compiler.backends.interface import (
        Backend,
        BackendError,
        BoardMemory,
        Buffer,
        Context,
        OperationsRefused,
        Product,
        Region,
    )
    from mtool.compiler.backends.operation import Activation, Operand, Operation
    from mtool.compiler.backends.pattern import Pattern
    from mtool.compiler.backends.spec import BackendSpec

__all__ = [
    "Activation", "Backend", "BackendError", "BackendSpec", "BoardMemory", "Buffer", "Context", "Operand", "Operation",
    "OperationsRefused", "Pattern", "Product", "Region",
]  # fmt: skip

_MODULES = {
    **dict.fromkeys(
        ("Backend", "BackendError", "BoardMemory", "Buffer", "Context", "OperationsRefused", "Product", "Region"),
        "interface",
    ),
    **dict.fromkeys(("Activation", "Operand", "Operation"), "operation"),
    "Pattern": "pattern",
    "BackendSpec": "spec",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'mtool.compiler.backends' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mtool.compiler.backends.{_MODULES[name]}"), name)
