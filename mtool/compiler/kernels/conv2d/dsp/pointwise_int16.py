"""1x1 convolutions of int16 activations for SIMD32."""

import math

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.dsp.tiles_int16 import HEADER, Tiles, staged_results
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.in_place import own_in_place
from mtool.compiler.kernels.epilogues.sums import epilogue_of_int16
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Kernel
from mtool.compiler.kernels.target import Target


class Pointwise(Tiles):
    """1x1: three pixels stand side by side and are multiplied with all channels, two at a time. In place either way.

    A layer that grows runs backwards, so that its output may start where its input starts.
    """

    name = "dsp16_pointwise"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """1x1 of one image, int16 to int16, or sums of 32 bits."""
        conv = Conv.of(node, graph)
        shape = conv.is_pointwise and conv.group == 1 and conv.batch == 1
        return target.has_dsp and shape and self.takes(node, graph)

    def _order(self, conv: Conv) -> Array:
        return np.arange(conv.channels)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Three columns, and results that are not stored directly."""
        conv = Conv.of(node, graph)
        return 6 * self._padded(conv) + 2 * staged_results(conv, epilogue_of_int16(node, graph))

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, and a residual operand that is not its input."""
        return own_in_place(node, graph, possible=True)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The tiles, 6 to copy two elements of three pixels."""
        conv = Conv.of(node, graph)
        return self._tiles(node, graph) + math.ceil(conv.pixels / 3) * 3 * conv.channels

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, packed = Conv.of(node, graph), self.packed(node, graph)
        epilogue = packed.epilogue
        body = template(
            "kernels/conv2d/dsp/pointwise_int16.c.j2",
            conv=conv,
            function=packed.kind.function(packed.stem, self._unroll(conv.channels)),
            long=packed.kind.long,
            depth=self._padded(conv),
            epilogue=epilogue,
            staged=staged_results(conv, epilogue) > 0,
            backward=conv.out_channels > conv.channels,
            rest=lambda acc, offset, channel: epilogue.rest_text(node, graph, acc, offset, channel),
        )
        return epilogue.kernel(node, graph, body, packed.stream, packed.layout, HEADER, "int32_t")


SCHEDULE = Pointwise()
