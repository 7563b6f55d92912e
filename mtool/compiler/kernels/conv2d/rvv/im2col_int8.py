"""Convolutions of int8 for RISC-V vectors: patches stand side by side, vectors are of output channels.

The inner loops and the layout of the packed weights: crt/include/mt_rvv_tile_int8.h.
"""

from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.in_place import pointwise_in_place
from mtool.compiler.kernels.knobs import knob
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.rvv.epilogue import VectorEpilogue
from mtool.compiler.kernels.rvv.tiles import TILE_MEANING, TILES, VLEN, Tile, best
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target

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


SCHEDULE = Im2col()
