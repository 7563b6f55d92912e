"""Dense layers whose results are sums of int16, for Helium: eight outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_mve_gemv_int16.h.
"""

from functools import partial

from mtool.ir import DType, Graph, Node
from mtool.kernels.epilogues.sums import SumEpilogue
from mtool.kernels.mve.vectors import INT16_LANES, has_narrow_sums
from mtool.kernels.packing import packed_by_rows
from mtool.kernels.padding import round_up
from mtool.kernels.target import Target
from mtool.ops.dense.gemv import Call, GroupedGemv
from mtool.ops.dense.mve.gemv_int16 import GROUP, pack


class Gemv(GroupedGemv):
    """Row by row of the input; eight outputs share each vector of it. What follows a row of sums is any expression."""

    name = "mve16_row_sums"
    element = DType.INT16
    staged = DType.INT32
    header = "mt_mve_gemv_int16.h"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """int16, sums of 32 bits."""
        return target.has_mve and has_narrow_sums(node, graph) and self.epilogue(node, graph) is not None

    def epilogue(self, node: Node, graph: Graph) -> SumEpilogue | None:
        """Of sums."""
        return SumEpilogue.of(node, graph)

    def group(self, node: Node, graph: Graph) -> int:
        """Eight."""
        return GROUP

    def padded_depth(self, depth: int) -> int:
        """Whole vectors."""
        return round_up(depth, INT16_LANES)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """19 instructions for 8 inputs and eight outputs, 100 for eight outputs."""
        rows, depth = graph.types[node.inputs[0]].shape
        return rows * self.groups(node, graph) * (19 * self.padded_depth(depth) / INT16_LANES + 100)

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """There is one."""
        weights, bias = (graph.constants[node.inputs[n]] for n in (1, 2))
        layout = "8 outputs a row: the bytes of biases, vectors of 8 weights by turns"
        stream = packed_by_rows(partial(pack, scale=None), GROUP, weights, bias)
        return Call("mt_mve16_dense_sums", stream, layout)
