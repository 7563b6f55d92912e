"""Convolutions for Cortex-M with a float32 FPU."""

import math
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import DIRECTION_MEANING, DIRECTIONS, Conv, Tile, Traversal, own_in_place
from mtool.compiler.kernels.epilogues import FloatEpilogue
from mtool.compiler.kernels.f32 import (
    LAYOUT,
    MOST,
    PRODUCT_MEANING,
    PRODUCTS,
    best_product,
    packed,
    stored_as,
    words_of,
)
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel, knob
from mtool.compiler.kernels.target import Target

# Convolutions of float32 for a Cortex-M's FPU: four pixels by four channels, or two by eight.
#
# The inner loops and the layout of the packed weights: crt/include/mt_f32_tile_*.h.


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


# Depthwise convolutions of float32 for a Cortex-M's FPU: several outputs of a plane at a time.


PLANE_HEADER = "mt_f32.h"
PLANE_BLOCK = 5  # outputs at most: more take longer code and hardly fewer loads
REGISTERS = 29  # of the FPU's 32; the others hold products on their way to a sum


def registers(traversal: Traversal) -> int:
    """Return the registers that taps, bias, sums and inputs take."""
    return math.prod(traversal.kernel) + 1 + traversal.block + len(traversal.block_inputs)


def cost(traversal: Traversal) -> float:
    """Return the instructions a channel: two a product, the loads, four an output; three a copied element."""
    each = (
        traversal.block * (2 * math.prod(traversal.kernel) + 4) + traversal.kernel[0] * len(traversal.block_inputs) + 6
    )
    return traversal.out_size[0] * (traversal.blocks * each + 8) + 3 * math.prod(traversal.copied)


def best_traversal(conv: Conv, direction: str = "") -> Traversal | None:
    """Return the traversal with the fewest instructions; None: the taps do not fit in the registers."""
    fitting = [
        traversal for traversal in Traversal.all(conv, direction, PLANE_BLOCK) if registers(traversal) <= REGISTERS
    ]
    return min(fitting, key=cost, default=None)


@dataclass(frozen=True)
class Depthwise(BaseSchedule):
    """Depthwise: a channel is copied with its padding into a plane; several outputs at a time slide over it.

    Products are added in the order of the portable loops. A channel has been read whole before any of it is written,
    and writes only its own elements: the output may take the input's storage.
    """

    name = "f32_plane"

    product: str = knob("", *PRODUCTS, meaning=PRODUCT_MEANING)
    direction: str = knob("", *DIRECTIONS, meaning=DIRECTION_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Depthwise, one image, one output a channel, float32, taps that fit in registers, nothing read afterwards."""
        conv, epilogue = Conv.of(node, graph), FloatEpilogue.of(node, graph)
        shape = conv.is_depthwise and conv.batch == 1 and conv.out_channels == conv.channels
        alone = epilogue is not None and not WithEpilogue.of(node).epilogue.operands()
        same = graph.types[node.outputs[0]].dtype is graph.types[node.inputs[0]].dtype
        return target.has_float_tiles and shape and alone and same and best_traversal(conv, self.direction) is not None

    def _traversal(self, node: Node, graph: Graph) -> Traversal:
        traversal = best_traversal(Conv.of(node, graph), self.direction)
        assert traversal is not None
        return traversal

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """One padded plane."""
        return 4 * math.prod(Conv.of(node, graph).plane)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if the output is no larger."""
        return (0,) if graph.types[node.inputs[0]].bytes >= graph.types[node.outputs[0]].bytes else ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """See above."""
        return Conv.of(node, graph).channels * cost(self._traversal(node, graph))

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue, traversal = Conv.of(node, graph), FloatEpilogue.of(node, graph), self._traversal(node, graph)
        assert epilogue is not None

        def result(acc: str, offset: str) -> str:
            if epilogue.rest is not None:
                return epilogue.rest_text(node, graph, acc, offset)
            return f"mt_f32_relu({acc})" if epilogue.relu else acc

        body = template(
            "kernels/conv2d/f32/depthwise_f32.c.j2",
            conv=conv,
            traversal=traversal,
            fused=(self.product or best_product(target)) == "fma",
            result=result,
        )
        taps = graph.constants[node.inputs[1]].reshape(conv.channels, *conv.kernel)
        weights = pack(taps.swapaxes(1, 2) if traversal.transposed else taps, graph.constants[node.inputs[2]])
        return epilogue.kernel(node, graph, body, weights, "a channel a row: bias, taps", PLANE_HEADER, "float")


def pack(taps: Array, bias: Array) -> Array:
    """Return float32 [C, 1 + taps]: a channel's bias, then its taps.

    Args:
        taps: float32 [C, slow, fast].
        bias: float32 [C].
    """
    return np.concatenate([bias[:, None], taps.reshape(taps.shape[0], -1)], axis=1).astype(np.float32)


SCHEDULES = (Im2col(), Depthwise())
