"""Convolutions of 8 bits for cores without SIMD, 3x3 with stride 1, by fewer products: Winograd's F(2x2, 3x3).

The inner loop and the layout of the packed weights: crt/include/mt_winograd.h.
"""

import numpy as np

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Blocks, Conv
from mtool.compiler.kernels.conv2d.schedule import PortableSchedule
from mtool.compiler.kernels.epilogues import EpilogueText
from mtool.compiler.kernels.integer import RESULT, is_narrow
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.schedule import Kernel
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.winograd import by_columns, products_fit, transformed

HEADER = "mt_winograd.h"
FOURS = 4  # output channels together, and input channels in one turn of the loop
REGISTERS = 13  # that a core has to have for eight sums
SUMS = 72 * 4  # bytes: MT_WINOGRAD_SUMS
LAYOUT = "four output channels at a time, side by side for each element and input channel of the transformed weights"


def pack(weights: Array) -> Array:
    """Return the weights [N, 3, 3, C] as mt_winograd_sums reads them, int16 [N/4, ...], both filled up."""
    count, depth = round_up(len(weights), FOURS), round_up(weights.shape[3], FOURS)
    filled = np.zeros((count, 4, 4, depth), np.int16)
    filled[: len(weights), ..., : weights.shape[3]] = by_columns(transformed(weights))
    return np.ascontiguousarray(filled.reshape(count // FOURS, FOURS, -1).swapaxes(1, 2)).reshape(count // FOURS, -1)


class Winograd(PortableSchedule):
    """Blocks of 2x4 outputs: their inputs are transformed, multiplied with all channels, four at a time, and back."""

    name = "int_winograd"
    core = "has_wide_registers"

    def fits(self, conv: Conv, epilogue: EpilogueText) -> bool:
        """8 bits by 8 bits, 3x3, stride 1, one group; four times a sum stays within 32 bits."""
        narrow = is_narrow(epilogue.node, epilogue.graph) and epilogue.acc is DType.INT32
        return narrow and Blocks.can_compute(conv) and products_fit(epilogue.node, epilogue.graph)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """What fits, where there are registers for eight sums."""
        return target.registers >= REGISTERS and super().supports(node, graph, target)

    def scratch(self, conv: Conv, epilogue: EpilogueText) -> int:
        """A block's columns; its sums, where a patch on the border is put together before."""
        return 64 * round_up(conv.channels, FOURS) + max(SUMS, Blocks(conv, conv.channels).patch)

    def grown_bytes(self, node: Node, graph: Graph) -> int:
        """16 words of 16 bits instead of 9 of 8 for each pair of channels, both filled up."""
        conv = Conv.of(node, graph)
        filled = round_up(conv.out_channels, FOURS) * round_up(conv.channels, FOURS)
        return 32 * filled - 9 * conv.channels * conv.out_channels

    def instructions(self, conv: Conv, epilogue: EpilogueText, target: Target) -> float:
        """By block: 160 for an input channel, 16 times eight products with what they load, 500 for what is left."""
        blocks, depth, fours = (
            Blocks(conv, conv.channels),
            round_up(conv.channels, FOURS),
            -(-conv.out_channels // FOURS),
        )
        products = 16 * depth * (6.5 + 8 * target.product_instructions)
        each = 160 * conv.channels + fours * (products + 500 + 8 * FOURS * RESULT)
        return blocks.count * each + blocks.gathered * 24 * (12 + conv.channels / 2)

    def kernel(self, conv: Conv, epilogue: EpilogueText, target: Target) -> Kernel:
        """Write the function."""
        weights, ties = pack(epilogue.graph.constants[epilogue.node.inputs[1]]), epilogue.beside_halves(1)
        return epilogue.kernel(
            "kernels/conv2d/integer/winograd_int8.c.j2", weights, "int16_t", LAYOUT, ties, (HEADER,),
            conv=conv, blocks=Blocks(conv, conv.channels), x_type=epilogue.x.c, depth=round_up(conv.channels, FOURS),
            biased=epilogue.has_bias,
        )  # fmt: skip
