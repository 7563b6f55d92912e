"""From a plan to C files and a manifest."""

from mtool.codegen.generate import generate

__all__ = ["generate"]
