"""Depthwise convolutions of 8 bits for cores without SIMD: several outputs of a plane at a time."""

import math
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.code_price import price_of_code
from mtool.compiler.kernels.conv2d.geometry import DIRECTION_MEANING, DIRECTIONS, BlockTraversal, Conv
from mtool.compiler.kernels.conv2d.schedule import PortableSchedule
from mtool.compiler.kernels.epilogues import EpilogueText
from mtool.compiler.kernels.expressions import is_identity
from mtool.compiler.kernels.integer import EPILOGUE, POINTERS, is_narrow, reads_activations
from mtool.compiler.kernels.schedule import Kernel, knob
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weighted_sum import weight_offset

BLOCK = 6  # outputs at most: more take longer code and hardly fewer loads
HELD = 5  # the same where the taps stay in registers: nothing but inputs is loaded, and the code is longer


@dataclass(frozen=True)
class Depthwise(PortableSchedule):
    """A channel is copied with its padding into a plane; several outputs at a time slide over it.

    A channel has been read whole before any of it is written, and writes only its own elements: the output may take the
    input's storage.
    """

    name = "int_plane"
    core = "registers"

    direction: str = knob("", *DIRECTIONS, meaning=DIRECTION_MEANING)
    taps: str = knob(
        "",
        "held",
        "loaded",
        meaning="weights stay in registers, or are loaded for each block; auto: as many as there are",
    )
    block: int = knob(0, 1, 2, 3, 4, 6, meaning="outputs at a time at most; auto: as there are registers for")

    def fits(self, conv: Conv, epilogue: EpilogueText) -> bool:
        """Depthwise, one image, one output a channel, 8 bits by 8 bits; what is read afterwards lies at the element."""
        return conv.is_channelwise and is_narrow(epilogue.node, epilogue.graph) and _is_local(epilogue)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """What fits; on a core of 8 bits without a weights' offset."""
        return super().supports(node, graph, target) and not (target.is_8_bit and weight_offset(node, graph))

    def _holds(self, conv: Conv, target: Target) -> bool:
        fits = math.prod(conv.kernel) + 1 + 2 + POINTERS <= target.registers
        return self.taps == "held" or (self.taps == "" and fits)

    def _traversal(self, conv: Conv, epilogue: EpilogueText, target: Target) -> BlockTraversal:
        node, graph, held = epilogue.node, epilogue.graph, self._holds(conv, target)
        once, byte = reads_activations(node, graph), price_of_code(node, graph)
        fitting = [
            traversal
            for traversal in BlockTraversal.all(conv, self.direction, self.block or (HELD if held else BLOCK))
            if not (once and traversal.out_size[1] % traversal.block)
            and (self.block or traversal.block == 1 or _registers(traversal, held) <= target.registers)
        ]
        return min(
            fitting,
            key=lambda traversal: (
                conv.channels * _cost(traversal, held, target) + byte * _code_bytes(traversal, held, target)
            ),
        )

    def scratch(self, conv: Conv, epilogue: EpilogueText) -> int:
        """One padded plane."""
        return math.prod(conv.plane)

    def over_input(self, conv: Conv, epilogue: EpilogueText) -> bool:
        """If the output has the same shape."""
        return conv.keeps_shape

    def instructions(self, conv: Conv, epilogue: EpilogueText, target: Target) -> float:
        """See below."""
        return conv.channels * _cost(self._traversal(conv, epilogue, target), self._holds(conv, target), target)

    def kernel(self, conv: Conv, epilogue: EpilogueText, target: Target) -> Kernel:
        """Write the function."""
        traversal = self._traversal(conv, epilogue, target)
        taps = traversal.turned_taps(epilogue.stored_weights.reshape(conv.channels, *conv.kernel))
        return epilogue.kernel(
            "kernels/conv2d/integer/depthwise_int8.c.j2",
            np.ascontiguousarray(taps),
            epilogue.x.c,
            f"channels, kernel {'columns, rows' if traversal.transposed else 'rows, columns'}",
            epilogue.beside_halves(1),
            conv=conv,
            traversal=traversal,
            held=self._holds(conv, target),
            target=target,
        )


def _registers(traversal: BlockTraversal, held: bool) -> int:
    """Sums, taps, an input, what the loop needs besides."""
    return traversal.block + (math.prod(traversal.kernel) if held else traversal.kernel[1]) + 1 + POINTERS


def _row(traversal: BlockTraversal, held: bool, target: Target) -> int:
    """Instructions of a row of taps: products, loads, a loop's end."""
    products = traversal.block * traversal.kernel[1] * target.product_instructions
    return products + len(traversal.block_inputs) + (0 if held else traversal.kernel[1] + 4)


def _code_bytes(traversal: BlockTraversal, held: bool, target: Target) -> float:
    """Code of a block, about."""
    return 4 * _row(traversal, held, target) * (traversal.kernel[0] if held else 1) + 3 * EPILOGUE * traversal.block


def _cost(traversal: BlockTraversal, held: bool, target: Target) -> float:
    """Instructions a channel: blocks, 2.5 a copied element."""
    each = traversal.kernel[0] * _row(traversal, held, target) + EPILOGUE * traversal.block + 12
    return (
        traversal.out_size[0] * (traversal.blocks * each + 8)
        + 2.5 * math.prod(traversal.copied)
        + 3 * traversal.copied[0]
    )


def _is_local(epilogue: EpilogueText) -> bool:
    """Whether the epilogue reads nothing but its own elements, tables, and what belongs to the channel."""
    node, types = epilogue.node, epilogue.graph.types
    shape = types[node.outputs[0]].shape
    own = {
        axis
        for load in epilogue.expr.walk()
        if load.op == "load" and not is_identity(load, shape, types[node.inputs[load.value]].shape)
        for index in load.args
        for axis in index.walk()
        if axis.op == "axis"
    }
    return all(axis.value == 3 for axis in own)
