"""Dense layers whose results are sums of int16, for Helium: eight outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_mve_gemv_int16.h.
"""

from functools import partial

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.kernels.dense.gemv import Call
from mtool.compiler.kernels.dense.mve.gemv_int16 import GROUP, Rows, pack
from mtool.compiler.kernels.epilogues.sums import SumEpilogue
from mtool.compiler.kernels.packing import packed_by_rows
from mtool.compiler.kernels.target import Target


class Gemv(Rows):
    """Row by row of the input; eight outputs share each vector of it. What follows a row of sums is any expression."""

    name = "mve16_row_sums"
    staged = DType.INT32
    storing = 100

    def epilogue(self, node: Node, graph: Graph) -> SumEpilogue | None:
        """Of sums."""
        return SumEpilogue.of(node, graph)

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """There is one."""
        weights, bias = (graph.constants[node.inputs[n]] for n in (1, 2))
        layout = "8 outputs a row: the bytes of biases, vectors of 8 weights by turns"
        stream = packed_by_rows(partial(pack, scale=None), GROUP, weights, bias)
        return Call("mt_mve16_dense_sums", stream, layout)


SCHEDULE = Gemv()
