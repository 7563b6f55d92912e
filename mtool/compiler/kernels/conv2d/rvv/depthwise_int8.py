"""Depthwise convolutions of int8 with any kernel for RISC-V vectors, which are of channels; rows lie in a ring.

The inner loops and the layout of the packed weights: crt/include/mt_rvv_depthwise_int8.h.
"""

import math
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.in_place import reads_ahead
from mtool.compiler.kernels.conv2d.ring import Ring
from mtool.compiler.kernels.knobs import knob
from mtool.compiler.kernels.padding import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.rvv.epilogue import VectorEpilogue, instructions
from mtool.compiler.kernels.rvv.tiles import TILES, VLEN, Tile
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target


@dataclass(frozen=True)
class Depthwise(BaseSchedule):
    """As many channels at a time as a vector has, of some pixels; each row of input is copied once into a ring."""

    name = "rvv_taps"

    tile: str = knob(
        "", *TILES, meaning="pixels of a tile by registers of a row of 16-bit weights; auto: as the estimate says"
    )

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image, one output a channel, any kernel, stride and dilation, int8 to int8."""
        conv = Conv.of(node, graph)
        shape = conv.is_depthwise and conv.batch == 1 and conv.out_channels == conv.channels
        return target.has_rvv and shape and VectorEpilogue.of(node, graph) is not None

    def _tile(self, conv: Conv, kind: str) -> Tile:
        return TILES.get(self.tile) or min(TILES.values(), key=lambda tile: _cost(conv, tile, kind))

    def _ring_bytes(self, conv: Conv) -> int:
        ring = Ring.of(conv)
        return round_up(ring.rows * ring.columns * conv.channels, 4)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """The ring, and where taps lie in it."""
        conv = Conv.of(node, graph)
        return self._ring_bytes(conv) + 4 * conv.depth

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if rows are read before they are written."""
        conv = Conv.of(node, graph)
        alone = not WithEpilogue.of(node).epilogue.operands() & {0}
        return (0,) if alone and reads_ahead(conv, Ring.of(conv).rows) else ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The tiles', what copies the rows, 6 instructions an output that something follows."""
        conv, epilogue = Conv.of(node, graph), VectorEpilogue.of(node, graph)
        assert epilogue is not None
        copied = conv.size[0] * (30 + 8 * Ring.of(conv).copied * conv.channels / VLEN)
        after = 6 * conv.pixels * conv.channels if epilogue.rest is not None else 0
        return _cost(conv, self._tile(conv, epilogue.kind), epilogue.kind) + copied + after

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue, ring = Conv.of(node, graph), VectorEpilogue.of(node, graph), Ring.of(Conv.of(node, graph))
        assert epilogue is not None
        together, tile = _together(conv), self._tile(conv, epilogue.kind)
        taps = np.tile(graph.constants[node.inputs[1]].reshape(conv.channels, -1).T, (1, together))
        body = template(
            "kernels/conv2d/rvv/depthwise_int8.c.j2",
            conv=conv,
            ring=ring,
            ring_bytes=self._ring_bytes(conv),
            together=together,
            function=f"mt_rvv_taps_{'wide' if tile.registers == 4 else 'tall'}{epilogue.kind}",
            epilogue=epilogue,
            rest=lambda acc, offset: epilogue.rest_text(node, graph, acc, offset),
        )
        packed, header = epilogue.repeated(together).packed(taps), "mt_rvv_depthwise_int8.h"
        layout = epilogue.layout_of("tap") + (f"; all {together} times" if together > 1 else "")
        return epilogue.kernel(node, graph, body, packed, layout, header, "int8_t")


def _together(conv: Conv) -> int:
    """Return how many pixels, side by side in the ring, are one of so many times the channels: where those are few."""
    fitting = VLEN // 4 // conv.channels
    return max(1, min(fitting, conv.out_size[1])) if conv.stride[1] == 1 else 1


def _cost(conv: Conv, tile: Tile, kind: str) -> float:
    """Instructions of a row: of a tap 8, and 4 a pixel."""
    together = _together(conv)
    strips, pixels = math.ceil(conv.channels * together / tile.lanes), math.ceil(conv.out_size[1] / together)
    each = conv.depth * (8 + 4 * tile.vectors) + 50 + instructions(kind) * tile.vectors
    row = math.ceil(pixels / tile.vectors) * (strips * each + 20 + 10 * tile.vectors)
    return conv.out_size[0] * (row + 40 + 8 * conv.depth)


SCHEDULE = Depthwise()
