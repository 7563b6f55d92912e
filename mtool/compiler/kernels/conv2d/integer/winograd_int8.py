"""Convolutions of 8 bits for cores without SIMD, 3x3 with stride 1, by fewer products: Winograd's F(2x2, 3x3).

The inner loop and the layout of the packed weights: crt/include/mt_winograd.h.
"""

from dataclasses import replace

import numpy as np

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Blocks, Conv
from mtool.compiler.kernels.epilogues import EpilogueText, acc_type
from mtool.compiler.kernels.integer import RESULT, is_narrow
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
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


class Winograd(BaseSchedule):
    """Blocks of 2x4 outputs: their inputs are transformed, multiplied with all channels, four at a time, and back."""

    name = "int_winograd"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """8 bits by 8 bits, 3x3, stride 1, one group; four times a sum stays within 32 bits."""
        core = target.registers >= REGISTERS and not target.is_8_bit
        narrow = is_narrow(node, graph) and acc_type(node, graph) is DType.INT32
        return core and narrow and Blocks.can_compute(Conv.of(node, graph)) and products_fit(node, graph)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """A block's columns; its sums, where a patch on the border is put together before."""
        conv = Conv.of(node, graph)
        return 64 * round_up(conv.channels, FOURS) + max(SUMS, _blocks(conv).patch)

    def grown_bytes(self, node: Node, graph: Graph) -> int:
        """16 words of 16 bits instead of 9 of 8 for each pair of channels, both filled up."""
        conv = Conv.of(node, graph)
        if not Blocks.can_compute(conv):
            return 0
        return (
            32 * round_up(conv.out_channels, FOURS) * round_up(conv.channels, FOURS)
            - 9 * conv.channels * conv.out_channels
        )

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """By block: 160 for an input channel, 16 times eight products with what they load, 500 for what is left."""
        conv, blocks = Conv.of(node, graph), _blocks(Conv.of(node, graph))
        depth, fours = round_up(conv.channels, FOURS), -(-conv.out_channels // FOURS)
        products = 16 * depth * (6.5 + 8 * target.product_instructions)
        each = 160 * conv.channels + fours * (products + 500 + 8 * FOURS * RESULT)
        return blocks.count * each + blocks.gathered * 24 * (12 + conv.channels / 2)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue = Conv.of(node, graph), EpilogueText(node, graph)
        x_type, depth, ties = (
            graph.types[node.inputs[0]].dtype.c,
            round_up(conv.channels, FOURS),
            epilogue.beside_halves(1),
        )
        body = template(
            "kernels/conv2d/integer/winograd_int8.c.j2",
            conv=conv,
            blocks=_blocks(conv),
            x_type=x_type,
            depth=depth,
            biased=epilogue.has_bias,
            ties=ties is not None,
            epilogue=epilogue,
        )
        kernel = epilogue.kernel(body, pack(graph.constants[node.inputs[1]]), "int16_t", LAYOUT, ties)
        return replace(kernel, headers=(HEADER,))


def _blocks(conv: Conv) -> Blocks:
    return Blocks(conv, conv.channels)
