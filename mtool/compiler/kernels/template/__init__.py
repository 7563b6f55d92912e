"""Kernels that are one C template each: sorting, scattering, running sums, recurrence.

Internal form `template`, with the attributes of mtool.compiler.kernels.template.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mtool.compiler.ir import Attributes, Graph, Node
from mtool.compiler.kernels.expressions import operand_arguments, operand_constants
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Argument, Kernel, KernelOp, Schedule, Target
from mtool.compiler.kernels.specification import Specification

# The nodes that are one C template each: `template`.


class TemplateKernel(Attributes):
    """A kernel that is one C template.

    template: the name of its file, without extension; or the absolute path of a file that is not mtool's.
    values: the template's variables, besides `target`, and `types`, the types of its inputs and outputs.
    names: the C names of the inputs, then of the outputs.
    label: the ONNX operator, in lower case.
    scratch: bytes of working memory.
    scratch_type: the C type of its elements.
    math: whether the C calls the mathematical library.
    macs: its multiply-accumulates.
    instructions: about how many it takes on a core with a feature, the first that fits; "": on any.
    headers: the runtime's headers that it needs besides mt_math.h.
    overwrites: pairs of an input and an output that may overwrite it, by their numbers.
    """

    template: str
    values: Mapping[str, Any]
    names: tuple[str, ...]
    label: str
    scratch: int = 0
    scratch_type: str = ""
    math: bool = False
    macs: int = 0
    instructions: tuple[tuple[str, float], ...] = ()
    headers: tuple[str, ...] = ()
    overwrites: tuple[tuple[int, int], ...] = ()


def _agree(node: Node, graph: Graph) -> None:
    attrs, where = TemplateKernel.of(node), f"the template of {node.name}"
    count = len(node.inputs) + len(node.outputs)
    assert len(attrs.names) == count, f"{where} has {len(attrs.names)} names of inputs and outputs; expected {count}"
    names = [*attrs.names, *(["scratch"] if attrs.scratch else [])]
    assert all(map(str.isidentifier, names)) and len({*names}) == len(names), f"{where} has the names {names}"
    assert isinstance(attrs.values, Mapping), f"{where} has no mapping of its variables"
    assert "types" not in attrs.values, f"{where} has a variable `types` of its own"
    assert all(type(size) is int and size >= 0 for size in (attrs.scratch, attrs.macs)), f"{where}: scratch and MACs"
    assert bool(attrs.scratch) <= bool(attrs.scratch_type), f"{where} has scratch without a type"
    places = (len(node.inputs), len(node.outputs))
    for pair in attrs.overwrites:
        assert all(0 <= place < most for place, most in zip(pair, places, strict=True)), f"{where} overwrites {pair}"


SPECIFICATION = Specification(TemplateKernel, takes_more=True, has_one_output=False, agree=_agree)


# The schedule of kernels that are one C template.


class Template(Schedule):
    """The template as it is."""

    name = "c99_template"

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Return the scratch that the lowering requests."""
        return TemplateKernel.of(node).scratch

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """What the lowering allows."""
        return tuple(place for place, output in self.overwrites(node, graph) if not output)

    def overwrites(self, node: Node, graph: Graph) -> tuple[tuple[int, int], ...]:
        """What the lowering allows."""
        return TemplateKernel.of(node).overwrites

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Estimate instructions; 0: unknown. There is no other schedule."""
        counts = TemplateKernel.of(node).instructions
        return next((count for core, count in counts if not core or target.has(core)), 0.0)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Render the template; `types` has the type of each input and output."""
        attrs = TemplateKernel.of(node)
        inputs, outputs = dict(enumerate(attrs.names[: len(node.inputs)])), attrs.names[len(node.inputs) :]
        types = {name: graph.types[v] for name, v in zip(attrs.names, [*node.inputs, *node.outputs], strict=True)}
        is_path = Path(attrs.template).is_absolute()
        body = template(
            attrs.template if is_path else f"kernels/template/c99/{attrs.template}.c.j2",
            types=types,
            joined=graph.is_sample,
            target=target,
            **attrs.values,
        )
        arguments = (
            *operand_arguments(node, graph, inputs),
            *(Argument(name, types[name].dtype.c, ("output", number)) for number, name in enumerate(outputs)),
            *([Argument("scratch", attrs.scratch_type, "scratch")] if attrs.scratch else []),
        )
        included = (name for name in attrs.headers if target.has_mve or not name.startswith("mt_mve_"))
        headers = (*included, *(["mt_float.h"] if is_path else []))  # a user's C may call any function of math.h
        return Kernel(arguments, body, operand_constants(node, graph, inputs), attrs.math, headers)


KERNEL = KernelOp(
    SPECIFICATION,
    lambda node, _: TemplateKernel.of(node).label,
    (Template(),),
    lambda node, _: TemplateKernel.of(node).macs,
)
