"""Dense layers of int8 for Helium: eight outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_mve_gemv_int8.h.
"""

from dataclasses import dataclass

import numpy as np

from mtool.ir import Graph, Node
from mtool.ir.types import Array
from mtool.kernels.epilogues.integer import Int8Epilogue
from mtool.kernels.knobs import knob
from mtool.kernels.mve.vectors import INT8_LANES
from mtool.kernels.padding import round_up
from mtool.kernels.rendering import template
from mtool.kernels.scaling import Scaling
from mtool.kernels.schedule import BaseSchedule, Kernel
from mtool.kernels.target import Target

HEADER = "mt_mve_gemv_int8.h"

GROUP = 8  # outputs at a time
UNROLLS = (1, 2, 4)  # vectors of inputs an iteration: the loops that mt_mve_gemv_int8.h has


def pack(weights: Array, bias: Array, scaling: Scaling, depth: int) -> Array:
    """Return the stream of mt_mve_rows, int8 [N/8, 64 or 96 + 8 * depth]; N is filled up to a multiple of 8.

    Args:
        weights: int8 [N, K].
        bias: int32 [N], the input's zero point folded in.
        scaling: of N channels.
        depth: whole vectors, which K is filled up to.
    """
    count = weights.shape[0]
    groups = round_up(count, GROUP) // GROUP
    more = groups * GROUP - count
    filled = np.pad(weights, ((0, more), (0, depth - weights.shape[1]))).reshape(
        groups, GROUP, depth // INT8_LANES, INT8_LANES
    )
    heads = np.pad(bias.astype(np.int32), (0, more)).view(np.int8).reshape(groups, 4 * GROUP)
    tails = scaling.filled(groups * GROUP).vectors(GROUP)
    return np.concatenate([heads, filled.transpose(0, 2, 1, 3).reshape(groups, -1), tails], axis=1)


@dataclass(frozen=True)
class Gemv(BaseSchedule):
    """Row by row of the input; eight outputs share each vector of it."""

    name = "mve_rows"

    unroll: int = knob(*UNROLLS, meaning="vectors of inputs an iteration: more are faster, and more code")

    def _filled(self, depth: int) -> int:
        return round_up(depth, INT8_LANES * self.unroll)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """int8 to int8."""
        int8 = graph.constants[node.inputs[1]].dtype == np.int8
        return target.has_mve and int8 and Int8Epilogue.of(node, graph) is not None

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Results that are staged, and a row of inputs that is not whole vectors."""
        depth = graph.types[node.inputs[0]].shape[1]
        filled = self._filled(depth)
        return self._results(node, graph) + (filled if filled > depth else 0)

    def _results(self, node: Node, graph: Graph) -> int:
        """A row of results, if an epilogue follows; the last eight, if they are not all wanted."""
        epilogue, outputs = Int8Epilogue.of(node, graph), graph.types[node.outputs[0]].shape[1]
        if epilogue is not None and epilogue.rest is not None:
            return round_up(outputs, GROUP)
        return GROUP if outputs % GROUP else 0

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """17 instructions for 16 inputs and eight outputs, 2 an iteration, 30 for eight outputs."""
        rows, depth = graph.types[node.inputs[0]].shape
        groups = round_up(graph.types[node.outputs[0]].shape[1], GROUP) // GROUP
        return rows * groups * ((17 + 2 / self.unroll) * self._filled(depth) / INT8_LANES + 30)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        epilogue = Int8Epilogue.of(node, graph)
        assert epilogue is not None
        rows, depth = graph.types[node.inputs[0]].shape
        body = template(
            "ops/dense/mve/gemv_int8.c.j2",
            rows=rows,
            depth=depth,
            outputs=graph.types[node.outputs[0]].shape[1],
            epilogue=epilogue,
            unroll=self.unroll,
            filled=self._filled(depth),
            results=self._results(node, graph),
            rest=lambda acc, offset, channel: epilogue.rest_text(node, graph, acc, offset, channel),
        )
        weights = pack(graph.constants[node.inputs[1]], epilogue.bias, epilogue.scaling, self._filled(depth))
        scratch = "int8_t" if self.scratch_bytes(node, graph) else ""
        return epilogue.kernel(node, graph, body, weights, HEADER, scratch)
