"""The project stage: a compiled model, the runtime and a template become a project folder."""

from mtool.project.package import FORMATS, package
from mtool.project.program import Program, program_in
from mtool.project.render import choose, render
from mtool.project.runtime import runtime_headers, runtime_sources
from mtool.project.template import Template, load, names

__all__ = [
    "FORMATS",
    "Program",
    "Template",
    "choose",
    "load",
    "names",
    "package",
    "program_in",
    "render",
    "runtime_headers",
    "runtime_sources",
]
