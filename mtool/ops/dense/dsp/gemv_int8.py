"""Dense layers of int8 for SIMD32: four outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemv_int8.h.
"""

from dataclasses import dataclass

import numpy as np

from mtool.ir import Graph, Node
from mtool.ir.types import Array
from mtool.kernels.dsp.weights_int8 import radix_pairs
from mtool.kernels.epilogues.integer import Int8Epilogue
from mtool.kernels.knobs import knob
from mtool.kernels.padding import round_up
from mtool.kernels.rendering import template
from mtool.kernels.scaling import Scaling
from mtool.kernels.schedule import BaseSchedule, Kernel
from mtool.kernels.target import Target

HEADER = "mt_dsp_gemv_int8.h"
UNROLLS = (16, 8, 4)  # inputs an iteration: the loops that mt_dsp_gemv_int8.h has


def pack(weights: Array, bias: Array, scaling: Scaling, depth: int) -> Array | None:
    """Return the stream of mt_dsp_rows, uint32 [N/4, K + 8 or 12]; None: the pairs can't be proved exact.

    Args:
        weights: int8 [N, K]; N is filled up to a multiple of 4, K to `depth`.
        bias: int32 [N], the input's zero point folded in.
        scaling: of N channels.
        depth: a multiple of 4.
    """
    bias, scaling = scaling.settled(weights, bias)
    count = round_up(weights.shape[0], 4)
    more = count - weights.shape[0]
    pairs = radix_pairs(np.pad(weights, ((0, more), (0, depth - weights.shape[1]))), np.pad(bias, (0, more)))
    if pairs is None:
        return None
    words, heads, sign = pairs
    words = words.reshape(count // 4, 2, depth // 4, 2).transpose(0, 2, 1, 3).reshape(count // 4, depth)
    tails = scaling.filled(count).paired(sign).reshape(count // 4, -1)
    return np.concatenate([heads.reshape(count // 4, 4), words, tails], axis=1)


def best_unroll(depth: int) -> int:
    """Return the largest unrolling of mt_dsp_gemv_int8.h that divides the depth."""
    return next(unroll for unroll in UNROLLS if depth % unroll == 0)


@dataclass(frozen=True)
class Gemv(BaseSchedule):
    """Row by row of the input; four outputs share each widened word of it."""

    name = "dsp_rows"

    unroll: int = knob(0, *UNROLLS, meaning="inputs an iteration; auto: the most that divide their number")

    def _filled(self, depth: int) -> int:
        return round_up(depth, self.unroll or 4)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """int8 to int8, provable weights."""
        return target.has_dsp and self._packed(node, graph) is not None

    def _packed(self, node: Node, graph: Graph) -> tuple[Int8Epilogue, Array] | None:
        epilogue, weights = Int8Epilogue.of(node, graph), graph.constants[node.inputs[1]]
        if epilogue is None or weights.dtype != np.int8:
            return None
        depth = self._filled(weights.shape[1])
        packed = pack(weights, epilogue.bias, epilogue.scaling, depth)
        return None if packed is None else (epilogue, packed)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Results that are staged, and a row of inputs that is not whole words."""
        depth = graph.types[node.inputs[0]].shape[1]
        filled = self._filled(depth)
        return self._results(node, graph) + (filled if filled > depth else 0)

    def _results(self, node: Node, graph: Graph) -> int:
        """A row of results, if an epilogue follows; the last four, if they are not all wanted."""
        epilogue, outputs = Int8Epilogue.of(node, graph), graph.types[node.outputs[0]].shape[1]
        if epilogue is not None and epilogue.rest is not None:
            return round_up(outputs, 4)
        return 4 if outputs % 4 else 0

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """4 instructions an input for four outputs, 3 an iteration, 42 for four outputs."""
        rows, depth = graph.types[node.inputs[0]].shape
        depth = self._filled(depth)
        groups = round_up(graph.types[node.outputs[0]].shape[1], 4) // 4
        return rows * groups * (4 * depth + 3 * depth / (self.unroll or best_unroll(depth)) + 42)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        packed = self._packed(node, graph)
        assert packed is not None
        epilogue, weights = packed
        rows, depth = graph.types[node.inputs[0]].shape
        body = template(
            "ops/dense/dsp/gemv_int8.c.j2",
            rows=rows,
            depth=depth,
            outputs=graph.types[node.outputs[0]].shape[1],
            unroll=self.unroll or best_unroll(self._filled(depth)),
            epilogue=epilogue,
            filled=self._filled(depth),
            results=self._results(node, graph),
            rest=lambda acc, offset, channel: epilogue.rest_text(node, graph, acc, offset, channel),
        )
        scratch = "int8_t" if self.scratch_bytes(node, graph) else ""
        return epilogue.kernel(node, graph, body, weights, HEADER, scratch)
