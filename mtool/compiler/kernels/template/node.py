"""The nodes that are one C template each: `template`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mtool.compiler.ir import Attributes, Graph, Node
from mtool.compiler.kernels.specification import Specification


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateKernel(Attributes):
    """A kernel that is one C template.

    template: the name of its file, without its ending; or the whole path of a file that is not mtool's.
    values: the template's variables, beside `types`, the types of its inputs and outputs.
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
    values: Mapping[str, Any]
    names: tuple[str, ...]
    label: str
    scratch: int = 0
    scratch_type: str = ""
    math: bool = False
    macs: int = 0
    headers: tuple[str, ...] = ()
    overwrites: tuple[tuple[int, int], ...] = ()


def _agree(node: Node, graph: Graph) -> None:
    attrs, where = TemplateKernel.of(node), f"the template of {node.name}"
    count = len(node.inputs) + len(node.outputs)
    assert len(attrs.names) == count, f"{where} has {len(attrs.names)} names of inputs and outputs; expected {count}"
    known = [*attrs.names, *(["scratch"] if attrs.scratch else [])]
    assert all(map(str.isidentifier, known)) and len({*known}) == len(known), f"{where} has the names {known}"
    assert isinstance(attrs.values, Mapping), f"{where} has no mapping of its variables"
    assert "types" not in attrs.values, f"{where} has a variable `types` of its own"
    assert all(type(size) is int and size >= 0 for size in (attrs.scratch, attrs.macs)), f"{where}: scratch and MACs"
    assert bool(attrs.scratch) <= bool(attrs.scratch_type), f"{where} has scratch without a type"
    places = (len(node.inputs), len(node.outputs))
    for pair in attrs.overwrites:
        assert all(0 <= one < most for one, most in zip(pair, places, strict=True)), f"{where} overwrites {pair}"


SPECIFICATION = Specification(TemplateKernel, takes_more=True, has_one_output=False, agree=_agree)
