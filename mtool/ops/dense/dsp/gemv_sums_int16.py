"""Dense layers whose results are sums of int16, for SIMD32: four outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemv_int16.h.
"""

from dataclasses import dataclass

from mtool.ir import DType, Graph, Node
from mtool.kernels.dsp.weights_int16 import PACKING_MEANING, Kind, pack
from mtool.kernels.epilogues.sums import SumEpilogue
from mtool.kernels.knobs import knob
from mtool.kernels.padding import round_up
from mtool.kernels.target import Target
from mtool.ops.dense.dsp.gemv_int8 import UNROLLS, best_unroll
from mtool.ops.dense.gemv import Call, GroupedGemv


@dataclass(frozen=True)
class Gemv(GroupedGemv):
    """Row by row of the input; four outputs share each pair of it. What follows a row of sums is any expression."""

    name = "dsp16_row_sums"
    element = DType.INT16
    staged = DType.INT32
    header = "mt_dsp_gemv_int16.h"

    unroll: int = knob(0, *UNROLLS, meaning="inputs an iteration; auto: the most that divide their number")
    packing: str = knob("", "halves", meaning=PACKING_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """int16, sums of 32 bits."""
        return target.has_dsp and self._kind(node, graph) is not None and self.epilogue(node, graph) is not None

    def epilogue(self, node: Node, graph: Graph) -> SumEpilogue | None:
        """Of sums."""
        return SumEpilogue.of(node, graph)

    def _kind(self, node: Node, graph: Graph) -> Kind | None:
        return Kind.of(graph.constants[node.inputs[1]], graph.constants[node.inputs[2]], self.packing)

    def group(self, node: Node, graph: Graph) -> int:
        """Four."""
        return 4

    def padded_depth(self, depth: int) -> int:
        """Whole iterations."""
        return round_up(depth, self.unroll or 4)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """4.75 instructions (3 of halves) an input for four outputs, 3 an iteration, 60 for four outputs."""
        rows, depth = graph.types[node.inputs[0]].shape
        kind, depth = self._kind(node, graph), self.padded_depth(depth)
        assert kind is not None
        each = (3 if kind.halves else 4.75) * depth + 3 * depth / (self.unroll or best_unroll(depth)) + 60
        return rows * self.groups(node, graph) * each

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """By the packing."""
        kind = self._kind(node, graph)
        assert kind is not None
        weights, bias = (graph.constants[node.inputs[n]] for n in (1, 2))
        filled = self.padded_depth(weights.shape[1])
        stream = pack(weights, bias, None, filled, 4, self.packing)
        function = kind.function("mt_dsp16_row_sums", self.unroll or best_unroll(filled))
        return Call(function, stream, kind.layout(4, scaled=False))
