"""Dense layers of float32 for Helium: vectors of outputs.

The inner loops and the layout of the packed weights: crt/include/mt_mve_gemv_f32.h.
"""

from dataclasses import dataclass

from mtool.ir import Graph, Node
from mtool.kernels.epilogues.float32 import FloatEpilogue
from mtool.kernels.knobs import knob
from mtool.kernels.padding import round_up
from mtool.kernels.rendering import template
from mtool.kernels.schedule import BaseSchedule, Kernel
from mtool.kernels.target import Target
from mtool.ops.dense.weights_f32 import pack

HEADER = "mt_mve_gemv_f32.h"

GROUPS = (16, 8, 4)  # outputs at a time: the loops that mt_mve_gemv_f32.h has


@dataclass(frozen=True)
class Gemv(BaseSchedule):
    """Row by row of the input; a few vectors of outputs share each input element."""

    name = "mve_f32_rows"

    outputs: int = knob(0, *GROUPS, meaning="at a time; auto: as many as take fewest instructions")

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """float32."""
        return target.has_mve and FloatEpilogue.of(node, graph) is not None

    def _outputs(self, node: Node, graph: Graph) -> int:
        return self.outputs or min(GROUPS, key=lambda outputs: self._row(node, graph, outputs))

    def _row(self, node: Node, graph: Graph, outputs: int) -> int:
        """Instructions of a row: a load and a product for each vector of weights, two for four inputs, the results."""
        depth = graph.types[node.inputs[0]].shape[1]
        groups = round_up(graph.types[node.outputs[0]].shape[1], outputs) // outputs
        vectors = outputs // 4
        return groups * ((8 * vectors + 2) * round_up(depth, 4) // 4 + 7 * vectors + 20)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Results that are staged, and a row of inputs that is not whole groups of four."""
        depth = graph.types[node.inputs[0]].shape[1]
        return 4 * (self._results(node, graph) + (round_up(depth, 4) if depth % 4 else 0))

    def _results(self, node: Node, graph: Graph) -> int:
        """A row of results, if an epilogue follows; the last group, if they are not all wanted."""
        epilogue, outputs = FloatEpilogue.of(node, graph), graph.types[node.outputs[0]].shape[1]
        group = self._outputs(node, graph)
        if epilogue is not None and epilogue.rest is not None:
            return round_up(outputs, group)
        return group if outputs % group else 0

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Those of a row for each."""
        return graph.types[node.inputs[0]].shape[0] * float(self._row(node, graph, self._outputs(node, graph)))

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        epilogue = FloatEpilogue.of(node, graph)
        assert epilogue is not None
        rows, depth = graph.types[node.inputs[0]].shape
        group = self._outputs(node, graph)
        body = template(
            "ops/dense/mve/gemv_f32.c.j2",
            rows=rows,
            depth=depth,
            outputs=graph.types[node.outputs[0]].shape[1],
            group=group,
            epilogue=epilogue,
            filled=round_up(depth, 4),
            results=self._results(node, graph),
            rest=lambda acc, offset, channel: epilogue.text(node, graph, acc, offset, channel),
        )
        weights = pack(graph.constants[node.inputs[1]], graph.constants[node.inputs[2]], group)
        scratch = self.scratch_bytes(node, graph) > 0
        return epilogue.kernel(node, graph, body, weights, scratch=scratch, header=HEADER)
