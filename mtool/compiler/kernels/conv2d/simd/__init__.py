"""Convolutions for a computer, in vectors of floats."""

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.conv2d.geometry import Conv, own_in_place, pointwise_in_place, reads_ahead
from mtool.compiler.kernels.epilogues import EpilogueText, acc_type
from mtool.compiler.kernels.packing import filled_up, round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.simd import LANES, WORTH, has_float_sums, packed
from mtool.compiler.kernels.target import Target

# Convolutions for a computer: four pixels by sixteen channels, in vectors of floats.
#
# The inner loops: crt/include/mt_simd_columns.h.


HEADER = "mt_simd_columns.h"
PIXELS = 4


class Im2col(BaseSchedule):
    """The patches of four pixels are gathered as floats and multiplied with all channels, sixteen at a time.

    A 1x1 layer of floats is read where it lies.
    """

    name = "simd_columns"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """No groups, no dilation of columns; float32, or 8 bits whose sums are exact in float32."""
        conv = Conv.of(node, graph)
        return conv.group == 1 and conv.dilation[1] == 1 and has_float_sums(node, graph, target)

    def _gathers(self, node: Node, graph: Graph) -> bool:
        return not (Conv.of(node, graph).is_pointwise and graph.types[node.inputs[0]].dtype.is_float)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """The patches, unless the input has them, and the sums of four pixels."""
        conv = Conv.of(node, graph)
        gathered = conv.depth if self._gathers(node, graph) else 0
        return 4 * PIXELS * (gathered + round_up(conv.out_channels, LANES))

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if pointwise and not growing; a residual operand that is not its input."""
        return pointwise_in_place(node, graph)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """A third of an instruction a product, one a gathered element, 4 an output; and what it has to be worth."""
        conv = Conv.of(node, graph)
        pixels = conv.batch * round_up(conv.pixels, PIXELS)
        channels = round_up(conv.out_channels, LANES)
        return WORTH + pixels * (0.34 * conv.depth * channels + conv.depth + 4 * channels)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv = Conv.of(node, graph)
        epilogue, acc = EpilogueText(node, graph), acc_type(node, graph)
        body = template(
            "kernels/conv2d/simd/im2col.c.j2",
            conv=conv,
            gathers=self._gathers(node, graph),
            channels=round_up(conv.out_channels, LANES),
            x=graph.types[node.inputs[0]].dtype.c,
            acc=acc,
            tile=PIXELS,
            epilogue=epilogue,
        )
        filters = graph.constants[node.inputs[1]].reshape(conv.out_channels, -1)
        layout = f"packed for {HEADER}: {LANES} channels at a time, side by side for each input"
        return epilogue.kernel(body, packed(filters), "float", layout, headers=(HEADER,))


# Depthwise convolutions for a computer: a ring of input rows as floats, a row of outputs at a time.
#
# The inner loops: crt/include/mt_simd_taps.h.


TAPS_HEADER = "mt_simd_taps.h"


class Depthwise(BaseSchedule):
    """Depthwise: each input row becomes floats once, in a ring of as many rows as the kernel spans.

    A row of outputs is computed at a time, eight channels of four pixels in the inner loop.
    """

    name = "simd_taps"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Depthwise, one image, one output a channel; float32, or 8 bits whose sums are exact in float32."""
        conv = Conv.of(node, graph)
        shape = conv.is_depthwise and conv.batch == 1 and conv.out_channels == conv.channels
        return shape and has_float_sums(node, graph, target)

    def _ring(self, conv: Conv) -> tuple[int, int]:
        """Rows of the ring, and floats of each."""
        return (conv.kernel[0] - 1) * conv.dilation[0] + 1, conv.plane[1] * round_up(conv.channels, LANES)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """The ring, and the sums of a row."""
        conv = Conv.of(node, graph)
        rows, row = self._ring(conv)
        return 4 * (rows * row + conv.out_size[1] * round_up(conv.channels, LANES))

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if rows are read before they are written; a residual operand that is not its input."""
        conv = Conv.of(node, graph)
        return own_in_place(node, graph, possible=reads_ahead(conv, self._ring(conv)[0]))

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Half an instruction a product, one a copied element, 4 an output; and what it has to be worth."""
        conv = Conv.of(node, graph)
        channels = round_up(conv.channels, LANES)
        return WORTH + channels * (conv.pixels * (0.5 * conv.depth + 4) + conv.plane[0] * conv.plane[1])

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv = Conv.of(node, graph)
        epilogue, acc = EpilogueText(node, graph), acc_type(node, graph)
        rows, row = self._ring(conv)
        channels = round_up(conv.channels, LANES)
        body = template(
            "kernels/conv2d/simd/depthwise.c.j2",
            conv=conv,
            rows=rows,
            row=row,
            copied=min(conv.size[1], conv.plane[1] - conv.pad[1]),
            channels=channels,
            acc=acc,
            epilogue=epilogue,
        )
        taps = np.ascontiguousarray(graph.constants[node.inputs[1]].reshape(conv.channels, -1).T, np.float32)
        layout = f"packed for {TAPS_HEADER}: the channels of a tap a row"
        return epilogue.kernel(body, filled_up(taps, len(taps), channels), "float", layout, headers=(TAPS_HEADER,))


SCHEDULES = (Im2col(), Depthwise())
