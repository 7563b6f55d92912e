"""Backends, which compute parts of a network instead of mtool's own C.

A backend is a class (`Backend`): what it claims, and how it compiles a `Region` of claimed operations to a `Product`.
Each name is loaded when it is first used: most compiles have no backend.
"""

from typing import TYPE_CHECKING

from mtool.base import exports

if TYPE_CHECKING:
    from mtool.compiler.backends.interface import Activation as Activation
    from mtool.compiler.backends.interface import Backend as Backend
    from mtool.compiler.backends.interface import BackendError as BackendError
    from mtool.compiler.backends.interface import BoardMemory as BoardMemory
    from mtool.compiler.backends.interface import Buffer as Buffer
    from mtool.compiler.backends.interface import Context as Context
    from mtool.compiler.backends.interface import Operand as Operand
    from mtool.compiler.backends.interface import Operation as Operation
    from mtool.compiler.backends.interface import OperationsRefused as OperationsRefused
    from mtool.compiler.backends.interface import Pattern as Pattern
    from mtool.compiler.backends.interface import Product as Product
    from mtool.compiler.backends.interface import Region as Region
    from mtool.compiler.backends.spec import BackendSpec as BackendSpec

__getattr__ = exports.getter(__name__, exports.modules_by_name(__file__))
