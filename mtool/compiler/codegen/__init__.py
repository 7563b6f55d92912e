"""From a plan to C files and a manifest. Importing only the conventions does not load the code generator."""

from typing import TYPE_CHECKING, Any

from mtool.compiler.codegen.conventions import Conventions, conventions

if TYPE_CHECKING:
    from mtool.compiler.codegen.generation import generate

__all__ = ["Conventions", "conventions", "generate"]


def __getattr__(name: str) -> Any:
    if name != "generate":
        raise AttributeError(f"module 'mtool.compiler.codegen' has no attribute {name!r}")
    from mtool.compiler.codegen.generation import generate

    return generate
