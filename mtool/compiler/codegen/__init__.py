"""From a plan to C files and a manifest. Importing only the conventions does not load the code generator."""

from typing import TYPE_CHECKING

from mtool.base import exports
from mtool.compiler.codegen.conventions import Conventions, conventions

if TYPE_CHECKING:
    from mtool.compiler.codegen.generation import generate

__all__ = ["Conventions", "conventions", "generate"]
__getattr__ = exports.getter(__name__, exports.modules_by_name(__file__))
