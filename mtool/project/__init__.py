"""The project stage: a compiled model, the runtime and a template become a project folder."""

from mtool.project.mlf import Module
from mtool.project.package import FORMATS, About, Packed, delivered, package
from mtool.project.portable import CORES
from mtool.project.program import Program, program_in
from mtool.project.render import check_fence, choose, render
from mtool.project.runtime import runtime_headers, runtime_sources
from mtool.project.single_file import Runtime, single_file
from mtool.project.template import Template, load, names

__all__ = [
    "CORES",
    "FORMATS",
    "About",
    "Module",
    "Packed",
    "Program",
    "Runtime",
    "Template",
    "check_fence",
    "choose",
    "delivered",
    "load",
    "names",
    "package",
    "program_in",
    "render",
    "runtime_headers",
    "runtime_sources",
    "single_file",
]
