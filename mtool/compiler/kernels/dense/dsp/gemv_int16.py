"""Dense layers of int16 activations for SIMD32: four outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemv_int16.h.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.kernels.dense.dsp.gemv_int8 import UNROLLS, best_unroll
from mtool.compiler.kernels.dense.gemv import Call, GroupedGemv
from mtool.compiler.kernels.dsp.weights_int16 import PACKING_MEANING, Kind, pack
from mtool.compiler.kernels.epilogues.integer import Int16Epilogue
from mtool.compiler.kernels.knobs import knob
from mtool.compiler.kernels.packing import packed_by_rows
from mtool.compiler.kernels.padding import round_up
from mtool.compiler.kernels.target import Target


@dataclass(frozen=True)
class Rows(GroupedGemv):
    """What the schedules have in common whose results are of int16 and those whose results are the sums."""

    element = DType.INT16
    header = "mt_dsp_gemv_int16.h"
    storing: ClassVar[int]
    """Instructions for four outputs, beside their sums."""

    unroll: int = knob(0, *UNROLLS, meaning="inputs an iteration; auto: the most that divide their number")
    packing: str = knob("", "halves", meaning=PACKING_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """int16, weights of int8 or int16."""
        return target.has_dsp and self._kind(node, graph) is not None and self.epilogue(node, graph) is not None

    def _kind(self, node: Node, graph: Graph) -> Kind | None:
        return Kind.of(graph.constants[node.inputs[1]], graph.constants[node.inputs[2]], self.packing)

    def group(self, node: Node, graph: Graph) -> int:
        """Four, or two with sums of 64 bits."""
        kind = self._kind(node, graph)
        return 2 if kind is not None and kind.long else 4

    def padded_depth(self, depth: int) -> int:
        """Whole iterations."""
        return round_up(depth, self.unroll or 4)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """4.75 instructions (3 of halves) an input for four outputs, 3 an iteration, and what storing those takes."""
        rows, depth = graph.types[node.inputs[0]].shape
        kind, outputs = self._kind(node, graph), graph.types[node.outputs[0]].shape[1]
        assert kind is not None
        depth = self.padded_depth(depth)
        if kind.long:
            return float(rows * outputs * (2 * depth + 60))
        each = (3 if kind.halves else 4.75) * depth + 3 * depth / (self.unroll or best_unroll(depth)) + self.storing
        return rows * self.groups(node, graph) * each


class Gemv(Rows):
    """Row by row of the input; four outputs share each pair of it. Sums of 64 bits: two outputs."""

    name = "dsp16_rows"
    range_of = "kernels/dsp/tile_int16.c.j2"
    storing = 45

    def epilogue(self, node: Node, graph: Graph) -> Int16Epilogue | None:
        """Of int16."""
        return Int16Epilogue.of(node, graph)

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """By the packing and the width of the sums."""
        epilogue, kind = self.epilogue(node, graph), self._kind(node, graph)
        assert epilogue is not None and kind is not None
        weights, bias = (graph.constants[node.inputs[n]] for n in (1, 2))
        filled, group = self.padded_depth(weights.shape[1]), self.group(node, graph)
        rows = partial(pack, depth=filled, together=group, packing=self.packing)
        stream = packed_by_rows(rows, group, weights, bias, epilogue.scale)
        function = kind.function("mt_dsp16_row", self.unroll or best_unroll(filled))
        return Call(function, stream, kind.layout(group), "&range")


SCHEDULE = Gemv()
