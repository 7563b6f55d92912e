"""Dense layers of float32 for a Cortex-M's FPU: eight outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_f32_gemv.h.
"""

from dataclasses import dataclass

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.kernels.dense.gemv import LAYOUT_F32, Call, GroupedGemv, pack_f32
from mtool.compiler.kernels.epilogues import FloatEpilogue
from mtool.compiler.kernels.f32 import PRODUCT_MEANING, PRODUCTS, best_product, stored_as, words_of
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.schedule import knob
from mtool.compiler.kernels.target import Target

GROUP = 8  # outputs at a time


@dataclass(frozen=True)
class Gemv(GroupedGemv):
    """Row by row of the input; eight outputs share each input element."""

    name = "f32_rows"
    element = DType.FLOAT32
    header = "mt_f32_gemv.h"

    product: str = knob("", *PRODUCTS, meaning=PRODUCT_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """float32; weights of float16 or int8 are widened as they are read."""
        stored = target.has_float_tiles and stored_as(node, graph) is not None
        return stored and self.epilogue(node, graph) is not None

    def epilogue(self, node: Node, graph: Graph) -> FloatEpilogue | None:
        """Of float32."""
        return FloatEpilogue.of_stored(node, graph)

    def group(self, node: Node, graph: Graph) -> int:
        """Eight."""
        return GROUP

    def padded_depth(self, depth: int) -> int:
        """Whole groups of four."""
        return round_up(depth, 4)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """2.2 instructions a multiply-accumulate (1.2 fused), 2 an output, 1.8 to widen a byte.

        1 to widen a float16 does not count, for the flash that it saves.
        """
        rows, depth = graph.types[node.inputs[0]].shape
        outputs = GROUP * self.groups(node, graph)
        each = 2.2 if (self.product or best_product(target)) == "muladd" else 1.2
        return rows * outputs * (depth * (each + (1.8 if stored_as(node, graph) == "bytes" else 0)) + 2)

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """By how products are added, and whether a ReLU follows."""
        epilogue = self.epilogue(node, graph)
        assert epilogue is not None
        weights, bias = (graph.constants[node.inputs[n]] for n in (1, 2))
        stored = stored_as(node, graph)
        assert stored is not None
        function = epilogue.function("mt_f32_rows", self.product or best_product(target), stored)
        return Call(function, pack_f32(weights, bias, GROUP, stored), LAYOUT_F32 + words_of(stored))


SCHEDULES = (Gemv(),)
