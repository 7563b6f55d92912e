"""Dense layers of float32 for a Cortex-M's FPU: eight outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_f32_gemv.h.
"""

from dataclasses import dataclass

from mtool.ir import Graph, Node
from mtool.kernels.epilogues.float32 import FloatEpilogue
from mtool.kernels.f32.products import PRODUCT_MEANING, PRODUCTS, best_product, has_tiles
from mtool.kernels.knobs import knob
from mtool.kernels.padding import round_up
from mtool.kernels.rendering import template
from mtool.kernels.schedule import BaseSchedule, Kernel
from mtool.kernels.target import Target
from mtool.ops.dense.weights_f32 import pack

HEADER = "mt_f32_gemv.h"
GROUP = 8  # outputs at a time


@dataclass(frozen=True)
class Gemv(BaseSchedule):
    """Row by row of the input; eight outputs share each input element."""

    name = "f32_rows"

    product: str = knob("", *PRODUCTS, meaning=PRODUCT_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """float32."""
        return has_tiles(target) and FloatEpilogue.of(node, graph) is not None

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Results that are staged, and a row of inputs that is not whole groups of four."""
        depth = graph.types[node.inputs[0]].shape[1]
        return 4 * (self._results(node, graph) + (round_up(depth, 4) if depth % 4 else 0))

    def _results(self, node: Node, graph: Graph) -> int:
        """A row of results, if an epilogue follows; the last eight, if they are not all wanted."""
        epilogue, outputs = FloatEpilogue.of(node, graph), graph.types[node.outputs[0]].shape[1]
        if epilogue is not None and epilogue.rest is not None:
            return round_up(outputs, GROUP)
        return GROUP if outputs % GROUP else 0

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """2.2 instructions a multiply-accumulate (1.2 fused), 2 an output."""
        rows, depth = graph.types[node.inputs[0]].shape
        outputs = round_up(graph.types[node.outputs[0]].shape[1], GROUP)
        return rows * outputs * (depth * (2.2 if (self.product or best_product(target)) == "muladd" else 1.2) + 2)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        epilogue = FloatEpilogue.of(node, graph)
        assert epilogue is not None
        rows, depth = graph.types[node.inputs[0]].shape
        body = template(
            "ops/dense/f32/gemv_f32.c.j2",
            rows=rows,
            depth=depth,
            outputs=graph.types[node.outputs[0]].shape[1],
            function=epilogue.function("mt_f32_rows", self.product or best_product(target)),
            epilogue=epilogue,
            filled=round_up(depth, 4),
            results=self._results(node, graph),
            rest=lambda acc, offset, channel: epilogue.text(node, graph, acc, offset, channel),
        )
        weights = pack(graph.constants[node.inputs[1]], graph.constants[node.inputs[2]], GROUP)
        return epilogue.kernel(node, graph, body, weights, scratch=self.scratch_bytes(node, graph) > 0, header=HEADER)
