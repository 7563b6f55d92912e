"""Dense layers of int8 for SIMD32: four outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemv_int8.h.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from mtool.ir import DType, Graph, Node
from mtool.ir.types import Array
from mtool.kernels.dsp.functions import SharedFunction
from mtool.kernels.dsp.weights_int8 import PAIRED, go_in_pairs, radix_pairs
from mtool.kernels.epilogues.integer import Int8Epilogue
from mtool.kernels.exact_scaling import Together
from mtool.kernels.knobs import knob
from mtool.kernels.packing import packed_by_rows
from mtool.kernels.padding import filled_up, round_up
from mtool.kernels.scaling import Scaling
from mtool.kernels.target import Target
from mtool.ops.dense.gemv import Call, GroupedGemv

UNROLLS = (16, 8, 4)  # inputs an iteration: the loops that mt_dsp_gemv_int8.h has


def pack(weights: Array, bias: Array, scaling: Scaling, depth: int) -> Array:
    """Return the stream of mt_dsp_rows, uint32 [N/4, K + 8 or 12].

    Args:
        weights: int8 [N, K], which `go_in_pairs`; N is filled up to a multiple of 4, K to `depth`.
        bias: int32 [N], the input's zero point folded in.
        scaling: of N channels.
        depth: a multiple of 4.
    """
    bias, scaling = scaling.without_dead_channels(weights, bias)
    count = round_up(weights.shape[0], 4)
    words, heads, sign = radix_pairs(filled_up(weights, count, depth), np.pad(bias, (0, count - weights.shape[0])))
    words = words.reshape(count // 4, 2, depth // 4, 2).transpose(0, 2, 1, 3).reshape(count // 4, depth)
    tails = scaling.padded(count).paired(sign).reshape(count // 4, -1)
    return np.concatenate([heads.reshape(count // 4, 4), words, tails], axis=1)


def best_unroll(depth: int) -> int:
    """Return the largest unrolling of mt_dsp_gemv_int8.h that divides the depth."""
    return next(unroll for unroll in UNROLLS if depth % unroll == 0)


@dataclass(frozen=True)
class Gemv(GroupedGemv):
    """Row by row of the input; four outputs share each widened word of it."""

    name = "dsp_rows"
    element = DType.INT8
    header = "mt_dsp_gemv_int8.h"
    range_of = "kernels/dsp/tile_int8.c.j2"

    unroll: int = knob(0, *UNROLLS, meaning="inputs an iteration; auto: the most that divide their number")

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """int8 to int8, weights that go in pairs."""
        int8 = graph.types[node.inputs[1]].dtype is DType.INT8 and self.epilogue(node, graph) is not None
        return target.has_dsp and int8 and go_in_pairs(node, graph)

    def epilogue(self, node: Node, graph: Graph) -> Int8Epilogue | None:
        """Of int8."""
        return Int8Epilogue.of(node, graph)

    def group(self, node: Node, graph: Graph) -> int:
        """Four."""
        return 4

    def padded_depth(self, depth: int) -> int:
        """Whole iterations."""
        return round_up(depth, self.unroll or 4)

    def _unroll(self, depth: int) -> int:
        return self.unroll or best_unroll(depth)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """4 instructions an input for four outputs, 3 an iteration, 42 for four outputs."""
        rows, depth = graph.types[node.inputs[0]].shape
        depth = self.padded_depth(depth)
        return rows * self.groups(node, graph) * (4 * depth + 3 * depth / self._unroll(depth) + 42)

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """The function by the scaling and the unrolling; with a range, unless the output has int8's."""
        epilogue, weights = self.epilogue(node, graph), graph.constants[node.inputs[1]]
        assert epilogue is not None
        depth = self.padded_depth(weights.shape[1])
        scaling, bias = epilogue.exact_scaling(weights, Together(4))
        packed = packed_by_rows(partial(pack, depth=depth), 4, weights, bias, scaling)
        function = SharedFunction.of("MT_DSP_ROWS", "mt_dsp_rows", scaling, epilogue, self._unroll(depth))
        layout = f"four outputs a row, each two, {PAIRED}, {scaling.meaning} of each"
        return Call(function.name, packed, layout, "" if epilogue.is_plain else "&range", function.shared)


SCHEDULE = Gemv()
