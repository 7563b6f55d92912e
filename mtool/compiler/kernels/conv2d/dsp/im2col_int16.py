"""Convolutions of int16 activations for SIMD32: patches become columns."""

import math

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.dsp.tiles_int16 import HEADER, Tiles, staged_results
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.epilogues.sums import epilogue_of_int16
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Kernel
from mtool.compiler.kernels.target import Target


class Im2col(Tiles):
    """k x k: the patches of three pixels are gathered into columns, multiplied with all channels, two at a time.

    Rows of a patch are copied by words inside the image, element by element on its border. Taps whose channels do not
    stand side by side (groups, dilations) are gathered first.
    """

    name = "dsp16_patch"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image, int16 to int16, or sums of 32 bits."""
        conv = Conv.of(node, graph)
        shape = conv.batch == 1 and not conv.is_depthwise
        return target.has_dsp and shape and self.takes(node, graph)

    def _by_taps(self, conv: Conv) -> bool:
        return conv.group > 1 or conv.dilation[1] > 1

    def _order(self, conv: Conv) -> Array:
        """Whole rows, each filled up to pairs; or all taps."""
        height, row = (1, conv.depth) if self._by_taps(conv) else (conv.kernel[0], conv.kernel[1] * conv.channels)
        order = np.pad(np.arange(height * row).reshape(height, row), ((0, 0), (0, row % 2)), constant_values=-1)
        return order.reshape(-1)

    def _gathered(self, conv: Conv) -> int:
        """Elements of a patch, or of a row of it, that are gathered before they become a column."""
        return conv.depth if self._by_taps(conv) else conv.kernel[1] * conv.channels

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Three columns, and what is gathered or not stored directly."""
        conv = Conv.of(node, graph)
        return 6 * self._padded(conv) + 2 * max(
            staged_results(conv, epilogue_of_int16(node, graph)), self._gathered(conv)
        )

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The tiles, 3 for two gathered elements, 20 a row or 12 a tap."""
        conv = Conv.of(node, graph)
        gathering = 1.5 * conv.depth + (20 * conv.kernel[0])
        if self._by_taps(conv):
            gathering += conv.depth + 12 * math.prod(conv.kernel)
        return self._tiles(node, graph) + conv.pixels * conv.group * gathering

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, packed = Conv.of(node, graph), self.packed(node, graph)
        epilogue = packed.epilogue
        body = template(
            "kernels/conv2d/dsp/im2col_int16.c.j2",
            conv=conv,
            by_taps=self._by_taps(conv),
            function=packed.kind.function(packed.stem, self._unroll(self._order(conv).size)),
            long=packed.kind.long,
            depth=self._padded(conv),
            stream=packed.stream.size // conv.group,
            epilogue=epilogue,
            rest=lambda acc, offset, channel: epilogue.rest_text(node, graph, acc, offset, channel),
        )
        return epilogue.kernel(node, graph, body, packed.stream, packed.layout, HEADER, "int32_t")


SCHEDULE = Im2col()
