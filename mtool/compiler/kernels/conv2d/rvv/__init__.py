"""Convolutions for RISC-V vectors."""

import math
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.kernels.conv2d.geometry import Conv, Ring, own_in_place, pointwise_in_place, reads_ahead
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.rvv import TILE_MEANING, TILES, VLEN, Tile, VectorEpilogue, best, instructions
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel, knob
from mtool.compiler.kernels.target import Target

# Convolutions of int8 for RISC-V vectors: patches stand side by side, vectors are of output channels.
#
# The inner loops and the layout of the packed weights: crt/include/mt_rvv_tile_int8.h.


HEADER = "mt_rvv_tile_int8.h"


@dataclass(frozen=True)
class Im2col(BaseSchedule):
    """Gather the input patches of a tile's pixels, which are then multiplied with as many channels as a vector has."""

    name = "rvv_columns"

    tile: str = knob("", *TILES, meaning=TILE_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image, int8 to int8, and not as many groups as channels."""
        conv = Conv.of(node, graph)
        shape = conv.batch == 1 and not conv.is_depthwise
        return target.has_rvv and shape and VectorEpilogue.of(node, graph) is not None

    def _tile(self, node: Node, graph: Graph) -> Tile:
        conv, epilogue = Conv.of(node, graph), VectorEpilogue.of(node, graph)
        kind = "" if epilogue is None else epilogue.kind
        return TILES.get(self.tile) or best(conv.pixels, conv.depth, conv.out_channels // conv.group, kind)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """A tile's patches, and its results if something follows them."""
        conv, epilogue = Conv.of(node, graph), VectorEpilogue.of(node, graph)
        pixels = min(self._tile(node, graph).vectors, conv.pixels)
        staged = 0 if epilogue is None or epilogue.rest is None else conv.out_channels // conv.group
        return pixels * (conv.depth + staged)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if pointwise and not growing; a residual operand that is not its input."""
        return pointwise_in_place(node, graph)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The tiles', 8 instructions for eight copied registers, 28 a row of a patch, 6 an output with what follows."""
        conv, epilogue = Conv.of(node, graph), VectorEpilogue.of(node, graph)
        assert epilogue is not None
        outputs = conv.out_channels // conv.group
        products = self._tile(node, graph).cost(conv.pixels, conv.depth, outputs, epilogue.kind)
        gathered = conv.depth / VLEN * 8 + (8 if conv.is_pointwise else 15 + 28 * conv.kernel[0])
        rest = 6 * outputs if epilogue.rest is not None else 0
        return conv.group * (products + conv.pixels * (gathered + rest))

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue = Conv.of(node, graph), VectorEpilogue.of(node, graph)
        assert epilogue is not None
        tile, outputs = self._tile(node, graph), conv.out_channels // conv.group
        filters = graph.constants[node.inputs[1]].reshape(conv.group, outputs, -1)
        packed = [
            epilogue.of_channels(slice(g * outputs, (g + 1) * outputs)).packed(filters[g].T) for g in range(conv.group)
        ]
        pair = epilogue.pair(node, graph) if conv.group == 1 else None
        body = template(
            "kernels/conv2d/rvv/im2col_int8.c.j2",
            conv=conv,
            x="int8_t",
            pixels=min(tile.vectors, conv.pixels),
            function=tile.function + epilogue.kind,
            stream=packed[0].size,
            epilogue=epilogue,
            rest=lambda acc, offset: epilogue.rest_text(node, graph, acc, offset),
            pair=pair,
            copy="mt_rvv_copy",
            fill_by="mt_rvv_fill",
        )
        layout = epilogue.layout_of("input") + (", group by group" if conv.group > 1 else "")
        headers = (HEADER, *(["mt_rvv_pair_int8.h"] if pair is not None else []))
        return epilogue.whole_kernel(node, graph, body, np.concatenate(packed), layout, headers)


# Convolutions of int8 for RISC-V vectors that gather no patches: windows are read where they lie, in a ring of rows.
#
# The inner loops and the layout of the packed weights: crt/include/mt_rvv_tile_int8.h.


@dataclass(frozen=True)
class Windows(BaseSchedule):
    """Each row of input is copied once into a ring with its padding; a row of a window is one piece of it.

    Rows are read before they are written, where that is so the output may take the input's storage.
    """

    name = "rvv_ring"

    tile: str = knob("", *TILES, meaning=TILE_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image, no groups, no dilation of columns, windows of more than a pixel, int8 to int8."""
        conv = Conv.of(node, graph)
        shape = conv.batch == 1 and conv.group == 1 and conv.dilation[1] == 1 and not conv.is_pointwise
        return target.has_rvv and shape and VectorEpilogue.of(node, graph) is not None

    def _tile(self, conv: Conv, kind: str) -> Tile:
        named = TILES.get(self.tile)
        return named or best(conv.out_size[1], conv.depth, conv.out_channels, kind, conv.kernel[0])

    def _ring_bytes(self, conv: Conv) -> int:
        ring = Ring.of(conv)
        return round_up(ring.rows * ring.columns * conv.channels, 4)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """The ring, where the kernel's rows lie in it, and a row of results if something follows them."""
        conv, epilogue = Conv.of(node, graph), VectorEpilogue.of(node, graph)
        staged = 0 if epilogue is None or epilogue.rest is None else conv.out_size[1] * conv.out_channels
        return self._ring_bytes(conv) + 4 * conv.kernel[0] + staged

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """A residual operand that is not its input; the input too, if rows are read before they are written."""
        conv = Conv.of(node, graph)
        return own_in_place(node, graph, possible=reads_ahead(conv, Ring.of(conv).rows))

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The tiles', 40 instructions a row of outputs and what copies its inputs, 6 an output with what follows."""
        conv, epilogue = Conv.of(node, graph), VectorEpilogue.of(node, graph)
        assert epilogue is not None
        tile = self._tile(conv, epilogue.kind)
        row = tile.cost(conv.out_size[1], conv.depth, conv.out_channels, epilogue.kind, conv.kernel[0])
        copied = 30 + 8 * Ring.of(conv).copied * conv.channels / VLEN
        after = 6 * conv.pixels * conv.out_channels if epilogue.rest is not None else 0
        return conv.out_size[0] * (row + 40 + 10 * conv.kernel[0]) + conv.size[0] * copied + after

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue = Conv.of(node, graph), VectorEpilogue.of(node, graph)
        assert epilogue is not None
        pair = epilogue.pair(node, graph)
        body = template(
            "kernels/conv2d/rvv/ring_int8.c.j2",
            conv=conv,
            ring=Ring.of(conv),
            ring_bytes=self._ring_bytes(conv),
            function=self._tile(conv, epilogue.kind).function + epilogue.kind,
            epilogue=epilogue,
            pair=pair,
            rest=lambda acc, offset: epilogue.rest_text(node, graph, acc, offset),
        )
        packed = epilogue.packed(graph.constants[node.inputs[1]].reshape(conv.out_channels, -1).T)
        headers = ("mt_rvv_tile_int8.h", *(["mt_rvv_pair_int8.h"] if pair is not None else []))
        return epilogue.whole_kernel(node, graph, body, packed, epilogue.layout_of("input"), headers)


# Depthwise convolutions of int8 with any kernel for RISC-V vectors, which are of channels; rows lie in a ring.
#
# The inner loops and the layout of the packed weights: crt/include/mt_rvv_depthwise_int8.h.


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


SCHEDULES = (Im2col(), Depthwise(), Windows())
