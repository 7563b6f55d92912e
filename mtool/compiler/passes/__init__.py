"""Passes: pure rewrites from graph to graph; pipeline.py has their order."""

from mtool.compiler.passes.pipeline import run, traits

__all__ = ["run", "traits"]
