"""Convolutions for Cortex-M with a float32 FPU."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtool.compiler.ir import Array
from mtool.compiler.kernels import f32
from mtool.compiler.kernels.conv2d.geometry import DIRECTION_MEANING, DIRECTIONS, BlockTraversal, Conv, Tile
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule, FloatTiles
from mtool.compiler.kernels.epilogues import FloatEpilogue, Products, StoredEpilogue
from mtool.compiler.kernels.schedule import Target, knob

# Convolutions of float32 for a Cortex-M's FPU: four pixels by four channels, or two by eight.
#
# The inner loops and the layout of the packed weights: crt/include/mt_f32_tile_*.h.


TILES = ("4x4", "2x8")  # pixels by channels; the second where four pixels would leave columns empty
TILE_MEANING = "pixels x channels of the register tile; auto: 4x4, or 2x8 where that saves a tenth"
HEADERS = {"4x4": "mt_f32_tile_4x4.h", "2x8": "mt_f32_tile_2x8.h"}
FUNCTIONS = {"4x4": "mt_f32_columns", "2x8": "mt_f32_columns_2x8"}


@dataclass(frozen=True)
class Im2col(FloatTiles):
    """The patches of a tile's pixels are gathered side by side and multiplied by all channels, a tile's at a time.

    A 1x1 layer runs in place: forwards, or backwards if it grows.
    """

    name = "f32_columns"
    core = "has_float_tiles"
    forms = (StoredEpilogue,)
    tiles = TILES
    saving = 0.1
    template = "kernels/conv2d/f32/tiles.c.j2"
    apart = True

    product: str = knob("", *f32.PRODUCTS, meaning=f32.PRODUCT_MEANING)
    tile: str = knob("", *TILES, meaning=TILE_MEANING)

    def fits(self, conv: Conv, epilogue: FloatEpilogue) -> bool:
        """One image, no groups, no dilation of columns, float32; weights of float16 or int8 are widened."""
        return super().fits(conv, epilogue)

    def instructions(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> float:
        """2.2 instructions a multiply-accumulate (1.2 fused), 3 a gathered element, 3 an output.

        1.8 to widen a byte, once for a tile's pixels; 1 to widen a float16 does not count, for the flash that it saves.
        """
        tile = self.shape(conv)
        product = 2.2 if (self.product or f32.best_product(target)) == "muladd" else 1.2
        return self.cost_of(conv, tile, product + (1.8 / tile.pixels if epilogue.stored == "bytes" else 0))

    def cost_of(self, conv: Conv, tile: Tile, product: float = 1.2) -> float:
        """The comparison of tiles does not depend on how products are summed."""
        channels = tile.channel_steps(conv) * tile.channels
        return tile.columns(conv) * tile.pixels * (channels * (product * conv.depth + 3) + 3 * conv.depth)

    def products(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> Products:
        """The channels of a tile together, by how products are added."""
        tile, stored = self.shape(conv), epilogue.stored
        stem = FUNCTIONS[tile.name] + ("_long" if conv.depth > f32.MOST else "")
        function = epilogue.function(stem, self.product or f32.best_product(target))
        filters = epilogue.weights.reshape(conv.out_channels, -1)
        weights = f32.packed(filters, epilogue.bias_of_model, tile.channels, stored)
        return Products(weights, f32.LAYOUT + f32.words_of(stored), HEADERS[tile.name], function)

    def values(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> dict[str, Any]:
        """Whether the rest reads per-channel numbers."""
        return super().values(conv, epilogue, target) | {"by_channel": epilogue.weights.dtype == np.int8}


# Depthwise convolutions of float32 for a Cortex-M's FPU: several outputs of a plane at a time.


PLANE_BLOCK = 5  # the most outputs: more need longer code and save hardly any loads
REGISTERS = 29  # of the FPU's 32; the others hold products on their way to a sum


def cost(traversal: BlockTraversal) -> float:
    """Return the instructions a channel: two a product, the loads, four an output; three a copied element."""
    block = (
        traversal.block * (2 * math.prod(traversal.kernel) + 4) + traversal.kernel[0] * len(traversal.block_inputs) + 6
    )
    return traversal.out_size[0] * (traversal.blocks * block + 8) + 3 * math.prod(traversal.copied)


@dataclass(frozen=True)
class Depthwise(ConvSchedule[FloatEpilogue]):
    """Depthwise: a channel is copied with its padding into a plane; several outputs at a time slide over it.

    Products are added in the order of the portable loops. A channel is read completely before any of it is written,
    and writes only its own elements: the output may take the input's storage.
    """

    name = "f32_plane"
    template = "kernels/conv2d/f32/depthwise_f32.c.j2"
    core = "has_float_tiles"
    forms = (FloatEpilogue,)

    product: str = knob("", *f32.PRODUCTS, meaning=f32.PRODUCT_MEANING)
    direction: str = knob("", *DIRECTIONS, meaning=DIRECTION_MEANING)

    def fits(self, conv: Conv, epilogue: FloatEpilogue) -> bool:
        """Depthwise, one image, one output per channel, float32, taps fit in registers, no operands in the epilogue."""
        shape = conv.is_channelwise and epilogue.is_alone and epilogue.keeps_type
        return shape and self._traversals(conv) != []

    def _traversals(self, conv: Conv) -> list[BlockTraversal]:
        """Those whose taps, bias, sums and inputs fit in the registers."""
        taps, ways = math.prod(conv.kernel), BlockTraversal.all(conv, self.direction, PLANE_BLOCK)
        return [way for way in ways if taps + 1 + way.block + len(way.block_inputs) <= REGISTERS]

    def scratch(self, conv: Conv, epilogue: FloatEpilogue) -> int:
        """One padded plane."""
        return 4 * math.prod(conv.plane)

    def over_input(self, conv: Conv, epilogue: FloatEpilogue) -> bool:
        """If the output is not larger than the input."""
        return conv.shrinks

    def instructions(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> float:
        """See above."""
        return conv.channels * min(map(cost, self._traversals(conv)))

    def products(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> Products:
        """A single channel."""
        traversal = min(self._traversals(conv), key=cost)
        taps = traversal.turned_taps(epilogue.weights.reshape(conv.channels, *conv.kernel))
        return Products(pack(taps, epilogue.bias_of_model), "a channel a row: bias, taps", "mt_f32.h")

    def values(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> dict[str, Any]:
        """The traversal, and how results are stored."""

        def result(acc: str, offset: str) -> str:
            if epilogue.rest is not None:
                return epilogue.rest_text(acc, offset)
            return f"mt_f32_relu({acc})" if epilogue.relu else acc

        traversal, fused = min(self._traversals(conv), key=cost), (self.product or f32.best_product(target)) == "fma"
        return {"traversal": traversal, "fused": fused, "result": result}


def pack(taps: Array, bias: Array) -> Array:
    """Return float32 [C, 1 + taps]: a channel's bias, then its taps.

    Args:
        taps: float32 [C, slow, fast].
        bias: float32 [C].
    """
    return np.concatenate([bias[:, None], taps.reshape(taps.shape[0], -1)], axis=1).astype(np.float32)


SCHEDULES = (Im2col(), Depthwise())
