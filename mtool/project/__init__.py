"""The project stage: a compiled model, the runtime and a template become a project folder."""

from mtool.project.mlf import Module as Module
from mtool.project.package import FORMATS as FORMATS
from mtool.project.package import About as About
from mtool.project.package import Packed as Packed
from mtool.project.package import delivered as delivered
from mtool.project.package import own_firmware as own_firmware
from mtool.project.package import package as package
from mtool.project.portable import CORES as CORES
from mtool.project.program import Program as Program
from mtool.project.program import program_in as program_in
from mtool.project.render import check_protection as check_protection
from mtool.project.render import choose as choose
from mtool.project.render import render as render
from mtool.project.runtime import runtime_headers as runtime_headers
from mtool.project.runtime import runtime_sources as runtime_sources
from mtool.project.single_file import Runtime as Runtime
from mtool.project.single_file import single_file as single_file
from mtool.project.template import Template as Template
from mtool.project.template import load as load
from mtool.project.template import names as names
