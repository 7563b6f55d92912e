"""Convolutions of float32 for Helium: pixels by vectors of channels.

The inner loops and the layout of the packed weights: crt/include/mt_mve_tile_f32.h.
"""

import math
from dataclasses import dataclass

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.in_place import own_in_place
from mtool.compiler.kernels.epilogues.float32 import FloatEpilogue
from mtool.compiler.kernels.f32.stored import stored_as, words_of
from mtool.compiler.kernels.f32.weights import LAYOUT, MOST, packed
from mtool.compiler.kernels.knobs import knob
from mtool.compiler.kernels.padding import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target

HEADER = "mt_mve_tile_f32.h"

CHANNELS = {3: 8, 6: 4}  # that a tile of so many pixels has: six vectors of sums
TILE_COSTS = {3: (35, 29), 6: (33, 33)}  # instructions for four steps of k, and for the results


@dataclass(frozen=True)
class Im2col(BaseSchedule):
    """The patches of a few pixels are gathered and multiplied with all channels, a vector or two at a time.

    A 1x1 layer runs in place: forwards, or backwards if it grows.

    Of tiles that waste equally little that of three pixels is taken: it has more instructions, but they load half as
    many single floats, which nothing can be done beside.
    """

    name = "mve_f32_columns"

    pixels: int = knob(0, *CHANNELS, meaning="of a tile: 3 by eight channels or 6 by four; auto: what wastes less")

    def _pixels(self, conv: Conv) -> int:
        def products(pixels: int) -> int:
            return round_up(conv.pixels, pixels) * round_up(conv.out_channels, CHANNELS[pixels])

        return self.pixels or min(CHANNELS, key=products)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image, no groups, no dilation of columns, float32; no window beside the input."""
        conv = Conv.of(node, graph)
        shape = conv.group == 1 and conv.batch == 1 and conv.dilation[1] == 1
        reads_input = all(
            conv.pad[i] <= (conv.kernel[i] - 1) * conv.dilation[i]
            and (conv.out_size[i] - 1) * conv.stride[i] - conv.pad[i] < conv.size[i]
            for i in (0, 1)
        )
        return target.has_mve and shape and reads_input and FloatEpilogue.of(node, graph) is not None

    def _is_staged(self, node: Node, graph: Graph) -> bool:
        """Whether results go through scratch: for an epilogue, or because a tile has more than there are."""
        conv, epilogue = Conv.of(node, graph), FloatEpilogue.of(node, graph)
        pixels = self._pixels(conv)
        whole = conv.pixels % pixels == 0 and conv.out_channels % CHANNELS[pixels] == 0
        return (epilogue is not None and epilogue.rest is not None) or not whole

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """The columns, and results that are not stored directly."""
        conv = Conv.of(node, graph)
        pixels = self._pixels(conv)
        staged = round_up(conv.out_channels, CHANNELS[pixels]) if self._is_staged(node, graph) else 0
        return 4 * pixels * (round_up(conv.depth, 4) + staged)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if pixel by pixel; a residual operand that is not its input."""
        return own_in_place(node, graph, possible=Conv.of(node, graph).is_pointwise)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The tiles; three for a vector of a patch that is gathered, 8 for a row of it, 40 for all (5 if pointwise)."""
        conv = Conv.of(node, graph)
        pixels = self._pixels(conv)
        four, results = TILE_COSTS[pixels]
        groups = round_up(conv.out_channels, CHANNELS[pixels]) // CHANNELS[pixels]
        run = math.ceil(conv.kernel[1] * conv.channels / 4)
        gathering = conv.kernel[0] * (3 * run + 8) + (5 if conv.is_pointwise else 40)
        tile = groups * (four * round_up(conv.depth, 4) // 4 + results) + pixels * gathering + 25
        return float(math.ceil(conv.pixels / pixels) * tile)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue = Conv.of(node, graph), FloatEpilogue.of(node, graph)
        assert epilogue is not None
        pixels, stored = self._pixels(conv), stored_as(node, graph) or ""
        depth = "long_" if conv.depth > MOST else ""
        body = template(
            "kernels/conv2d/mve/im2col_f32.c.j2",
            conv=conv,
            depth=round_up(conv.depth, 4),
            pixels=pixels,
            function=f"mt_mve_f32_columns_{depth}{stored + '_' if stored else ''}{pixels}",
            filled=round_up(conv.out_channels, CHANNELS[pixels]),
            groups=round_up(conv.out_channels, CHANNELS[pixels]) // CHANNELS[pixels],
            staged=self._is_staged(node, graph),
            epilogue=epilogue,
            backward=conv.is_pointwise and conv.out_channels > conv.channels,
            rest=lambda acc, offset, channel: epilogue.rest_text(node, graph, acc, offset, channel),
        )
        filters = graph.constants[node.inputs[1]].reshape(conv.out_channels, -1)
        weights = packed(filters, graph.constants[node.inputs[2]], CHANNELS[pixels], stored)
        return epilogue.kernel(node, graph, body, weights, LAYOUT + words_of(stored), HEADER, "float")


SCHEDULE = Im2col()
