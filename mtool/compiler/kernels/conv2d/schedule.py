"""The common part of the schedules of convolutions."""

from typing import ClassVar, TypeVar

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.kernels.conv2d.geometry import Conv, pointwise_in_place
from mtool.compiler.kernels.epilogues import EpilogueText, TileEpilogue
from mtool.compiler.kernels.schedule import residual_operands
from mtool.compiler.kernels.sum_schedule import E, SumSchedule

T = TypeVar("T", bound=TileEpilogue)


class ConvSchedule(SumSchedule[Conv, E]):
    """A schedule that answers for the numbers of a convolution and its epilogue.

    over_operands: whether the output may take the storage of what the epilogue reads, element by element.
    """

    over_operands: ClassVar[bool] = True

    def sizes(self, node: Node, graph: Graph) -> Conv:
        """The numbers."""
        return Conv.of(node, graph)

    def over_input(self, conv: Conv, epilogue: E) -> bool:
        """Return whether the output may take the input's storage, if its elements are of the same size."""
        return False

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """The input if `over_input` says so and no epilogue reads it; the epilogue's operands."""
        x, y = graph.types[node.inputs[0]], graph.types[node.outputs[0]]
        alone = x.dtype.size == y.dtype.size and not WithEpilogue.of(node).epilogue.operands() & {0}
        own = (0,) if alone and self.over_input(*self.layer(node, graph)) else ()
        return (*own, *residual_operands(node, graph)) if self.over_operands else own


class PortableSchedule(ConvSchedule[EpilogueText]):
    """A schedule that writes the epilogue out around each result."""

    forms = (EpilogueText,)


class PatchSchedule(PortableSchedule):
    """One that gathers each pixel before it writes it."""

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if pointwise and not growing; a residual operand that is not its input."""
        return pointwise_in_place(node, graph)
