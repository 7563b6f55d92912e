"""The common part of schedules for sums of products with an epilogue: convolutions, dense layers, …"""

from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.epilogues import EpilogueText, Products, TileEpilogue
from mtool.compiler.kernels.schedule import Kernel, Schedule, Target

S = TypeVar("S")
E = TypeVar("E", bound=EpilogueText | TileEpilogue)


class SumSchedule(Schedule, Generic[S, E]):
    """A schedule that is defined by a layer's sizes and its epilogue, in a form that the schedule supports.

    core: the feature or property of a target that it needs; "": none.
    forms: the supported classes of epilogues; the first that matches a node is used.
    template: the path of its C template.
    scratch_type: the type of its scratch, in C; "": `kind` of the epilogue.
    sizes_name: the name of the sizes in templates.
    """

    core: ClassVar[str] = ""
    forms: ClassVar[tuple[Any, ...]]
    template: ClassVar[str]
    scratch_type: ClassVar[str] = ""
    sizes_name: ClassVar[str]

    def sizes(self, node: Node, graph: Graph) -> S:
        """Return the sizes of a node."""
        raise NotImplementedError

    def epilogue(self, node: Node, graph: Graph) -> E | None:
        """Return the epilogue of a node; None: it has another form."""
        epilogues = (graph.of_node(node, form, partial(form.of, node, graph)) for form in self.forms)
        return next((epilogue for epilogue in epilogues if epilogue is not None), None)

    def fits(self, sizes: S, epilogue: E) -> bool:
        """Everything."""
        return True

    def scratch(self, sizes: S, epilogue: E) -> int:
        """Return the bytes of working memory."""
        return 0

    def instructions(self, sizes: S, epilogue: E, target: Target) -> float:
        """Estimate instructions."""
        raise NotImplementedError

    def products(self, sizes: S, epilogue: E, target: Target) -> Products:
        """Return the weights as the template reads them: as they are stored."""
        return Products(epilogue.stored_weights)

    def values(self, sizes: S, epilogue: E, target: Target) -> dict[str, Any]:
        """Return the template's other variables."""
        return {}

    def kernel(self, sizes: S, epilogue: E, target: Target) -> Kernel:
        """Write the function."""
        products, values = self.products(sizes, epilogue, target), self.values(sizes, epilogue, target)
        scratch = (self.scratch_type or epilogue.kind.c) if self.scratch(sizes, epilogue) else ""
        return epilogue.kernel(self.template, products, scratch, target=target, **{self.sizes_name: sizes}, **values)

    def layer(self, node: Node, graph: Graph) -> tuple[S, E]:
        """Return the sizes and the epilogue of a node that it supports."""
        epilogue = self.epilogue(node, graph)
        assert epilogue is not None, f"{type(self).__name__} does not support {node.name}"
        return self.sizes(node, graph), epilogue

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Layers that fit, on a target with the instructions."""
        if self.core and not target.has(self.core):
            return False
        epilogue = self.epilogue(node, graph)
        return epilogue is not None and self.fits(self.sizes(node, graph), epilogue)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Return `scratch` for a node."""
        return self.scratch(*self.layer(node, graph))

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Return `instructions` for a node."""
        return self.instructions(*self.layer(node, graph), target)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        return self.kernel(*self.layer(node, graph), target)
