"""Dense layers of float32 for a Cortex-M's FPU: eight outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_f32_gemv.h.
"""

from dataclasses import dataclass

from mtool.ir import DType, Graph, Node
from mtool.kernels.epilogues.float32 import FloatEpilogue
from mtool.kernels.f32.products import PRODUCT_MEANING, PRODUCTS, best_product, has_tiles
from mtool.kernels.knobs import knob
from mtool.kernels.padding import round_up
from mtool.kernels.target import Target
from mtool.ops.dense.gemv import Call, GroupedGemv
from mtool.ops.dense.weights_f32 import LAYOUT, pack

GROUP = 8  # outputs at a time


@dataclass(frozen=True)
class Gemv(GroupedGemv):
    """Row by row of the input; eight outputs share each input element."""

    name = "f32_rows"
    element = DType.FLOAT32
    header = "mt_f32_gemv.h"

    product: str = knob("", *PRODUCTS, meaning=PRODUCT_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """float32."""
        return has_tiles(target) and self.epilogue(node, graph) is not None

    def epilogue(self, node: Node, graph: Graph) -> FloatEpilogue | None:
        """Of float32."""
        return FloatEpilogue.of(node, graph)

    def group(self, node: Node, graph: Graph) -> int:
        """Eight."""
        return GROUP

    def padded_depth(self, depth: int) -> int:
        """Whole groups of four."""
        return round_up(depth, 4)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """2.2 instructions a multiply-accumulate (1.2 fused), 2 an output."""
        rows, depth = graph.types[node.inputs[0]].shape
        outputs = GROUP * self.groups(node, graph)
        return rows * outputs * (depth * (2.2 if (self.product or best_product(target)) == "muladd" else 1.2) + 2)

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """By how products are added, and whether a ReLU follows."""
        epilogue = self.epilogue(node, graph)
        assert epilogue is not None
        weights, bias = (graph.constants[node.inputs[n]] for n in (1, 2))
        function = epilogue.function("mt_f32_rows", self.product or best_product(target))
        return Call(function, pack(weights, bias, GROUP), LAYOUT)
