"""Dense layers of int16 activations for SIMD32: four outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_gemv_int16.h.
"""

from dataclasses import dataclass

from mtool.ir import Graph, Node
from mtool.ir.types import Array
from mtool.kernels.dsp.weights_int16 import PACKING_MEANING, Kind, pack
from mtool.kernels.epilogues.integer import Int16Epilogue
from mtool.kernels.knobs import knob
from mtool.kernels.padding import round_up
from mtool.kernels.rendering import template
from mtool.kernels.schedule import BaseSchedule, Kernel
from mtool.kernels.target import Target
from mtool.ops.dense.dsp.gemv_int8 import UNROLLS, best_unroll

HEADER = "mt_dsp_gemv_int16.h"


@dataclass(frozen=True)
class Gemv(BaseSchedule):
    """Row by row of the input; four outputs share each pair of it. Sums of 64 bits: two outputs."""

    name = "dsp16_rows"

    unroll: int = knob(0, *UNROLLS, meaning="inputs an iteration; auto: the most that divide their number")
    packing: str = knob("", "halves", meaning=PACKING_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """int16 to int16."""
        return target.has_dsp and self._kind(node, graph) is not None and Int16Epilogue.of(node, graph) is not None

    def _kind(self, node: Node, graph: Graph) -> Kind | None:
        return Kind.of(graph.constants[node.inputs[1]], graph.constants[node.inputs[2]], self.packing)

    def _filled(self, depth: int) -> int:
        return round_up(depth, self.unroll or 4)

    def _group(self, node: Node, graph: Graph) -> int:
        """Outputs that are computed at a time."""
        kind = self._kind(node, graph)
        return 2 if kind is not None and kind.long else 4

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Results that are staged, and a row of inputs that is not whole words."""
        depth = graph.types[node.inputs[0]].shape[1]
        filled = self._filled(depth)
        return 2 * (self._results(node, graph) + (filled if filled > depth else 0))

    def _results(self, node: Node, graph: Graph) -> int:
        """A row of results, if an epilogue follows; the last group, if they are not all wanted."""
        epilogue, outputs = Int16Epilogue.of(node, graph), graph.types[node.outputs[0]].shape[1]
        group = self._group(node, graph)
        if epilogue is not None and epilogue.rest is not None:
            return round_up(outputs, group)
        return group if outputs % group else 0

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """4.75 instructions (3 of halves) an input for four outputs, 3 an iteration, 45 for four outputs."""
        rows, depth = graph.types[node.inputs[0]].shape
        kind, outputs = self._kind(node, graph), graph.types[node.outputs[0]].shape[1]
        assert kind is not None
        depth = self._filled(depth)
        if kind.long:
            return float(rows * outputs * (2 * depth + 60))
        each = (3 if kind.halves else 4.75) * depth + 3 * depth / (self.unroll or best_unroll(depth)) + 45
        return rows * round_up(outputs, 4) // 4 * each

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        epilogue, kind = Int16Epilogue.of(node, graph), self._kind(node, graph)
        assert epilogue is not None and kind is not None
        rows, depth = graph.types[node.inputs[0]].shape
        filled, group = self._filled(depth), self._group(node, graph)
        weights, bias = (graph.constants[node.inputs[n]] for n in (1, 2))
        stream: Array = pack(weights, bias, epilogue.scale, filled, group, self.packing)
        body = template(
            "ops/dense/dsp/gemv_int16.c.j2",
            rows=rows,
            depth=depth,
            outputs=graph.types[node.outputs[0]].shape[1],
            group=group,
            function=kind.function("mt_dsp16_row", self.unroll or best_unroll(filled)),
            epilogue=epilogue,
            filled=filled,
            results=self._results(node, graph),
            rest=lambda acc, offset, channel: epilogue.rest_text(node, graph, acc, offset, channel),
        )
        scratch = "int16_t" if self.scratch_bytes(node, graph) else ""
        return epilogue.kernel(node, graph, body, stream, HEADER, scratch)
