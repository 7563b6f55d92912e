"""The project stage: a compiled model, the runtime and a template become a project folder."""

from mtool.project.package import FORMATS, package
from mtool.project.render import choose, render
from mtool.project.runtime import runtime_headers, runtime_sources
from mtool.project.template import Template, load, names

__all__ = ["FORMATS", "Template", "choose", "load", "names", "package", "render", "runtime_headers", "runtime_sources"]
