"""Convolutions for RISC-V vectors."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.conv2d.geometry import Conv, pointwise_in_place
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule
from mtool.compiler.kernels.epilogues import Products
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.rvv import HEADER, TILE_MEANING, TILES, VLEN, Tile, VectorEpilogue, best, instructions
from mtool.compiler.kernels.schedule import Target, knob


@dataclass(frozen=True)
class Vectors(ConvSchedule[VectorEpilogue]):
    """The common part of the schedules: vectors are of output channels."""

    core = "has_rvv"
    has_ring = True
    forms = (VectorEpilogue,)

    tile: str = knob("", *TILES, meaning=TILE_MEANING)

    def _ring_bytes(self, conv: Conv) -> int:
        ring = conv.ring
        return round_up(ring.rows * ring.columns * conv.channels, 4)


class Im2col(Vectors):
    """Gather the input patches of a tile's pixels, which are then multiplied by the channels of a vector."""

    name = "rvv_columns"
    template = "kernels/conv2d/rvv/im2col_int8.c.j2"

    def fits(self, conv: Conv, epilogue: VectorEpilogue) -> bool:
        """One image, int8 to int8, fewer groups than channels."""
        return conv.batch == 1 and not conv.is_depthwise

    def _tile(self, conv: Conv, epilogue: VectorEpilogue) -> Tile:
        outputs = conv.out_channels // conv.group
        return TILES.get(self.tile) or best(conv.pixels, conv.depth, outputs, epilogue.suffix)

    def _pixels(self, conv: Conv, epilogue: VectorEpilogue) -> int:
        return min(self._tile(conv, epilogue).vectors, conv.pixels)

    def scratch(self, conv: Conv, epilogue: VectorEpilogue) -> int:
        """A tile's patches, and its results if something follows them."""
        staged = 0 if epilogue.rest is None else conv.out_channels // conv.group
        return self._pixels(conv, epilogue) * (conv.depth + staged)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if pointwise and not growing; a residual operand that is not its input."""
        return pointwise_in_place(node, graph)

    def instructions(self, conv: Conv, epilogue: VectorEpilogue, target: Target) -> float:
        """The tiles', 8 instructions for eight copied registers, 28 a row of a patch, 6 an output with what follows."""
        outputs = conv.out_channels // conv.group
        products = self._tile(conv, epilogue).cost(conv.pixels, conv.depth, outputs, epilogue.suffix)
        gathered = conv.depth / VLEN * 8 + (8 if conv.is_pointwise else 15 + 28 * conv.kernel[0])
        rest = 6 * outputs if epilogue.rest is not None else 0
        return conv.group * (products + conv.pixels * (gathered + rest))

    def products(self, conv: Conv, epilogue: VectorEpilogue, target: Target) -> Products:
        """All channels of a group together."""
        outputs = conv.out_channels // conv.group
        packed = [
            epilogue.of_channels(slice(g * outputs, (g + 1) * outputs)).packed(filters.T)
            for g, filters in enumerate(epilogue.weights.reshape(conv.group, outputs, -1))
        ]
        layout = epilogue.layout_of("input") + (", group by group" if conv.group > 1 else "")
        pair, function = epilogue.pair() if conv.group == 1 else None, self._tile(conv, epilogue).function
        return epilogue.products(np.concatenate(packed), layout, HEADER, function, pair)

    def values(self, conv: Conv, epilogue: VectorEpilogue, target: Target) -> dict[str, Any]:
        """The pixels of a tile, and the sum that follows, if there is a loop for it."""
        return {"pixels": self._pixels(conv, epilogue), "pair": epilogue.pair() if conv.group == 1 else None}


class Windows(Vectors):
    """Each row of input is copied once into a ring with its padding; a row of a window is one piece of it.

    Where rows are read before they are written, the output may take the input's storage.
    """

    name = "rvv_ring"
    template = "kernels/conv2d/rvv/ring_int8.c.j2"

    def fits(self, conv: Conv, epilogue: VectorEpilogue) -> bool:
        """One image, no groups, no dilation of columns, windows of more than a pixel, int8 to int8."""
        return conv.batch == 1 and conv.group == 1 and conv.dilation[1] == 1 and not conv.is_pointwise

    def _tile(self, conv: Conv, epilogue: VectorEpilogue) -> Tile:
        named = TILES.get(self.tile)
        return named or best(conv.out_size[1], conv.depth, conv.out_channels, epilogue.suffix, conv.kernel[0])

    def scratch(self, conv: Conv, epilogue: VectorEpilogue) -> int:
        """The ring, where the kernel's rows lie in it, and a row of results if something follows them."""
        staged = 0 if epilogue.rest is None else conv.out_size[1] * conv.out_channels
        return self._ring_bytes(conv) + 4 * conv.kernel[0] + staged

    def instructions(self, conv: Conv, epilogue: VectorEpilogue, target: Target) -> float:
        """The tiles', 40 instructions a row of outputs and what copies its inputs, 6 an output with what follows."""
        tile = self._tile(conv, epilogue)
        row = tile.cost(conv.out_size[1], conv.depth, conv.out_channels, epilogue.suffix, conv.kernel[0])
        copied = 30 + 8 * conv.ring.copied * conv.channels / VLEN
        after = 6 * conv.pixels * conv.out_channels if epilogue.rest is not None else 0
        return conv.out_size[0] * (row + 40 + 10 * conv.kernel[0]) + conv.size[0] * copied + after

    def products(self, conv: Conv, epilogue: VectorEpilogue, target: Target) -> Products:
        """All channels together."""
        packed, function = (
            epilogue.packed(epilogue.weights.reshape(conv.out_channels, -1).T),
            self._tile(conv, epilogue),
        )
        return epilogue.products(packed, epilogue.layout_of("input"), HEADER, function.function, epilogue.pair())

    def values(self, conv: Conv, epilogue: VectorEpilogue, target: Target) -> dict[str, Any]:
        """The ring, and the sum that follows, if there is a loop for it."""
        return {"ring_bytes": self._ring_bytes(conv), "pair": epilogue.pair()}


@dataclass(frozen=True)
class Depthwise(Vectors):
    """The channels of a vector at a time, for a few pixels; each row of input is copied once into a ring."""

    name = "rvv_taps"
    template = "kernels/conv2d/rvv/depthwise_int8.c.j2"
    over_operands = False

    tile: str = knob(
        "", *TILES, meaning="pixels of a tile by registers of a row of 16-bit weights; auto: by estimated instructions"
    )

    def fits(self, conv: Conv, epilogue: VectorEpilogue) -> bool:
        """One image, one output per channel, any kernel, stride and dilation, int8 to 8 bits."""
        return conv.is_channelwise and epilogue.stores_kind

    def _tile(self, conv: Conv, epilogue: VectorEpilogue) -> Tile:
        return TILES.get(self.tile) or min(TILES.values(), key=lambda tile: _cost(conv, tile, epilogue.suffix))

    def scratch(self, conv: Conv, epilogue: VectorEpilogue) -> int:
        """The ring, and where taps lie in it."""
        return self._ring_bytes(conv) + 4 * conv.depth

    def instructions(self, conv: Conv, epilogue: VectorEpilogue, target: Target) -> float:
        """The tiles', what copies the rows, 6 instructions an output that something follows."""
        copied = conv.size[0] * (30 + 8 * conv.ring.copied * conv.channels / VLEN)
        after = 6 * conv.pixels * conv.channels if epilogue.rest is not None else 0
        return _cost(conv, self._tile(conv, epilogue), epilogue.suffix) + copied + after

    def products(self, conv: Conv, epilogue: VectorEpilogue, target: Target) -> Products:
        """All channels together, some times."""
        together, tile = _together(conv), self._tile(conv, epilogue)
        taps = np.tile(epilogue.weights.reshape(conv.channels, -1).T, (1, together))
        layout = epilogue.layout_of("tap") + (f"; all {together} times" if together > 1 else "")
        function = f"mt_rvv_taps_{'wide' if tile.registers == 4 else 'tall'}"
        return epilogue.products(epilogue.repeated(together).packed(taps), layout, "mt_rvv_depthwise_int8.h", function)

    def values(self, conv: Conv, epilogue: VectorEpilogue, target: Target) -> dict[str, Any]:
        """The ring, and the pixels that are one."""
        return {"ring_bytes": self._ring_bytes(conv), "together": _together(conv)}


def _together(conv: Conv) -> int:
    """Return how many adjacent pixels in the ring are treated as one with more channels, if there are few channels."""
    fitting = VLEN // 4 // conv.channels
    return max(1, min(fitting, conv.out_size[1])) if conv.stride[1] == 1 else 1


def _cost(conv: Conv, tile: Tile, kind: str) -> float:
    """Instructions of a row: of a tap 8, and 4 a pixel."""
    together = _together(conv)
    strips, pixels = math.ceil(conv.channels * together / tile.lanes), math.ceil(conv.out_size[1] / together)
    strip = conv.depth * (8 + 4 * tile.vectors) + 50 + instructions(kind) * tile.vectors
    row = math.ceil(pixels / tile.vectors) * (strips * strip + 20 + 10 * tile.vectors)
    return conv.out_size[0] * (row + 40 + 8 * conv.depth)


SCHEDULES = (Im2col(), Depthwise(), Windows())
