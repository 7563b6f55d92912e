"""Dense layers of int16 activations for Helium: eight outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_mve_gemv_int16.h.
"""

import numpy as np

from mtool.ir import Graph, Node
from mtool.ir.types import Array
from mtool.kernels.epilogues.integer import Int16Epilogue
from mtool.kernels.mve.vectors import INT16_LANES, has_narrow_sums
from mtool.kernels.padding import round_up
from mtool.kernels.rendering import template
from mtool.kernels.schedule import BaseSchedule, Kernel
from mtool.kernels.target import Target

HEADER = "mt_mve_gemv_int16.h"

GROUP = 8  # outputs at a time


def pack(weights: Array, bias: Array, scale: Array) -> Array:
    """Return the stream of mt_mve16_rows, int8 [N/8, 64 + 8 * K]; N and K are filled up to multiples of 8.

    Args:
        weights: int8 [N, K].
        bias: int32 [N], the input's zero point folded in.
        scale: float32 [N].
    """
    count, depth = (round_up(size, GROUP) for size in weights.shape)
    more = count - weights.shape[0]
    filled = np.pad(weights, ((0, more), (0, depth - weights.shape[1]))).reshape(
        -1, GROUP, depth // INT16_LANES, INT16_LANES
    )
    heads = np.pad(bias.astype(np.int32), (0, more)).view(np.int8).reshape(-1, 4 * GROUP)
    tails = np.pad(scale.astype(np.float32), (0, more)).view(np.int8).reshape(-1, 4 * GROUP)
    return np.concatenate([heads, filled.transpose(0, 2, 1, 3).reshape(len(heads), -1), tails], axis=1)


class Gemv(BaseSchedule):
    """Row by row of the input; eight outputs share each vector of it."""

    name = "mve16_rows"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """int16 to int16, sums of 32 bits."""
        return target.has_mve and has_narrow_sums(node, graph) and Int16Epilogue.of(node, graph) is not None

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Results that are staged, and a row of inputs that is not whole vectors."""
        depth = graph.types[node.inputs[0]].shape[1]
        return 2 * (self._results(node, graph) + (round_up(depth, INT16_LANES) if depth % INT16_LANES else 0))

    def _results(self, node: Node, graph: Graph) -> int:
        """A row of results, if an epilogue follows; the last eight, if they are not all wanted."""
        epilogue, outputs = Int16Epilogue.of(node, graph), graph.types[node.outputs[0]].shape[1]
        if epilogue is not None and epilogue.rest is not None:
            return round_up(outputs, GROUP)
        return GROUP if outputs % GROUP else 0

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """19 instructions for 8 inputs and eight outputs, 30 for eight outputs."""
        rows, depth = graph.types[node.inputs[0]].shape
        groups = round_up(graph.types[node.outputs[0]].shape[1], GROUP) // GROUP
        return rows * groups * (19 * round_up(depth, INT16_LANES) / INT16_LANES + 30)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        epilogue = Int16Epilogue.of(node, graph)
        assert epilogue is not None
        rows, depth = graph.types[node.inputs[0]].shape
        body = template(
            "ops/dense/mve/gemv_int16.c.j2",
            rows=rows,
            depth=depth,
            outputs=graph.types[node.outputs[0]].shape[1],
            epilogue=epilogue,
            filled=round_up(depth, INT16_LANES),
            results=self._results(node, graph),
            rest=lambda acc, offset, channel: epilogue.rest_text(node, graph, acc, offset, channel),
        )
        weights = pack(graph.constants[node.inputs[1]], graph.constants[node.inputs[2]], epilogue.scale)
        scratch = "int16_t" if self.scratch_bytes(node, graph) else ""
        return epilogue.kernel(node, graph, body, weights, HEADER, scratch)
