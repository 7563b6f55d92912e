"""Convolutions of int8 for cores without SIMD: a product of 32 bits is that of two pixels.

The inner loop: crt/include/mt_int_pairs_int8.h.
"""

import math
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.code_price import price_of_code
from mtool.compiler.kernels.conv2d.geometry import Conv, pointwise_in_place
from mtool.compiler.kernels.epilogues import EpilogueText, acc_type
from mtool.compiler.kernels.integer import (
    CHANNELS_MEANING,
    COLUMNS_MEANING,
    RESULT,
    UNROLL_MEANING,
    Tile,
    Work,
    is_narrow,
    layout,
    pack,
    reads_activations,
)
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel, knob
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weighted_sum import stored_weights, weight_offset

# Convolutions of 8 bits for cores without SIMD. See mtool/compiler/kernels/integer/__init__.py.


@dataclass(frozen=True)
class Im2col(BaseSchedule):
    """Gather the input patches of some pixels, which are then multiplied with all output channels, some at a time."""

    name = "int_columns"

    columns: int = knob(0, 1, 2, 3, 4, meaning=COLUMNS_MEANING)
    channels: int = knob(0, 1, 2, 4, 6, 8, meaning=CHANNELS_MEANING)
    unroll: int = knob(0, 1, 2, 4, meaning=UNROLL_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """8 bits by 8 bits, and not as many groups as channels."""
        return target.registers > 0 and is_narrow(node, graph) and not Conv.of(node, graph).is_depthwise

    def _work(self, node: Node, graph: Graph) -> Work:
        conv = Conv.of(node, graph)
        return Work(
            conv.pixels,
            conv.out_channels // conv.group,
            conv.depth,
            reads_activations(node, graph),
            price_of_code(node, graph),
        )

    def _tile(self, node: Node, graph: Graph, target: Target) -> Tile:
        return Tile.best(target, self._work(node, graph), self.columns, self.channels, self.unroll)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """As many patches as a tile has at most."""
        conv = Conv.of(node, graph)
        return min(self.columns or 2, conv.pixels) * conv.depth

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if pointwise and not growing; a residual operand that is not its input."""
        return pointwise_in_place(node, graph)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The tiles', 1.5 instructions a gathered element, 8 a row of a patch, 12 more an output."""
        conv = Conv.of(node, graph)
        products = self._tile(node, graph, target).cost(target, self._work(node, graph))
        rows, outputs = 0 if conv.is_pointwise else conv.kernel[0], conv.out_channels // conv.group
        return conv.batch * conv.group * (products + conv.pixels * (1.5 * conv.depth + 8 * rows + RESULT * outputs))

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue = Conv.of(node, graph), EpilogueText(node, graph)
        tile = self._tile(node, graph, target)
        weights = pack(stored_weights(node, graph).reshape(conv.out_channels, -1), tile.channels, conv.group)
        ties = epilogue.beside_halves(tile.channels)
        body = template(
            "kernels/conv2d/integer/im2col_int8.c.j2",
            ties=ties is not None,
            conv=conv,
            tile=tile,
            packed=weights.size,
            target=target,
            offset=weight_offset(node, graph),
            x=graph.types[node.inputs[0]].dtype.c,
            epilogue=epilogue,
        )
        return epilogue.kernel(body, weights, graph.types[node.inputs[0]].dtype.c, layout(tile.channels), ties)


HEADER = "mt_int_pairs_int8.h"
PIXELS = 4
PAIR = (11, 24)  # instructions of two elements and four pixels, by those of a product that is added up
END = 4  # of a turn of the loop
CHANNEL = 56  # of a channel and four pixels, besides
MOST_BYTES = 1024  # of columns and patches: four times what others take
TURNS = (1, 2, 3, 4, 5, 6, 7, 8, 10)


@dataclass(frozen=True)
class Pairs(BaseSchedule):
    """Patches of four pixels become words of two, which are multiplied with all output channels, one at a time."""

    name = "int_pairs"

    turn: int = knob(0, *TURNS, meaning="pairs of elements in one turn of the loop; auto: by instructions and code")

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """int8 by int8 in sums of 32 bits, columns of 1 KB at most; no two weights of -128 in a row."""
        conv = Conv.of(node, graph)
        int8 = is_narrow(node, graph) and graph.types[node.inputs[0]].dtype is DType.INT8
        wide = target.registers > 0 and not target.is_8_bit
        exact = int8 and not weight_offset(node, graph) and acc_type(node, graph) is DType.INT32
        if not (wide and exact) or conv.is_depthwise or self.scratch_bytes(node, graph) > MOST_BYTES:
            return False
        return _is_exact(_rows(node, graph))

    def _best(self, node: Node, graph: Graph) -> int:
        if self.turn:
            return self.turn
        conv, byte = Conv.of(node, graph), price_of_code(node, graph)
        return min(TURNS, key=lambda turn: _products(conv, turn, PAIR[0]) + byte * 4 * PAIR[0] * turn)

    def _filled(self, node: Node, graph: Graph) -> int:
        return round_up(Conv.of(node, graph).depth, 2 * self._best(node, graph))

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """The words of four pixels, and patches that are gathered."""
        conv = Conv.of(node, graph)
        direct = conv.is_pointwise and conv.group == 1
        return 8 * self._filled(node, graph) + (0 if direct else PIXELS * conv.depth)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if pointwise and not growing; a residual operand that is not its input."""
        return pointwise_in_place(node, graph)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The products', 2 an element that becomes part of a word, and what gathers patches."""
        conv = Conv.of(node, graph)
        patches = 0.0 if conv.is_pointwise and conv.group == 1 else 1.5 * conv.depth + 8 * conv.kernel[0]
        outputs = conv.out_channels // conv.group
        made = conv.pixels * (2 * conv.depth + patches + (RESULT - 6) * outputs)
        pair = PAIR[target.product_instructions - 1]
        return conv.batch * conv.group * (_products(conv, self._best(node, graph), pair) + made)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue, filled = Conv.of(node, graph), EpilogueText(node, graph), self._filled(node, graph)
        ties = epilogue.beside_halves(1)
        body = template(
            "kernels/conv2d/integer/pairs_int8.c.j2",
            conv=conv,
            filled=filled,
            turn=self._best(node, graph),
            ties=ties is not None,
            x=graph.types[node.inputs[0]].dtype.c,
            y=graph.types[node.outputs[0]].dtype.c,
            epilogue=epilogue,
        )
        rows = _rows(node, graph)
        weights = np.pad(rows, ((0, 0), (0, filled - rows.shape[1])))
        layout = "output channels, the elements of a patch, filled up"
        return epilogue.kernel(body, weights, "int32_t", layout, ties, headers=(HEADER,))


def _rows(node: Node, graph: Graph) -> Array:
    weights = stored_weights(node, graph)
    return weights.reshape(len(weights), -1)


def _is_exact(rows: Array) -> bool:
    """Whether two products of each pixel fit 16 bits, [N, K]."""
    return not bool(((rows[:, :-1:2] == -128) & (rows[:, 1::2] == -128)).any())


def _products(conv: Conv, turn: int, pair: int) -> float:
    """Return instructions of a group's products: two elements a time, in turns of so many."""
    turns = -(-conv.depth // (2 * turn))
    each = turns * (pair * turn + END) + CHANNEL
    return math.ceil(conv.pixels / PIXELS) * (conv.out_channels // conv.group) * each
