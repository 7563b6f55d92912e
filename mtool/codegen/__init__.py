"""From a plan to C files and a manifest."""

from mtool.codegen.conventions import Conventions, conventions
from mtool.codegen.generate import generate

__all__ = ["Conventions", "conventions", "generate"]
