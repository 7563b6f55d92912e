"""Dense layers whose results are sums of int16, for SIMD32: four outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemv_int16.h.
"""

from functools import partial

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.kernels.dense.dsp.gemv_int8 import best_unroll
from mtool.compiler.kernels.dense.dsp.gemv_int16 import Rows
from mtool.compiler.kernels.dense.gemv import Call
from mtool.compiler.kernels.dsp.weights_int16 import pack
from mtool.compiler.kernels.epilogues.sums import SumEpilogue
from mtool.compiler.kernels.packing import packed_by_rows
from mtool.compiler.kernels.target import Target


class Gemv(Rows):
    """Row by row of the input; four outputs share each pair of it. What follows a row of sums is any expression."""

    name = "dsp16_row_sums"
    staged = DType.INT32
    storing = 60

    def epilogue(self, node: Node, graph: Graph) -> SumEpilogue | None:
        """Of sums."""
        return SumEpilogue.of(node, graph)

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """By the packing."""
        kind = self._kind(node, graph)
        assert kind is not None
        weights, bias = (graph.constants[node.inputs[n]] for n in (1, 2))
        filled, group = self.padded_depth(weights.shape[1]), self.group(node, graph)
        rows = partial(pack, scale=None, depth=filled, together=group, packing=self.packing)
        stream = packed_by_rows(rows, group, weights, bias)
        function = kind.function("mt_dsp16_row_sums", self.unroll or best_unroll(filled))
        return Call(function, stream, kind.layout(group, scaled=False))


SCHEDULE = Gemv()
