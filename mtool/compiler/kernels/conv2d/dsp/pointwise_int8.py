"""1x1 convolutions of int8 for SIMD32."""

from collections.abc import Sequence

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.conv2d.dsp.tiles_int8 import HEADERS, SUFFIXES, Tiles, staged_results
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.in_place import own_in_place
from mtool.compiler.kernels.conv2d.tile import Tile
from mtool.compiler.kernels.epilogues.integer import Int8Epilogue
from mtool.compiler.kernels.padding import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Kernel
from mtool.compiler.kernels.target import Target


class Pointwise(Tiles):
    """1x1: a tile's pixels are widened to int16 and multiplied with all channels, two at a time. In place either way.

    A layer that grows runs backwards, so that its output may start where its input starts.
    """

    name = "dsp_pointwise"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """1x1 of one image, int8 to int8, more than one input.

        A pixel's last word may reach into the pixels behind it: of one channel they would have to be three.
        """
        conv = Conv.of(node, graph)
        shape = conv.is_pointwise and conv.group == 1 and conv.batch == 1 and conv.channels > 1
        return target.has_dsp and shape and self.takes(node, graph)

    def order(self, conv: Conv) -> Sequence[int]:
        """A pixel."""
        return range(conv.channels)

    def gathering(self, conv: Conv, tile: Tile) -> float:
        """14 to widen four elements of three pixels, 9 of two."""
        return tile.columns(conv) * (14 if tile.pixels == 3 else 9) * conv.channels / 4

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """A tile's columns, results that are not stored directly, the last pixels if they are not whole words."""
        conv = Conv.of(node, graph)
        tile = self._tile(conv)
        reach = (tile.pixels - 1) * conv.channels + round_up(conv.channels, 4)  # as far as words do
        staged = staged_results(conv, Int8Epilogue.of(node, graph), tile)
        return self._columns_bytes(conv) + staged + (reach if conv.channels % 4 else 0)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, and a residual operand that is not its input."""
        return own_in_place(node, graph, possible=True)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, packed = Conv.of(node, graph), self.packed(node, graph)
        epilogue = packed.epilogue
        tile = self._tile(conv)
        function = packed.function(self.loop(node, graph), SUFFIXES[tile.name])
        body = template(
            "kernels/conv2d/dsp/pointwise_int8.c.j2",
            conv=conv,
            tile=tile,
            function=function,
            depth=self._padded(conv),
            summed=round_up(len(self.order(conv)), 4) if conv.offset else 0,
            results=staged_results(conv, epilogue, tile),
            epilogue=epilogue,
            backward=conv.out_channels > conv.channels,
            rest=lambda acc, offset: epilogue.rest_text(node, graph, acc, offset),
        )
        return epilogue.kernel(
            node, graph, body, packed.stream, packed.layout, HEADERS[tile.name], "int32_t", function.shared
        )


SCHEDULE = Pointwise()
