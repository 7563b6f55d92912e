"""Convolutions of int8 for cores without SIMD: a product of 32 bits is that of two pixels.

The inner loop: crt/include/mt_int_pairs_int8.h.
"""

import math
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import DType
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.code_price import price_of_code
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.schedule import PatchSchedule
from mtool.compiler.kernels.epilogues import EpilogueText
from mtool.compiler.kernels.integer import COLUMNS_MEANING, RESULT, TileKnobs, Work, is_narrow, layout, pack
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.schedule import Kernel, knob
from mtool.compiler.kernels.target import Target

# Convolutions of 8 bits for cores without SIMD. See mtool/compiler/kernels/integer/__init__.py.


@dataclass(frozen=True)
class Im2col(TileKnobs, PatchSchedule):
    """Gather the input patches of some pixels, which are then multiplied with all output channels, some at a time."""

    name = "int_columns"
    core = "registers"

    columns: int = knob(0, 1, 2, 3, 4, meaning=COLUMNS_MEANING)

    def fits(self, conv: Conv, epilogue: EpilogueText) -> bool:
        """8 bits by 8 bits, and not as many groups as channels."""
        return is_narrow(epilogue.node, epilogue.graph) and not conv.is_depthwise

    def _work(self, conv: Conv, epilogue: EpilogueText) -> Work:
        return Work.of(epilogue.node, epilogue.graph, conv.pixels, conv.out_channels // conv.group, conv.depth)

    def scratch(self, conv: Conv, epilogue: EpilogueText) -> int:
        """As many patches as a tile has at most."""
        return min(self.columns or 2, conv.pixels) * conv.depth

    def instructions(self, conv: Conv, epilogue: EpilogueText, target: Target) -> float:
        """The tiles', 1.5 instructions a gathered element, 8 a row of a patch, 12 more an output."""
        work = self._work(conv, epilogue)
        products, rows = self.best(target, work).cost(target, work), 0 if conv.is_pointwise else conv.kernel[0]
        gathered = 1.5 * conv.depth + 8 * rows
        return conv.batch * conv.group * (products + conv.pixels * (gathered + RESULT * work.outputs))

    def kernel(self, conv: Conv, epilogue: EpilogueText, target: Target) -> Kernel:
        """Write the function."""
        tile = self.best(target, self._work(conv, epilogue))
        weights = pack(epilogue.stored_weights.reshape(conv.out_channels, -1), tile.channels, conv.group)
        ties = epilogue.beside_halves(tile.channels)
        return epilogue.kernel(
            "kernels/conv2d/integer/im2col_int8.c.j2", weights, epilogue.x.c, layout(tile.channels), ties,
            conv=conv, tile=tile, packed=weights.size, target=target,
        )  # fmt: skip


HEADER = "mt_int_pairs_int8.h"
PIXELS = 4
PAIR = (11, 24)  # instructions of two elements and four pixels, by those of a product that is added up
END = 4  # of a turn of the loop
CHANNEL = 56  # of a channel and four pixels, besides
MOST_BYTES = 1024  # of columns and patches: four times what others take
TURNS = (1, 2, 3, 4, 5, 6, 7, 8, 10)


@dataclass(frozen=True)
class Pairs(PatchSchedule):
    """Patches of four pixels become words of two, which are multiplied with all output channels, one at a time."""

    name = "int_pairs"
    core = "has_wide_registers"

    turn: int = knob(0, *TURNS, meaning="pairs of elements in one turn of the loop; auto: by instructions and code")

    def fits(self, conv: Conv, epilogue: EpilogueText) -> bool:
        """int8 by int8 in sums of 32 bits, columns of 1 KB at most; no two weights of -128 in a row."""
        int8 = is_narrow(epilogue.node, epilogue.graph) and epilogue.x is DType.INT8
        if not (int8 and not epilogue.offset and epilogue.acc is DType.INT32):
            return False
        if conv.is_depthwise or self.scratch(conv, epilogue) > MOST_BYTES:
            return False
        return _is_exact(epilogue.stored_weights.reshape(conv.out_channels, -1))

    def _turn(self, conv: Conv, epilogue: EpilogueText) -> int:
        if self.turn:
            return self.turn
        byte = price_of_code(epilogue.node, epilogue.graph)
        return min(TURNS, key=lambda turn: _products(conv, turn, PAIR[0]) + byte * 4 * PAIR[0] * turn)

    def _filled(self, conv: Conv, epilogue: EpilogueText) -> int:
        return round_up(conv.depth, 2 * self._turn(conv, epilogue))

    def scratch(self, conv: Conv, epilogue: EpilogueText) -> int:
        """The words of four pixels, and patches that are gathered."""
        direct = conv.is_pointwise and conv.group == 1
        return 8 * self._filled(conv, epilogue) + (0 if direct else PIXELS * conv.depth)

    def instructions(self, conv: Conv, epilogue: EpilogueText, target: Target) -> float:
        """The products', 2 an element that becomes part of a word, and what gathers patches."""
        patches = 0.0 if conv.is_pointwise and conv.group == 1 else 1.5 * conv.depth + 8 * conv.kernel[0]
        outputs = conv.out_channels // conv.group
        made = conv.pixels * (2 * conv.depth + patches + (RESULT - 6) * outputs)
        pair = PAIR[target.product_instructions - 1]
        return conv.batch * conv.group * (_products(conv, self._turn(conv, epilogue), pair) + made)

    def kernel(self, conv: Conv, epilogue: EpilogueText, target: Target) -> Kernel:
        """Write the function."""
        filled, rows = self._filled(conv, epilogue), epilogue.stored_weights.reshape(conv.out_channels, -1)
        return epilogue.kernel(
            "kernels/conv2d/integer/pairs_int8.c.j2",
            np.pad(rows, ((0, 0), (0, filled - rows.shape[1]))),
            "int32_t",
            "output channels, the elements of a patch, filled up",
            epilogue.beside_halves(1),
            (HEADER,),
            conv=conv,
            filled=filled,
            turn=self._turn(conv, epilogue),
            y=epilogue.graph.types[epilogue.node.outputs[0]].dtype.c,
        )


def _is_exact(rows: Array) -> bool:
    """Whether two products of each pixel fit 16 bits, [N, K]."""
    return not bool(((rows[:, :-1:2] == -128) & (rows[:, 1::2] == -128)).any())


def _products(conv: Conv, turn: int, pair: int) -> float:
    """Return instructions of a group's products: two elements a time, in turns of so many."""
    turns = -(-conv.depth // (2 * turn))
    each = turns * (pair * turn + END) + CHANNEL
    return math.ceil(conv.pixels / PIXELS) * (conv.out_channels // conv.group) * each
