"""Depthwise convolutions of float32 for Helium: a vector of channels, a few outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_mve_depthwise_f32.h.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import DType
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv, Ring, Tile, reads_ahead
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule
from mtool.compiler.kernels.conv2d.tiles import TileSchedule
from mtool.compiler.kernels.epilogues import FloatEpilogue, Products
from mtool.compiler.kernels.f32 import LAYOUT, MOST, packed, stored_as, words_of
from mtool.compiler.kernels.mve import F32_LANES
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.schedule import Kernel, knob
from mtool.compiler.kernels.target import Target

# Convolutions of float32 for Helium: pixels by vectors of channels.
#
# The inner loops and the layout of the packed weights: crt/include/mt_mve_tile_f32.h.


HEADER = "mt_mve_tile_f32.h"
CHANNELS = {3: 8, 6: 4}  # that a tile of so many pixels has: six vectors of sums
TILE_COSTS = {3: (35, 29), 6: (33, 33)}  # instructions for four steps of k, and for the results


@dataclass(frozen=True)
class Im2col(TileSchedule[FloatEpilogue]):
    """The patches of a few pixels are gathered and multiplied with all channels, a vector or two at a time.

    A 1x1 layer runs in place: forwards, or backwards if it grows.

    Of tiles that waste equally little that of three pixels is taken: it has more instructions, but they load half as
    many single floats, which nothing can be done beside.
    """

    name = "mve_f32_columns"
    core = "has_mve"
    forms = (FloatEpilogue,)
    template = "kernels/conv2d/mve/tiles_f32.c.j2"
    element = DType.FLOAT32
    scratch_type = "float"

    pixels: int = knob(0, *CHANNELS, meaning="of a tile: 3 by eight channels or 6 by four; auto: what wastes less")

    def fits(self, conv: Conv, epilogue: FloatEpilogue) -> bool:
        """One image, no groups, no dilation of columns, float32; no window beside the input."""
        return conv.group == 1 and conv.batch == 1 and conv.dilation[1] == 1 and conv.meets_the_image

    def is_pixelwise(self, conv: Conv) -> bool:
        """If 1x1."""
        return conv.is_pointwise

    def shape(self, conv: Conv) -> Tile:
        """That which wastes less."""

        def products(pixels: int) -> int:
            return round_up(conv.pixels, pixels) * round_up(conv.out_channels, CHANNELS[pixels])

        pixels = self.pixels or min(CHANNELS, key=products)
        return Tile(pixels, CHANNELS[pixels])

    def depth(self, conv: Conv) -> int:
        """Whole steps."""
        return round_up(conv.depth, 4)

    def instructions(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> float:
        """The tiles; three for a vector of a patch that is gathered, 8 for a row of it, 40 for all (5 if pointwise)."""
        tile = self.shape(conv)
        four, results = TILE_COSTS[tile.pixels]
        run = math.ceil(conv.kernel[1] * conv.channels / 4)
        gathering = conv.kernel[0] * (3 * run + 8) + (5 if conv.is_pointwise else 40)
        each = tile.channel_steps(conv) * (four * self.depth(conv) // 4 + results) + tile.pixels * gathering + 25
        return float(tile.columns(conv) * each)

    def products(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> Products:
        """The channels of a tile together; its last argument is the least that a result may be."""
        node, graph, tile = epilogue.node, epilogue.graph, self.shape(conv)
        stored, long = stored_as(node, graph) or "", "long_" if conv.depth > MOST else ""
        function = f"mt_mve_f32_columns_{long}{stored + '_' if stored else ''}{tile.pixels}"
        filters = epilogue.weights.reshape(conv.out_channels, -1)
        weights = packed(filters, graph.constants[node.inputs[2]], tile.channels, stored)
        return Products(weights, LAYOUT + words_of(stored), (HEADER,), function, last=epilogue.least)


TAPS_HEADER = "mt_mve_depthwise_f32.h"
OUTPUTS = (4, 3, 2, 1, 5, 6)  # at a time
REGISTERS = 8
REACH = 508 // 16  # vectors from a pointer that a load reaches
MOST_CODE = 320  # instructions: the taps are all written out
MOST_ROWS = 16  # that a ring may have


@dataclass(frozen=True, slots=True)
class Segment:
    """Taps of a row of the kernel whose weights are held in registers while the inputs pass by.

    `passing`: for each vector of input, how many columns from the first output's first tap it stands, what it is
    multiplied with: pairs of an output and a tap, the taps counted from the segment's first.
    """

    first: int
    taps: int
    passing: Mapping[int, tuple[tuple[int, int], ...]]

    @property
    def instructions(self) -> int:
        """Loads of weights and inputs, products."""
        return self.taps + len(self.passing) + sum(len(products) for products in self.passing.values())


def segments(conv: Conv, outputs: int) -> tuple[Segment, ...]:
    """Cut a row of the kernel into as few segments as the registers allow beside the sums and an input."""
    most = REGISTERS - 1 - outputs
    made = []
    for first in range(0, conv.kernel[1], most):
        taps = min(most, conv.kernel[1] - first)
        passing: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for output in range(outputs):
            for tap in range(taps):
                column = output * conv.stride[1] + (first + tap) * conv.dilation[1]
                passing[column].append((output, tap))
        made.append(Segment(first, taps, {column: tuple(passing[column]) for column in sorted(passing)}))
    return tuple(made)


def block_cost(conv: Conv, outputs: int) -> int:
    """Return the instructions of so many outputs side by side; 0 for none."""
    row = sum(segment.instructions for segment in segments(conv, outputs))
    return conv.kernel[0] * row + 3 * outputs + 3 if outputs else 0


def pack_taps(taps: Array, bias: Array) -> Array:
    """Return the stream of vectors, float32 [C/4, 1 + taps, 4]: biases, then a vector a tap; C is filled up.

    Args:
        taps: float32 [C, taps].
        bias: float32 [C].
    """
    columns = np.concatenate([bias[:, None], taps], axis=1)
    columns = np.pad(columns, ((0, -len(columns) % F32_LANES), (0, 0)))
    return np.ascontiguousarray(columns.reshape(-1, F32_LANES, columns.shape[1]).transpose(0, 2, 1), dtype=np.float32)


@dataclass(frozen=True)
class Depthwise(ConvSchedule[FloatEpilogue]):
    """Depthwise: four channels at a time, each row of input is copied once into a ring of as many as the kernel spans.

    Products are added in the order of the portable loops. The last lanes may be fewer than four.
    """

    name = "mve_f32_taps"
    core = "has_mve"
    forms = (FloatEpilogue,)

    outputs: int = knob(
        0, *OUTPUTS, meaning="side by side, that share inputs and weights; auto: as many as take fewest instructions"
    )

    def _outputs(self, conv: Conv) -> int:
        """Outputs at a time; 0: a load does not reach all of their inputs."""
        wide = conv.out_size[1]

        def cost(outputs: int) -> int:
            return wide // outputs * block_cost(conv, outputs) + block_cost(conv, wide % outputs)

        def reaches(outputs: int) -> bool:
            return (outputs - 1) * conv.stride[1] + (conv.kernel[1] - 1) * conv.dilation[1] <= REACH

        tried = (self.outputs,) if self.outputs else OUTPUTS
        return min((n for one in tried if reaches(n := min(one, wide))), key=cost, default=0)

    def fits(self, conv: Conv, epilogue: FloatEpilogue) -> bool:
        """Depthwise, one image, one output a channel, float32, not too many taps, nothing read afterwards."""
        if not (conv.is_channelwise and epilogue.is_alone and epilogue.keeps_type and Ring.of(conv).rows <= MOST_ROWS):
            return False
        outputs = self._outputs(conv)
        return outputs > 0 and block_cost(conv, outputs) + block_cost(conv, conv.out_size[1] % outputs) <= MOST_CODE

    def _pitch(self, conv: Conv) -> int:
        """Elements of a row of the ring."""
        return F32_LANES * Ring.of(conv).columns

    def scratch(self, conv: Conv, epilogue: FloatEpilogue) -> int:
        """The ring."""
        return 4 * Ring.of(conv).rows * self._pitch(conv)

    def over_input(self, conv: Conv, epilogue: FloatEpilogue) -> bool:
        """If rows are read before they are written."""
        return reads_ahead(conv, Ring.of(conv).rows)

    def instructions(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> float:
        """The blocks; 4 for a copied vector, 20 for its row, 24 for one of outputs; 6 for an element of an epilogue."""
        outputs = self._outputs(conv)
        whole, rest = divmod(conv.out_size[1], outputs)
        row = whole * block_cost(conv, outputs) + block_cost(conv, rest) + 24
        after = 6 * conv.pixels * conv.channels if epilogue.rest is not None else 0
        copying = conv.plane[0] * (4 * Ring.of(conv).copied + 20)
        return math.ceil(conv.channels / F32_LANES) * float(conv.out_size[0] * row + copying) + after

    def kernel(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> Kernel:
        """Write the function."""
        outputs, ring = self._outputs(conv), Ring.of(conv)
        taps, bias = epilogue.weights.reshape(conv.channels, -1), epilogue.graph.constants[epilogue.node.inputs[2]]
        layout = "of four channels together their biases, then each tap"
        return epilogue.kernel(
            "kernels/conv2d/mve/depthwise_f32.c.j2",
            Products(pack_taps(taps, bias), layout, (TAPS_HEADER,)),
            "float",
            conv=conv,
            outputs=outputs,
            segments=lambda outputs: segments(conv, outputs),
            most_taps=max(one.taps for n in (outputs, conv.out_size[1] % outputs) if n for one in segments(conv, n)),
            reach=REACH,
            copied=ring.copied,
            pitch=self._pitch(conv),
            span=ring.rows,
        )
