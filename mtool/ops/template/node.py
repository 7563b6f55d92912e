"""The nodes that are one C template each: `template`."""

from dataclasses import dataclass

from mtool.ir import Attributes
from mtool.kernels.specification import Specification


@dataclass(frozen=True, slots=True)
class Values:
    """The variables of a template, beside `types`, the types of its inputs and outputs; each template has a class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateKernel(Attributes):
    """A kernel that is one C template.

    template: the name of its file, without its ending; or the whole path of a file that is not mtool's.
    values: its fields are the template's variables.
    names: the C names of the inputs, then of the outputs.
    label: the ONNX operator, in lower case.
    scratch: bytes of working memory.
    scratch_type: the C type of its elements.
    math: whether the C calls the mathematical library.
    macs: its multiply-accumulates.
    headers: of the runtime, that it needs besides mt_math.h.
    overwrites: pairs of an input and the output that may be written over it, by their numbers.
    """

    template: str
    values: Values
    names: tuple[str, ...]
    label: str
    scratch: int = 0
    scratch_type: str = ""
    math: bool = False
    macs: int = 0
    headers: tuple[str, ...] = ()
    overwrites: tuple[tuple[int, int], ...] = ()


SPECIFICATION = Specification(TemplateKernel, takes_more=True)
