"""Convolutions for a computer, in vectors of floats."""

from typing import Any

import numpy as np

from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.schedule import PatchSchedule, PortableSchedule
from mtool.compiler.kernels.epilogues import EpilogueText, Products
from mtool.compiler.kernels.packing import filled_up, round_up
from mtool.compiler.kernels.simd import LANES, WORTH, has_float_sums, packed
from mtool.compiler.kernels.target import Target

HEADER = "mt_simd_columns.h"
PIXELS = 4


class Im2col(PatchSchedule):
    """The patches of four pixels are gathered as floats and multiplied by all channels, sixteen at a time.

    A 1x1 layer of floats is read in place.
    """

    name = "simd_columns"
    template = "kernels/conv2d/simd/im2col.c.j2"
    scratch_type = "float"
    core = "has_simd"

    def fits(self, conv: Conv, epilogue: EpilogueText) -> bool:
        """No groups, no dilation of columns; float32, or 8 bits whose sums are exact in float32."""
        return conv.group == 1 and conv.dilation[1] == 1 and has_float_sums(epilogue.node, epilogue.graph)

    def _gathers(self, conv: Conv, epilogue: EpilogueText) -> bool:
        return not (conv.is_pointwise and epilogue.x.is_float)

    def scratch(self, conv: Conv, epilogue: EpilogueText) -> int:
        """The patches, unless the input has them, and the sums of four pixels."""
        gathered = conv.depth if self._gathers(conv, epilogue) else 0
        return 4 * PIXELS * (gathered + round_up(conv.out_channels, LANES))

    def instructions(self, conv: Conv, epilogue: EpilogueText, target: Target) -> float:
        """A third of an instruction a product, one a gathered element, 4 an output; and the least saving."""
        pixels, channels = conv.batch * round_up(conv.pixels, PIXELS), round_up(conv.out_channels, LANES)
        return WORTH + pixels * (0.34 * conv.depth * channels + conv.depth + 4 * channels)

    def products(self, conv: Conv, epilogue: EpilogueText, target: Target) -> Products:
        """The channels of a vector together."""
        layout = f"packed for {HEADER}: {LANES} channels at a time, side by side for each input"
        return Products(packed(epilogue.weights.reshape(conv.out_channels, -1)), layout, HEADER)

    def values(self, conv: Conv, epilogue: EpilogueText, target: Target) -> dict[str, Any]:
        """Whether patches are gathered, the channels that are computed, the pixels of a tile."""
        channels = round_up(conv.out_channels, LANES)
        return {"gathers": self._gathers(conv, epilogue), "channels": channels, "tile": PIXELS}


TAPS_HEADER = "mt_simd_taps.h"


class Depthwise(PortableSchedule):
    """Depthwise: each input row becomes floats once, in a ring of the rows that the kernel spans.

    A row of outputs is computed at a time, eight channels of four pixels in the inner loop.
    """

    name = "simd_taps"
    template = "kernels/conv2d/simd/depthwise.c.j2"
    scratch_type = "float"
    core = "has_simd"
    has_ring = True

    def fits(self, conv: Conv, epilogue: EpilogueText) -> bool:
        """Depthwise, one image, one output per channel; float32, or 8 bits whose sums are exact in float32."""
        return conv.is_channelwise and has_float_sums(epilogue.node, epilogue.graph)

    def _row(self, conv: Conv) -> int:
        """Floats of a row of the ring."""
        return conv.plane[1] * round_up(conv.channels, LANES)

    def scratch(self, conv: Conv, epilogue: EpilogueText) -> int:
        """The ring, and the sums of a row."""
        return 4 * (conv.ring.rows * self._row(conv) + conv.out_size[1] * round_up(conv.channels, LANES))

    def instructions(self, conv: Conv, epilogue: EpilogueText, target: Target) -> float:
        """Half an instruction a product, one a copied element, 4 an output; and the least saving."""
        channels = round_up(conv.channels, LANES)
        return WORTH + channels * (conv.pixels * (0.5 * conv.depth + 4) + conv.plane[0] * conv.plane[1])

    def products(self, conv: Conv, epilogue: EpilogueText, target: Target) -> Products:
        """The channels together, padded to whole vectors."""
        taps = np.ascontiguousarray(epilogue.weights.reshape(conv.channels, -1).T, np.float32)
        weights = filled_up(taps, len(taps), round_up(conv.channels, LANES))
        return Products(weights, f"packed for {TAPS_HEADER}: the channels of a tap a row", TAPS_HEADER)

    def values(self, conv: Conv, epilogue: EpilogueText, target: Target) -> dict[str, Any]:
        """The floats of a row, and the channels that are computed."""
        return {"row": self._row(conv), "channels": round_up(conv.channels, LANES)}


SCHEDULES = (Im2col(), Depthwise())
