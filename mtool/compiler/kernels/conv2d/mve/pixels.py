"""Convolutions of int8 for Helium whose patches are 64 bytes at most: a few channels, or a small kernel.

The inner loops and the layout of the packed weights: crt/include/mt_mve_pixels_int8.h.
"""

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv, own_in_place, shrinks_by_rows
from mtool.compiler.kernels.conv2d.mve.tiles_int8 import SCATTER_REACH
from mtool.compiler.kernels.epilogues import Int8Epilogue
from mtool.compiler.kernels.mve import INT8_LANES
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.scaling import FloatScaling
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target

# 1x1 convolutions of int8 for Helium with 64 inputs at most: vectors of two pixels stay in registers.
#
# The inner loops and the layout of the packed weights: crt/include/mt_mve_pixels_int8.h.


HEADER = "mt_mve_pixels_int8.h"
LAYOUT = "4 output channels a row: vectors of 16 weights by turns, biases, scales (the bits of floats)"
TOGETHER = 4  # output channels
MOST = 64  # bytes of a patch
EACH = (32, 44, 58, 72)  # instructions for two pixels and four channels, by the vectors of a patch


def pack(weights: Array, bias: Array, scale: Array) -> Array:
    """Return int8 [N/4, 64 * vectors + 32]: for each vector of a patch one of each channel, biases, scales.

    Args:
        weights: int8 [N, K], N a multiple of 4.
        bias: int32 [N], the input's zero point folded in.
        scale: float32 [N].
    """
    count, depth = weights.shape
    filled = np.pad(weights, ((0, 0), (0, round_up(depth, INT8_LANES) - depth)))
    tiles = count // TOGETHER
    blocks = filled.reshape(tiles, TOGETHER, -1, INT8_LANES).swapaxes(1, 2).reshape(tiles, -1)
    numbers = [np.ascontiguousarray(one).view(np.int8).reshape(tiles, -1) for one in (bias.astype(np.int32), scale)]
    return np.concatenate([blocks, *numbers], axis=1)


def takes(epilogue: Int8Epilogue | None, weights: Array, depth: int) -> bool:
    """Whether channels come in fours, patches are small, and results near."""
    count = len(weights)
    shape = depth <= MOST and count % TOGETHER == 0 and count < SCATTER_REACH and weights.dtype == np.int8
    return shape and epilogue is not None and epilogue.is_near(weights)


class Pixels(BaseSchedule):
    """1x1, up to 64 inputs: two pixels times all channels, four at a time. In place; if it grows, backwards.

    With a stride by rows, and not in place.
    """

    name = "mve_pixels"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """1x1, no padding, no groups, one image, int8 to the whole of int8 by floats."""
        conv, epilogue = Conv.of(node, graph), Int8Epilogue.of(node, graph)
        shape = conv.kernel == (1, 1) and conv.pad == (0, 0) and conv.group == 1 and conv.batch == 1
        if not (target.has_mve and shape and conv.meets_the_image and epilogue is not None and epilogue.rest is None):
            return False
        return takes(epilogue, graph.constants[node.inputs[1]], conv.depth)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Vectors of one of two pixels, if those of both are more than registers hold."""
        depth = round_up(Conv.of(node, graph).depth, INT8_LANES)
        return depth if depth > 2 * INT8_LANES else 0

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if none is left out: pixels are read before they are written."""
        return own_in_place(node, graph, possible=Conv.of(node, graph).is_pointwise)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """32 to 72 instructions for two pixels and four channels, 30 for two pixels."""
        conv = Conv.of(node, graph)
        each = EACH[round_up(conv.depth, INT8_LANES) // INT8_LANES - 1]
        calls = 0 if conv.is_pointwise else 40 * conv.out_size[0]
        return round_up(conv.pixels, 2) / 2 * (conv.out_channels / TOGETHER * each + 30) + calls

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue = Conv.of(node, graph), Int8Epilogue.of(node, graph)
        assert epilogue is not None and isinstance(epilogue.scaling, FloatScaling)
        filters = graph.constants[node.inputs[1]].reshape(conv.out_channels, -1)
        weights = pack(filters, epilogue.bias, epilogue.scaling.scale)
        k, n = conv.channels, conv.out_channels
        scratch = self.scratch_bytes(node, graph)
        body = template(
            "kernels/conv2d/mve/pointwise_pixels_int8.c.j2",
            conv=conv,
            k=k,
            n=n,
            whole=conv.is_pointwise,
            step=k * conv.stride[1],
            blocks=round_up(k, INT8_LANES) // INT8_LANES,
            epilogue=epilogue,
            sign=-1 if conv.is_pointwise and n > k else 1,
            staging="scratch" if scratch else "NULL",
        )
        return epilogue.kernel(node, graph, body, weights, LAYOUT, HEADER, "int8_t" if scratch else "")


TOGETHER_PIXELS = (8, 6, 4, 2)  # that are gathered before they are multiplied


class Columns(BaseSchedule):
    """k x k, patches of at most 64 bytes: gathered by rows of a patch, a vector each, padding by predication.

    Two pixels stay in registers, times all channels, four at a time. A row of results may be held back, so that the
    output can take the input's storage.
    """

    name = "mve_columns"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """No dilation, no groups, rows of a patch of 16 bytes at most, one image, int8 to all of int8 by floats."""
        conv, epilogue = Conv.of(node, graph), Int8Epilogue.of(node, graph)
        shape = conv.group == 1 and conv.batch == 1 and conv.dilation == (1, 1) and not conv.is_pointwise
        if not (target.has_mve and shape and conv.kernel[1] * conv.channels <= INT8_LANES):
            return False
        if epilogue is None or epilogue.rest is not None or not conv.meets_the_image:
            return False
        return takes(epilogue, graph.constants[node.inputs[1]], conv.depth)

    def _together(self, conv: Conv) -> int:
        """How many pixels are gathered: a part of a row, if that lets rows be held back."""
        return next((many for many in TOGETHER_PIXELS if shrinks_by_rows(conv, many)), TOGETHER_PIXELS[0])

    def _by_rows(self, conv: Conv) -> bool:
        return shrinks_by_rows(conv, self._together(conv))

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """The columns, what is written behind the last, and a row that is held back."""
        conv = Conv.of(node, graph)
        row = conv.out_size[1] * conv.out_channels if self._by_rows(conv) else 0
        return self._together(conv) * round_up(conv.depth, INT8_LANES) + INT8_LANES + row

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """The input, row by row."""
        return own_in_place(node, graph, possible=self._by_rows(Conv.of(node, graph)))

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """32 to 72 instructions for two pixels and four channels; 5 a row of a patch, 20 a pixel."""
        conv = Conv.of(node, graph)
        each = EACH[round_up(conv.depth, INT8_LANES) // INT8_LANES - 1]
        gathered = conv.pixels * (5 * conv.kernel[0] + 20)
        return gathered + round_up(conv.pixels, 2) / 2 * (conv.out_channels / TOGETHER * each + 20)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue = Conv.of(node, graph), Int8Epilogue.of(node, graph)
        assert epilogue is not None and isinstance(epilogue.scaling, FloatScaling)
        filters = graph.constants[node.inputs[1]].reshape(conv.out_channels, -1)
        padded = round_up(conv.depth, INT8_LANES)
        body = template(
            "kernels/conv2d/mve/im2col_columns_int8.c.j2",
            conv=conv,
            epilogue=epilogue,
            padded=padded,
            blocks=padded // INT8_LANES,
            together=self._together(conv),
            by_rows=self._by_rows(conv),
        )
        weights = pack(filters, epilogue.bias, epilogue.scaling.scale)
        return epilogue.kernel(node, graph, body, weights, LAYOUT, HEADER, "int8_t")
