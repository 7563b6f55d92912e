"""Dense layers of float32 for Helium: vectors of outputs.

The inner loops and the layout of the packed weights: crt/include/mt_mve_gemv_f32.h.
"""

from dataclasses import dataclass

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.kernels.dense.gemv import Call, GroupedGemv
from mtool.compiler.kernels.dense.weights_f32 import LAYOUT, pack
from mtool.compiler.kernels.epilogues.float32 import FloatEpilogue
from mtool.compiler.kernels.f32.stored import stored_as, words_of
from mtool.compiler.kernels.knobs import knob
from mtool.compiler.kernels.padding import round_up
from mtool.compiler.kernels.target import Target

GROUPS = (16, 8, 4)  # outputs at a time: the loops that mt_mve_gemv_f32.h has


@dataclass(frozen=True)
class Gemv(GroupedGemv):
    """Row by row of the input; a few vectors of outputs share each input element."""

    name = "mve_f32_rows"
    element = DType.FLOAT32
    header = "mt_mve_gemv_f32.h"

    outputs: int = knob(0, *GROUPS, meaning="at a time; auto: as many as take fewest instructions")

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """float32."""
        return target.has_mve and self.epilogue(node, graph) is not None

    def epilogue(self, node: Node, graph: Graph) -> FloatEpilogue | None:
        """Of float32."""
        return FloatEpilogue.of(node, graph)

    def group(self, node: Node, graph: Graph) -> int:
        """As many as take fewest instructions."""
        return self.outputs or min(GROUPS, key=lambda outputs: self._row(node, graph, outputs))

    def padded_depth(self, depth: int) -> int:
        """Whole groups of four."""
        return round_up(depth, 4)

    def _row(self, node: Node, graph: Graph, outputs: int) -> int:
        """Instructions of a row: a load and a product for each vector of weights, two for four inputs, the results."""
        depth = graph.types[node.inputs[0]].shape[1]
        groups = round_up(graph.types[node.outputs[0]].shape[1], outputs) // outputs
        vectors = outputs // 4
        return groups * ((8 * vectors + 2) * round_up(depth, 4) // 4 + 7 * vectors + 20)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Those of a row for each."""
        return graph.types[node.inputs[0]].shape[0] * float(self._row(node, graph, self.group(node, graph)))

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """By the outputs at a time; the last argument is the least that a result may be."""
        epilogue, group = self.epilogue(node, graph), self.group(node, graph)
        assert epilogue is not None
        weights, bias = (graph.constants[node.inputs[n]] for n in (1, 2))
        stored = stored_as(node, graph) or ""
        function = f"mt_mve_f32_rows_{stored + '_' if stored else ''}{group}"
        return Call(function, pack(weights, bias, group, stored), LAYOUT + words_of(stored), epilogue.least)


SCHEDULE = Gemv()
