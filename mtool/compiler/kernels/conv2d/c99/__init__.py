"""Convolutions in portable C."""

import math
from typing import Any

from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.schedule import PatchSchedule, PortableSchedule
from mtool.compiler.kernels.epilogues import EpilogueText
from mtool.compiler.kernels.target import Target, plain_product
from mtool.compiler.kernels.weighted_sum import is_widened


class Im2col(PatchSchedule):
    """Gather the input patches of two pixels, then two pixels by two channels at a time.

    Works for every kernel, stride, dilation and group. A pixel's patch is `depth` elements of scratch.
    """

    name = "c99_patch"
    template = "kernels/conv2d/c99/im2col.c.j2"

    def scratch(self, conv: Conv, epilogue: EpilogueText) -> int:
        """Two patches."""
        return 2 * conv.depth * epilogue.x.size

    def instructions(self, conv: Conv, epilogue: EpilogueText, target: Target) -> float:
        """Those of the products, 3 instructions a gathered element, 3.5 a row of a patch, 24 an output."""
        outputs = conv.batch * conv.pixels * conv.out_channels
        patches = conv.batch * conv.pixels * conv.group
        rows = 0 if conv.is_pointwise else conv.kernel[0]
        product = plain_product(target, widened=is_widened(epilogue.node, epilogue.graph))
        return outputs * (product * conv.depth + 24) + patches * (3.0 * conv.depth + 3.5 * rows)


class Depthwise(PortableSchedule):
    """Depthwise: copy one channel with its padding into a contiguous plane, then slide over it.

    The copy makes the inner loops contiguous and lets the output take the input's storage.
    """

    name = "c99_plane"
    template = "kernels/conv2d/c99/depthwise.c.j2"

    def fits(self, conv: Conv, epilogue: EpilogueText) -> bool:
        """Depthwise, with any multiplier, one image."""
        return conv.is_depthwise and conv.batch == 1

    def scratch(self, conv: Conv, epilogue: EpilogueText) -> int:
        """One padded plane."""
        return math.prod(conv.plane) * epilogue.x.size

    def over_input(self, conv: Conv, epilogue: EpilogueText) -> bool:
        """If the output has the same shape: a channel is read before it is written."""
        return conv.keeps_shape

    def instructions(self, conv: Conv, epilogue: EpilogueText, target: Target) -> float:
        """Those of the products and half an instruction each, 4 a copied element, 1.5 a row of them, 14 an output."""
        outputs = conv.pixels * conv.out_channels
        products = outputs * ((2.0 + target.product_instructions) * conv.depth + 14)
        return products + (4.0 * conv.size[1] + 1.5) * conv.size[0] * conv.channels

    def values(self, conv: Conv, epilogue: EpilogueText, target: Target) -> dict[str, Any]:
        """The plane, and whether the taps are written out."""
        return {"plane": conv.plane, "unrolled": math.prod(conv.kernel) <= 16}


SCHEDULES = (Im2col(), Depthwise())
