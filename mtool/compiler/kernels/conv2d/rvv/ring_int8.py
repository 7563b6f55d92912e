"""Convolutions of int8 for RISC-V vectors that gather no patches: windows are read where they lie, in a ring of rows.

The inner loops and the layout of the packed weights: crt/include/mt_rvv_tile_int8.h.
"""

from dataclasses import dataclass

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.in_place import own_in_place, reads_ahead
from mtool.compiler.kernels.conv2d.ring import Ring
from mtool.compiler.kernels.knobs import knob
from mtool.compiler.kernels.padding import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.rvv.epilogue import VectorEpilogue
from mtool.compiler.kernels.rvv.tiles import TILE_MEANING, TILES, VLEN, Tile, best
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target


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


SCHEDULE = Windows()
