"""The project stage: a compiled model, the runtime and a template become a project folder."""

from mtool.project.package import FORMATS, package
from mtool.project.render import render
from mtool.project.runtime import runtime_headers, runtime_sources
from mtool.project.template import Template, load, names

__all__ = ["FORMATS", "Template", "load", "names", "package", "render", "runtime_headers", "runtime_sources"]
