"""Dense layers whose results are sums of int16, for SIMD32: four outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemv_int16.h.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import numpy as np

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.scalar import Requantise
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.code_price import nodes_of_operator, price_of_code
from mtool.compiler.kernels.dense.gemv import Call, GroupedGemv
from mtool.compiler.kernels.dsp import (
    PACKING_MEANING,
    PAIRED,
    Kind,
    Layer,
    SharedFunction,
    go_in_pairs,
    pack_int16,
    radix_pairs,
    shared_scaling,
)
from mtool.compiler.kernels.epilogues import Int8Epilogue, Int16Epilogue, SumEpilogue
from mtool.compiler.kernels.exact_scaling import PLACES, ExactScaling, Together
from mtool.compiler.kernels.packing import filled_up, packed_by_rows, round_up
from mtool.compiler.kernels.scaling import FloatScaling, Scaling
from mtool.compiler.kernels.schedule import knob
from mtool.compiler.kernels.target import Target

# Dense layers of int8 for SIMD32: four or eight outputs at a time.
#
# The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemv_int8.h.


UNROLLS = (16, 8, 4)  # inputs an iteration: the loops that mt_dsp_gemv_int8.h has
LONGEST = (
    16  # the same of eight outputs, whose loop is entered where the rest is whole turns: half of a small cache of flash
)


def pack(weights: Array, bias: Array, scaling: Scaling, depth: int, group: int) -> Array:
    """Return the stream of mt_dsp_rows or mt_dsp_rows8, uint32 [N/group, group * (depth/4 + 2 or 3)].

    Args:
        weights: int8 [N, K], which `go_in_pairs`; N is filled up to a multiple of `group`, K to `depth`.
        bias: int32 [N], the input's zero point folded in.
        scaling: of N channels.
        depth: a multiple of 4.
        group: outputs at a time.
    """
    bias, scaling = scaling.without_dead_channels(weights, bias)
    count = round_up(weights.shape[0], group)
    rows = count // group
    words, heads, sign = radix_pairs(filled_up(weights, count, depth), np.pad(bias, (0, count - weights.shape[0])))
    words = words.reshape(rows, group // 2, depth // 4, 2).transpose(0, 2, 1, 3).reshape(rows, -1)
    tails = scaling.padded(count).paired(sign).reshape(rows, -1)
    return np.concatenate([heads.reshape(rows, group), words, tails], axis=1)


def best_unroll(depth: int) -> int:
    """Return the largest unrolling of mt_dsp_gemv_int8.h that divides the depth."""
    return next(unroll for unroll in UNROLLS if depth % unroll == 0)


@dataclass(frozen=True)
class Gemv(GroupedGemv):
    """Row by row of the input; four or eight outputs share each widened word of it."""

    name = "dsp_rows"
    element = DType.INT8
    header = "mt_dsp_gemv_int8.h"
    range_of = "kernels/dsp/tile_int8.c.j2"

    unroll: int = knob(0, *UNROLLS, meaning="inputs an iteration; auto: the most that divide their number, or 16")

    outputs: int = knob(0, 4, 8, meaning="outputs at a time; auto: with fewer instructions")

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """int8 to int8, weights that go in pairs."""
        int8 = graph.types[node.inputs[1]].dtype is DType.INT8 and self.epilogue(node, graph) is not None
        return target.has_dsp and int8 and go_in_pairs(node, graph)

    def for_core(self, node: Node, graph: Graph, target: Target) -> Self:
        """Four on a Cortex-M7: eight leave no registers for products that do not wait for one another."""
        return replace(self, outputs=4) if target.issues_pairs and not self.outputs else self

    def epilogue(self, node: Node, graph: Graph) -> Int8Epilogue | None:
        """Of int8."""
        return Int8Epilogue.of(node, graph)

    def group(self, node: Node, graph: Graph) -> int:
        """Four, or eight where that saves more than the outputs that nobody wants cost; only those of multipliers."""
        epilogue = self.epilogue(node, graph)
        if epilogue is None or epilogue.scale is None or not isinstance(epilogue.how, Requantise):
            return 4
        return self.outputs or min((4, 8), key=lambda group: self._cost(node, graph, group))

    def padded_depth(self, depth: int) -> int:
        """Whole words."""
        return round_up(depth, 4)

    def _unroll(self, depth: int, group: int) -> int:
        if group == 8:
            return self.unroll or LONGEST
        return min(self.unroll, best_unroll(depth)) or best_unroll(depth)

    def _cost(self, node: Node, graph: Graph, group: int) -> float:
        (rows, depth), outputs = graph.types[node.inputs[0]].shape, graph.types[node.outputs[0]].shape[1]
        depth = self.padded_depth(depth)
        products = (4 if group == 4 else 7.75) * depth + 3 * depth / self._unroll(depth, group)
        own_code = self._code(depth, group) * price_of_code(node, graph) / nodes_of_operator(node, graph)
        return rows * math.ceil(outputs / group) * (products + (42 if group == 4 else 50)) + own_code

    def _code(self, depth: int, group: int) -> float:
        """Bytes of the function."""
        each = 64 if group == 4 else 124
        return 300 + each * self._unroll(depth, group) / 4

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """4 instructions an input for four outputs, 7.75 for eight; 3 an iteration, 42 for four outputs, 50 for eight.

        And what the function's code is worth, shared among the layers.
        """
        return self._cost(node, graph, self.group(node, graph))

    def _layer(self, graph: Graph, node: Node) -> Layer:
        rows, group = graph.types[node.inputs[0]].shape[0], self.group(node, graph)
        depth = self.padded_depth(graph.types[node.inputs[0]].shape[1])
        tiles = rows * self.groups(node, graph) * group / 6
        return Layer(Together(group), tiles, self._code(depth, group), lambda other: self._shares(other, graph, group))

    def _shares(self, node: Node, graph: Graph, group: int) -> bool:
        dense = node.op == "dense" and self.epilogue(node, graph) is not None and go_in_pairs(node, graph)
        return dense and self.group(node, graph) == group

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """The function by the scaling and the unrolling; with a range, if the outputs have limits of their own."""
        epilogue, weights = self.epilogue(node, graph), graph.constants[node.inputs[1]]
        assert epilogue is not None
        depth, group = self.padded_depth(weights.shape[1]), self.group(node, graph)
        scaling, bias = shared_scaling(node, graph, partial(self._layer, graph))
        if group == 8 and isinstance(scaling, FloatScaling):
            scaling = ExactScaling.of_floats(scaling.scale, epilogue.how.zero_point, PLACES[0])
        packed = packed_by_rows(partial(pack, depth=depth, group=group), group, weights, bias, scaling)
        macro, stem = ("MT_DSP_ROWS", "mt_dsp_rows") if group == 4 else ("MT_DSP_ROWS8", "mt_dsp_rows8")
        unroll = self._unroll(depth, group)
        number = unroll if group == 4 else unroll // 4
        function = SharedFunction.of(macro, stem, scaling, epilogue, str(unroll), number)
        layout = f"{'four' if group == 4 else 'eight'} outputs a row, each two, {PAIRED}, {scaling.meaning} of each"
        return Call(function.name, packed, layout, "&range" if function.ranged else "", function.shared)


# Dense layers of int16 activations for SIMD32: four outputs at a time.
#
# The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemv_int16.h.


@dataclass(frozen=True)
class Rows(GroupedGemv):
    """What the schedules have in common whose results are of int16 and those whose results are the sums."""

    element = DType.INT16
    header = "mt_dsp_gemv_int16.h"
    storing: ClassVar[int]
    """Instructions for four outputs, beside their sums."""
    stem: ClassVar[str]  # of the runtime's functions

    unroll: int = knob(0, *UNROLLS, meaning="inputs an iteration; auto: the most that divide their number")
    packing: str = knob("", "halves", meaning=PACKING_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """int16, weights of int8 or int16."""
        return target.has_dsp and self._kind(node, graph) is not None and self.epilogue(node, graph) is not None

    def _kind(self, node: Node, graph: Graph) -> Kind | None:
        return Kind.of(graph.constants[node.inputs[1]], graph.constants[node.inputs[2]], self.packing)

    def group(self, node: Node, graph: Graph) -> int:
        """Four, or two with sums of 64 bits."""
        kind = self._kind(node, graph)
        return 2 if kind is not None and kind.long else 4

    def padded_depth(self, depth: int) -> int:
        """Whole iterations."""
        return round_up(depth, self.unroll or 4)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """4.75 instructions (3 of halves) an input for four outputs, 3 an iteration, and what storing those takes."""
        rows, depth = graph.types[node.inputs[0]].shape
        kind, outputs = self._kind(node, graph), graph.types[node.outputs[0]].shape[1]
        assert kind is not None
        depth = self.padded_depth(depth)
        if kind.long:
            return float(rows * outputs * (2 * depth + 60))
        each = (3 if kind.halves else 4.75) * depth + 3 * depth / (self.unroll or best_unroll(depth)) + self.storing
        return rows * self.groups(node, graph) * each

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """By the packing and the width of the sums."""
        epilogue, kind = self.epilogue(node, graph), self._kind(node, graph)
        assert epilogue is not None and kind is not None
        weights, bias = (graph.constants[node.inputs[n]] for n in (1, 2))
        filled, group = self.padded_depth(weights.shape[1]), self.group(node, graph)
        scales = [epilogue.scale] if isinstance(epilogue, Int16Epilogue) else []

        def rows(weights: Array, bias: Array, scale: Array | None = None) -> Array:
            return pack_int16(weights, bias, scale, filled, group, self.packing)

        stream = packed_by_rows(rows, group, weights, bias, *scales)
        function = kind.function(self.stem, self.unroll or best_unroll(filled))
        return Call(function, stream, kind.layout(group, scaled=bool(scales)), "&range" if scales else "")


class GemvInt16(Rows):
    """Row by row of the input; four outputs share each pair of it. Sums of 64 bits: two outputs."""

    name = "dsp16_rows"
    stem = "mt_dsp16_row"
    range_of = "kernels/dsp/tile_int16.c.j2"
    storing = 45

    def epilogue(self, node: Node, graph: Graph) -> Int16Epilogue | None:
        """Of int16."""
        return Int16Epilogue.of(node, graph)


class GemvSums(Rows):
    """Row by row of the input; four outputs share each pair of it. What follows a row of sums is any expression."""

    name = "dsp16_row_sums"
    stem = "mt_dsp16_row_sums"
    staged = DType.INT32
    storing = 60

    def epilogue(self, node: Node, graph: Graph) -> SumEpilogue | None:
        """Of sums."""
        return SumEpilogue.of(node, graph)


SCHEDULES = (Gemv(), GemvInt16(), GemvSums())
