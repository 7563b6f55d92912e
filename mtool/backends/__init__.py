"""Backends: what computes parts of a network instead of mtool's own C.

A backend is a class (`Backend`): what it claims, and how it compiles a `Region` of claimed operations to a `Product`.
"""

from mtool.backends.interface import Backend, BackendError, Context, Product, Region
from mtool.backends.operation import Activation, Operand, Operation
from mtool.backends.pattern import Pattern
from mtool.backends.spec import BackendSpec

__all__ = [
    "Activation", "Backend", "BackendError", "BackendSpec", "Context", "Operand", "Operation", "Pattern", "Product",
    "Region",
]  # fmt: skip
