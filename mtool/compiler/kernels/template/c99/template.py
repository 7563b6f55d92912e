"""The schedule of kernels that are one C template."""

from pathlib import Path

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Argument, BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.template.node import TemplateKernel


class Template(BaseSchedule):
    """The template as it is."""

    name = "c99_template"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Everything."""
        return True

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """The scratch that the lowering asked for."""
        return TemplateKernel.of(node).scratch

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """What the lowering allows."""
        return tuple(place for place, output in self.overwrites(node, graph) if not output)

    def overwrites(self, node: Node, graph: Graph) -> tuple[tuple[int, int], ...]:
        """What the lowering allows."""
        return TemplateKernel.of(node).overwrites

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """There is no other."""
        return 0.0

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Render the template; `types` has the type of each input and output."""
        attrs = TemplateKernel.of(node)
        names = attrs.names
        inputs, outputs = names[: len(node.inputs)], names[len(node.inputs) :]
        types = {name: graph.types[v] for name, v in zip(names, [*node.inputs, *node.outputs], strict=True)}
        is_path = Path(attrs.template).is_absolute()
        body = template(
            attrs.template if is_path else f"kernels/template/c99/{attrs.template}.c.j2",
            types=types,
            joined=graph.is_sample,
            **attrs.values,
        )
        arguments, constants = [], {}
        for number, (name, value) in enumerate(zip(inputs, node.inputs, strict=True)):
            constant = value in graph.constants
            if constant:
                constants[name] = graph.constants[value]
            arguments.append(Argument(name, types[name].dtype.c, ("constant", name) if constant else ("input", number)))
        for number, name in enumerate(outputs):
            arguments.append(Argument(name, types[name].dtype.c, ("output", number)))
        if attrs.scratch:
            arguments.append(Argument("scratch", attrs.scratch_type, "scratch"))
        return Kernel(tuple(arguments), body, constants, attrs.math, attrs.headers)


SCHEDULE = Template()
