"""Dense layers whose results are sums of int16, for SIMD32: four outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemv_int16.h.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import numpy as np

from mtool.compiler.ir import Array, DType, Graph, Node
from mtool.compiler.ir.scalar import Requantize
from mtool.compiler.kernels import dsp
from mtool.compiler.kernels.code_price import nodes_of_operator, price_of_code
from mtool.compiler.kernels.dense.gemv import GroupedGemv, Matrix
from mtool.compiler.kernels.epilogues import (
    ByteSumEpilogue,
    Epilogue16,
    Int8Epilogue,
    Int16Epilogue,
    Products,
    SumEpilogue,
)
from mtool.compiler.kernels.exact_scaling import PLACES, ExactScaling, Together
from mtool.compiler.kernels.integer import EPILOGUE, RESULT
from mtool.compiler.kernels.packing import filled_up, packed_by_rows, round_up
from mtool.compiler.kernels.scaling import FloatScaling, Scaling
from mtool.compiler.kernels.schedule import Target, knob

# Dense layers of int8 for SIMD32: four or eight outputs at a time.
#
# The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemv_int8.h.


UNROLLS = (16, 8, 4)  # inputs an iteration: the loops that mt_dsp_gemv_int8.h has
PORTABLE = 300  # bytes of a tile of portable C, which they take the place of
LONGEST = (
    16  # the same of eight outputs, whose loop is entered where the rest is whole turns: half of a small cache of flash
)


def pack(weights: Array, bias: Array, scaling: Scaling, depth: int, group: int) -> Array:
    """Return the stream of mt_dsp_rows or mt_dsp_rows8, uint32 [N/group, group * (depth/4 + 2 or 3)].

    Args:
        weights: int8 [N, K], which `go_in_pairs`; N is padded to a multiple of `group`, K to `depth`.
        bias: int32 [N], the input's zero point folded in.
        scaling: of N channels.
        depth: a multiple of 4.
        group: outputs at a time.
    """
    bias, scaling = scaling.without_dead_channels(weights, bias)
    sums, sign = _sums(weights, bias, depth, group)
    return np.concatenate([sums, scaling.padded(2 * sign.size).paired(sign).reshape(len(sums), -1)], axis=1)


def _sums(weights: Array, bias: Array, depth: int, group: int) -> tuple[Array, Array]:
    """Return a stream without scales, uint32 [N/group, group * (depth/4 + 1)], and the signs of b [N/2]."""
    count = round_up(weights.shape[0], group)
    rows = count // group
    words, heads, sign = dsp.radix_pairs(filled_up(weights, count, depth), np.pad(bias, (0, count - weights.shape[0])))
    words = words.reshape(rows, group // 2, depth // 4, 2).transpose(0, 2, 1, 3).reshape(rows, -1)
    return np.concatenate([heads.reshape(rows, group), words], axis=1), sign


def best_unroll(depth: int) -> int:
    """Return the largest unrolling of mt_dsp_gemv_int8.h that divides the depth."""
    return next(unroll for unroll in UNROLLS if depth % unroll == 0)


@dataclass(frozen=True)
class Gemv(GroupedGemv[Int8Epilogue]):
    """Row by row of the input; four or eight outputs share each widened word of inputs."""

    name = "dsp_rows"
    core = "has_dsp"
    forms = (Int8Epilogue,)
    element = DType.INT8

    unroll: int = knob(0, *UNROLLS, meaning="inputs per iteration; auto: the largest divisor of their number, or 16")

    outputs: int = knob(0, 4, 8, meaning="outputs at a time; auto: the number with fewer instructions")

    def fits(self, size: Matrix, epilogue: Int8Epilogue) -> bool:
        """int8 to int8, weights that can be paired."""
        return bool(epilogue.weights.dtype == np.int8) and dsp.go_in_pairs(epilogue.node, epilogue.graph)

    def for_core(self, node: Node, graph: Graph, target: Target) -> Self:
        """Four on a Cortex-M7: eight leave no registers for products that do not wait for one another."""
        return replace(self, outputs=4) if target.issues_pairs and not self.outputs else self

    def group(self, size: Matrix, epilogue: Int8Epilogue) -> int:
        """Four, or eight if that saves more than unused outputs cost; eight only for scaling by multipliers."""
        if epilogue.scale is None or not isinstance(epilogue.how, Requantize):
            return 4
        return self.outputs or min((4, 8), key=lambda group: self._cost(size, epilogue, group))

    def _unroll(self, depth: int, group: int) -> int:
        if group == 8:
            return self.unroll or LONGEST
        return min(self.unroll, best_unroll(depth)) or best_unroll(depth)

    def _cost(self, size: Matrix, epilogue: Int8Epilogue, group: int) -> float:
        node, graph, depth = epilogue.node, epilogue.graph, self.filled(size)
        products = (4 if group == 4 else 7.75) * depth + 3 * depth / self._unroll(depth, group)
        own_code = self._code(depth, group) * price_of_code(node, graph) / nodes_of_operator(node, graph)
        return size.rows * math.ceil(size.outputs / group) * (products + (42 if group == 4 else 50)) + own_code

    def _code(self, depth: int, group: int) -> float:
        """Bytes of the function."""
        return 300 + (64 if group == 4 else 124) * self._unroll(depth, group) / 4

    def instructions(self, size: Matrix, epilogue: Int8Epilogue, target: Target) -> float:
        """4 instructions an input for four outputs, 7.75 for eight; 3 an iteration, 42 for four outputs, 50 for eight.

        And what the function's code is worth, shared among the layers.
        """
        return self._cost(size, epilogue, self.group(size, epilogue))

    def _layer(self, graph: Graph, node: Node) -> dsp.Layer | None:
        epilogue, size = self.epilogue(node, graph), self.sizes(node, graph)
        if epilogue is None or not dsp.go_in_pairs(node, graph):
            return None
        group = self.group(size, epilogue)
        tiles = size.rows * self.groups(size, epilogue) * group / 6
        return dsp.Layer(Together(group), tiles, self._code(self.filled(size), group))

    def products(self, size: Matrix, epilogue: Int8Epilogue, target: Target) -> Products:
        """The function by the scaling and the unrolling; with a range, if the outputs have limits."""
        depth, group = self.filled(size), self.group(size, epilogue)
        scaling, bias = dsp.shared_scaling(epilogue.node, epilogue.graph, partial(self._layer, epilogue.graph))
        if group == 8 and isinstance(scaling, FloatScaling):
            scaling = ExactScaling.of_floats(scaling.scale, epilogue.how.zero_point, PLACES[0])
        packed = packed_by_rows(partial(pack, depth=depth, group=group), group, epilogue.weights, bias, scaling)
        unroll, of_eight = self._unroll(depth, group), "8" if group == 8 else ""
        macro, stem, number = f"MT_DSP_ROWS{of_eight}", f"mt_dsp_rows{of_eight}", unroll // 4 if of_eight else unroll
        layout = f"{'eight' if of_eight else 'four'} outputs a row, each two, {dsp.PAIRED}, {scaling.meaning} of each"
        products = Products(packed, layout, "mt_dsp_gemv_int8.h")
        return dsp.with_function(products, macro, stem, scaling, epilogue, str(unroll), number)


@dataclass(frozen=True)
class GemvByteSums(GroupedGemv[ByteSumEpilogue]):
    """Row by row of the input; eight outputs share each widened word of inputs. Any expression can follow the sums."""

    name = "dsp_row_sums"
    core = "has_dsp"
    forms = (ByteSumEpilogue,)
    element = DType.INT8
    multiple = 1

    unroll: int = knob(0, *UNROLLS, meaning="the most inputs per iteration; auto: 16")

    def fits(self, size: Matrix, epilogue: ByteSumEpilogue) -> bool:
        """int8 weights of which a + 256 * b fits int16 for all pairs, and biases that fit beside their sums."""
        weights, bias = epilogue.weights, epilogue.bias_of_model[1::2].astype(np.int64)
        if weights.dtype != np.int8 or size.depth < 4 or (np.abs(bias) >= 1 << 22).any():
            return False
        return dsp.go_in_pairs(epilogue.node, epilogue.graph) and not dsp.have_signs(weights)

    def instructions(self, size: Matrix, epilogue: ByteSumEpilogue, target: Target) -> float:
        """7.75 instructions an input for eight outputs, 3 an iteration, 50; and 28 for each result."""
        depth, unroll = round_up(size.depth, 4), self.unroll or LONGEST
        each = 7.75 * depth + 3 * -(-depth // unroll) + 50
        node, graph = epilogue.node, epilogue.graph
        own_code = (31 * unroll - PORTABLE) * price_of_code(node, graph) / nodes_of_operator(node, graph)
        return size.rows * (self.groups(size, epilogue) * each + (EPILOGUE + RESULT + 8) * size.outputs) + own_code

    def products(self, size: Matrix, epilogue: ByteSumEpilogue, target: Target) -> Products:
        """By the unrolling."""

        def rows(weights: Array, bias: Array) -> Array:
            return _sums(weights, bias, round_up(size.depth, 4), self.together)[0]

        unroll, rest = self.unroll or LONGEST, size.depth % 4
        name = f"mt_dsp_row_sums_{unroll}{f'_{rest}' if rest else ''}"
        packed = packed_by_rows(rows, self.together, epilogue.weights, epilogue.bias_of_model)
        layout, shared = (
            f"eight outputs a row, each two, {dsp.PAIRED}",
            (f"MT_DSP_SUMS8({name}, {unroll // 4}, {rest})",),
        )
        return Products(packed, layout, "mt_dsp_gemv_int8.h", name, shared=shared)


# Dense layers of int16 activations for SIMD32: four outputs at a time.
#
# The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemv_int16.h.


@dataclass(frozen=True)
class Rows(GroupedGemv[Epilogue16]):
    """The common part of the schedules with int16 results and of those whose results are the sums.

    storing: instructions for four outputs, besides their sums.
    """

    core = "has_dsp_and_fpu"
    element = DType.INT16
    storing: ClassVar[int]

    unroll: int = knob(0, *UNROLLS, meaning="inputs per iteration; auto: the largest divisor of their number")
    packing: str = knob("", "halves", meaning=dsp.PACKING_MEANING)

    def fits(self, size: Matrix, epilogue: Epilogue16) -> bool:
        """int16, weights of int8 or int16."""
        return epilogue.weights.dtype in (np.int8, np.int16)

    def group(self, size: Matrix, epilogue: Epilogue16) -> int:
        """Four, or two with sums of 64 bits."""
        return 2 if dsp.Kind.of(epilogue, self.packing).long else 4

    def filled(self, size: Matrix) -> int:
        """Whole iterations."""
        return round_up(size.depth, self.unroll or 4)

    def instructions(self, size: Matrix, epilogue: Epilogue16, target: Target) -> float:
        """4.75 instructions (3 of halves) an input for four outputs, 3 an iteration, and what storing those takes."""
        kind, depth = dsp.Kind.of(epilogue, self.packing), self.filled(size)
        if kind.long:
            return float(size.rows * size.outputs * (2 * depth + 60))
        each = (3 if kind.halves else 4.75) * depth + 3 * depth / (self.unroll or best_unroll(depth)) + self.storing
        return size.rows * self.groups(size, epilogue) * each

    def products(self, size: Matrix, epilogue: Epilogue16, target: Target) -> Products:
        """By the packing and the width of the sums."""
        kind, depth, group = dsp.Kind.of(epilogue, self.packing), self.filled(size), self.group(size, epilogue)
        rows = partial(dsp.pack_int16, depth=depth, together=group, packing=self.packing)
        stream, scaled = packed_by_rows(rows, group, epilogue.weights, *epilogue.numbers), epilogue.is_scaled
        function = kind.function("mt_dsp16_row" if scaled else "mt_dsp16_row_sums", self.unroll or best_unroll(depth))
        layout, declared = kind.layout(group, scaled=scaled), epilogue.declared("mt_dsp_range", "MT_DSP16_RANGE")
        return Products(stream, layout, "mt_dsp_gemv_int16.h", function, declared, "&range" if scaled else "")


class GemvInt16(Rows):
    """Row by row of the input; four outputs share each pair of inputs. Sums of 64 bits: two outputs."""

    name = "dsp16_rows"
    forms = (Int16Epilogue,)
    storing = 45


class GemvSums(Rows):
    """Row by row of the input; four outputs share each pair of inputs. Any expression can follow a row of sums."""

    name = "dsp16_row_sums"
    forms = (SumEpilogue,)
    storing = 60


SCHEDULES = (Gemv(), GemvByteSums(), GemvInt16(), GemvSums())
