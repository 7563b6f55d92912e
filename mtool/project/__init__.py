"""The project stage: a compiled model, the runtime and a template become a project folder."""

from mtool.project.render import render
from mtool.project.template import Template, load, names

__all__ = ["Template", "load", "names", "render"]
