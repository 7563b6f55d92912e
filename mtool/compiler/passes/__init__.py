"""Graph to graph: pure rewrites, in the order of pipeline.py."""

from mtool.compiler.passes.pipeline import run, traits

__all__ = ["run", "traits"]
