"""Convolutions of float32 for a Cortex-M's FPU: four pixels by four channels, or two by eight.

The inner loops and the layout of the packed weights: crt/include/mt_f32_tile_*.h.
"""

from dataclasses import dataclass

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.in_place import own_in_place
from mtool.compiler.kernels.conv2d.tile import Tile
from mtool.compiler.kernels.epilogues.float32 import FloatEpilogue
from mtool.compiler.kernels.f32.products import PRODUCT_MEANING, PRODUCTS, best_product
from mtool.compiler.kernels.f32.stored import stored_as, words_of
from mtool.compiler.kernels.f32.weights import LAYOUT, MOST, packed
from mtool.compiler.kernels.knobs import knob
from mtool.compiler.kernels.padding import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target

TILES = ("4x4", "2x8")  # pixels by channels; the second where four pixels would leave columns empty
TILE_MEANING = "pixels x channels of the register tile; auto: 4x4, or 2x8 where that saves a tenth"
HEADERS = {"4x4": "mt_f32_tile_4x4.h", "2x8": "mt_f32_tile_2x8.h"}
FUNCTIONS = {"4x4": "mt_f32_columns", "2x8": "mt_f32_columns_2x8"}


@dataclass(frozen=True)
class Im2col(BaseSchedule):
    """The patches of a tile's pixels are gathered side by side and multiplied with all channels, a tile's at a time.

    A 1x1 layer runs in place: forwards, or backwards if it grows.
    """

    name = "f32_columns"

    product: str = knob("", *PRODUCTS, meaning=PRODUCT_MEANING)
    tile: str = knob("", *TILES, meaning=TILE_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image, no groups, no dilation of columns, float32; weights of float16 or int8 are widened."""
        conv = Conv.of(node, graph)
        shape = conv.group == 1 and conv.batch == 1 and conv.dilation[1] == 1
        stored = target.has_float_tiles and shape and stored_as(node, graph) is not None
        return stored and FloatEpilogue.of_stored(node, graph) is not None

    def _stores_directly(self, node: Node, graph: Graph) -> bool:
        epilogue = FloatEpilogue.of_stored(node, graph)
        return epilogue is None or epilogue.rest is None

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """A tile's columns, and results that are not stored directly."""
        conv = Conv.of(node, graph)
        tile = self._tile(conv)
        stored_directly = self._stores_directly(node, graph) and conv.out_channels % tile.channels == 0
        staged = tile.pixels if not stored_directly else 1 if conv.pixels % tile.pixels else 0
        return 4 * (tile.pixels * round_up(conv.depth, 4) + staged * round_up(conv.out_channels, tile.channels))

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if pixel by pixel; a residual operand that is not its input."""
        return own_in_place(node, graph, possible=Conv.of(node, graph).is_pointwise)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """2.2 instructions a multiply-accumulate (1.2 fused), 3 a gathered element, 3 an output.

        1.8 to widen a byte, once for a tile's pixels; 1 to widen a float16 does not count, for the flash that it saves.
        """
        conv = Conv.of(node, graph)
        tile, stored = self._tile(conv), stored_as(node, graph)
        each = 2.2 if (self.product or best_product(target)) == "muladd" else 1.2
        return self._cost(conv, tile, each + (1.8 / tile.pixels if stored == "bytes" else 0))

    def _cost(self, conv: Conv, tile: Tile, each: float) -> float:
        channels = tile.channel_steps(conv) * tile.channels
        return tile.columns(conv) * tile.pixels * (channels * (each * conv.depth + 3) + 3 * conv.depth)

    def _tile(self, conv: Conv) -> Tile:
        """Which of them leaves less empty is the same however products are summed."""
        if self.tile:
            return Tile.named(self.tile)
        return Tile.chosen(*TILES, lambda tile: self._cost(conv, tile, 1.2), saving=0.1)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue = Conv.of(node, graph), FloatEpilogue.of_stored(node, graph)
        stored = stored_as(node, graph)
        assert stored is not None
        assert epilogue is not None
        tile, filters = self._tile(conv), graph.constants[node.inputs[1]].reshape(conv.out_channels, -1)
        body = template(
            "kernels/conv2d/f32/im2col_f32.c.j2",
            conv=conv,
            depth=round_up(conv.depth, 4),
            tile=tile,
            function=epilogue.function(
                FUNCTIONS[tile.name] + ("_long" if conv.depth > MOST else ""),
                self.product or best_product(target),
                stored,
            ),
            epilogue=epilogue,
            backward=conv.is_pointwise and conv.out_channels > conv.channels,
            by_channel=stored == "bytes",
            rest=lambda acc, offset, channel: epilogue.rest_text(node, graph, acc, offset, channel),
        )
        weights = packed(filters, graph.constants[node.inputs[2]], tile.channels, stored)
        layout = LAYOUT + words_of(stored)
        return epilogue.kernel(node, graph, body, weights, layout, HEADERS[tile.name], "float")


SCHEDULE = Im2col()
