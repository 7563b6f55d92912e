"""Convolutions in portable C: two pixels by two channels."""

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.in_place import pointwise_in_place
from mtool.compiler.kernels.epilogues.expression import EpilogueText, acc_type
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target, plain_product
from mtool.compiler.kernels.weight_offset import stored_weights, weight_offset
from mtool.compiler.kernels.weighted_sum import is_widened


class Im2col(BaseSchedule):
    """Gather the input patches of two pixels, then two pixels by two channels at a time.

    Works for every kernel, stride, dilation and group. A pixel's patch is `depth` elements of scratch.
    """

    name = "c99_patch"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Everything."""
        return True

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Two patches."""
        return 2 * Conv.of(node, graph).depth * graph.types[node.inputs[0]].dtype.size

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if pointwise and not growing; a residual operand that is not its input."""
        return pointwise_in_place(node, graph)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Those of the products, 3 instructions a gathered element, 3.5 a row of a patch, 24 an output."""
        conv = Conv.of(node, graph)
        outputs = conv.batch * conv.pixels * conv.out_channels
        patches = conv.batch * conv.pixels * conv.group
        rows = 0 if conv.is_pointwise else conv.kernel[0]
        each = plain_product(target, widened=is_widened(node, graph))
        return outputs * (each * conv.depth + 24) + patches * (3.0 * conv.depth + 3.5 * rows)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv = Conv.of(node, graph)
        epilogue, weights = EpilogueText(node, graph), stored_weights(node, graph)
        body = template(
            "kernels/conv2d/c99/im2col.c.j2",
            conv=conv,
            x=graph.types[node.inputs[0]].dtype.c,
            acc=acc_type(node, graph).c,
            w=DType.of(weights.dtype).c,
            offset=weight_offset(node, graph),
            float=acc_type(node, graph).is_float,
            epilogue=epilogue,
        )
        return epilogue.kernel(body, weights, graph.types[node.inputs[0]].dtype.c)


SCHEDULE = Im2col()
