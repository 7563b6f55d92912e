"""Convolutions in portable C."""

import math
from typing import Any

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.kernels.conv2d.geometry import Conv, plane_in_place, pointwise_in_place
from mtool.compiler.kernels.epilogues import EpilogueText, acc_type
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target, plain_product
from mtool.compiler.kernels.weighted_sum import is_widened, stored_weights, weight_offset

# Convolutions in portable C: two pixels by two channels.


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
        return _kernel(node, graph, "im2col")


# Depthwise convolutions in portable C: a channel's padded plane.


class Depthwise(BaseSchedule):
    """Depthwise: copy one channel with its padding into a contiguous plane, then slide over it.

    The copy makes the inner loops contiguous and lets the output take the input's storage.
    """

    name = "c99_plane"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Depthwise, with any multiplier, one image."""
        conv = Conv.of(node, graph)
        return conv.is_depthwise and conv.batch == 1

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """One padded plane."""
        return math.prod(Conv.of(node, graph).plane) * graph.types[node.inputs[0]].dtype.size

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if the output has the same shape."""
        return plane_in_place(node, graph)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Those of the products and half an instruction each, 4 a copied element, 1.5 a row of them, 14 an output."""
        conv = Conv.of(node, graph)
        outputs = conv.batch * conv.pixels * conv.out_channels
        return (
            outputs * ((2.0 + target.product_instructions) * conv.depth + 14)
            + (4.0 * conv.size[1] + 1.5) * conv.batch * conv.size[0] * conv.channels
        )

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv = Conv.of(node, graph)
        return _kernel(node, graph, "depthwise", plane=conv.plane, unrolled=math.prod(conv.kernel) <= 16)


def _kernel(node: Node, graph: Graph, method: str, **values: Any) -> Kernel:
    """Return the C of a method's template, which reads the weights as they are stored."""
    epilogue, weights = EpilogueText(node, graph), stored_weights(node, graph)
    x, acc = graph.types[node.inputs[0]].dtype.c, acc_type(node, graph)
    body = template(
        f"kernels/conv2d/c99/{method}.c.j2",
        conv=Conv.of(node, graph),
        x=x,
        acc=acc.c,
        w=DType.of(weights.dtype).c,
        offset=weight_offset(node, graph),
        float=acc.is_float,
        epilogue=epilogue,
        **values,
    )
    return epilogue.kernel(body, weights, x)


SCHEDULES = (Im2col(), Depthwise())
