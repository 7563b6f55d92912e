"""Backends: what computes parts of a network instead of mtool's own C.

A backend is a class (`Backend`): what it claims, and how it compiles a `Region` of claimed operations to a `Product`.
Each name is loaded when it is first used: most compiles have no backend.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mtool.compiler.backends.interface import (
        Activation,
        Backend,
        BackendError,
        BoardMemory,
        Buffer,
        Context,
        Operand,
        Operation,
        OperationsRefused,
        Pattern,
        Product,
        Region,
    )
    from mtool.compiler.backends.spec import BackendSpec

__all__ = [
    "Activation", "Backend", "BackendError", "BackendSpec", "BoardMemory", "Buffer", "Context", "Operand", "Operation",
    "OperationsRefused", "Pattern", "Product", "Region",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mtool.compiler.backends' has no attribute {name!r}")
    module = "spec" if name == "BackendSpec" else "interface"
    return getattr(importlib.import_module(f"mtool.compiler.backends.{module}"), name)
