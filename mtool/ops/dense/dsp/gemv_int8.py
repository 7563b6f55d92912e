"""Dense layers of int8 for SIMD32: four outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemv_int8.h.
"""

from dataclasses import dataclass

import numpy as np

from mtool.ir import DType, Graph, Node
from mtool.ir.types import Array
from mtool.kernels.dsp.weights_int8 import PAIRED, radix_pairs
from mtool.kernels.epilogues.integer import Int8Epilogue
from mtool.kernels.knobs import knob
from mtool.kernels.padding import round_up
from mtool.kernels.scaling import Scaling
from mtool.kernels.target import Target
from mtool.ops.dense.gemv import Call, GroupedGemv

UNROLLS = (16, 8, 4)  # inputs an iteration: the loops that mt_dsp_gemv_int8.h has


def pack(weights: Array, bias: Array, scaling: Scaling, depth: int) -> Array | None:
    """Return the stream of mt_dsp_rows, uint32 [N/4, K + 8 or 12]; None: the pairs can't be proved exact.

    Args:
        weights: int8 [N, K]; N is filled up to a multiple of 4, K to `depth`.
        bias: int32 [N], the input's zero point folded in.
        scaling: of N channels.
        depth: a multiple of 4.
    """
    bias, scaling = scaling.without_dead_channels(weights, bias)
    count = round_up(weights.shape[0], 4)
    more = count - weights.shape[0]
    pairs = radix_pairs(np.pad(weights, ((0, more), (0, depth - weights.shape[1]))), np.pad(bias, (0, more)))
    if pairs is None:
        return None
    words, heads, sign = pairs
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
        """int8 to int8, provable weights."""
        return target.has_dsp and self._packed(node, graph) is not None

    def epilogue(self, node: Node, graph: Graph) -> Int8Epilogue | None:
        """Of int8."""
        return Int8Epilogue.of(node, graph)

    def group(self, node: Node, graph: Graph) -> int:
        """Four."""
        return 4

    def padded_depth(self, depth: int) -> int:
        """Whole iterations."""
        return round_up(depth, self.unroll or 4)

    def _packed(self, node: Node, graph: Graph) -> Array | None:
        epilogue, weights = self.epilogue(node, graph), graph.constants[node.inputs[1]]
        if epilogue is None or weights.dtype != np.int8:
            return None
        return pack(weights, epilogue.bias, epilogue.scaling, self.padded_depth(weights.shape[1]))

    def _unroll(self, depth: int) -> int:
        return self.unroll or best_unroll(depth)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """4 instructions an input for four outputs, 3 an iteration, 42 for four outputs."""
        rows, depth = graph.types[node.inputs[0]].shape
        depth = self.padded_depth(depth)
        return rows * self.groups(node, graph) * (4 * depth + 3 * depth / self._unroll(depth) + 42)

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """A range of its own, if the output has one."""
        epilogue, weights = self.epilogue(node, graph), self._packed(node, graph)
        assert epilogue is not None and weights is not None
        unroll = self._unroll(self.padded_depth(graph.types[node.inputs[0]].shape[1]))
        function = f"mt_dsp_rows{epilogue.scaling.kind}_{unroll}"
        layout = f"four outputs a row, each two, {PAIRED}, {epilogue.scaling.meaning} of each"
        if epilogue.is_plain:
            return Call(function, weights, layout)
        return Call(f"{function}_range", weights, layout, "&range")
