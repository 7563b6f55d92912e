"""Dense layers for RISC-V vectors."""

from dataclasses import dataclass

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.rvv import TILE_MEANING, TILES, Tile, VectorEpilogue, best
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel, knob
from mtool.compiler.kernels.target import Target

# Dense layers of int8 for RISC-V vectors, which are of outputs.
#
# The inner loops and the layout of the packed weights: crt/include/mt_rvv_tile_int8.h.


@dataclass(frozen=True)
class Gemv(BaseSchedule):
    """As many outputs at a time as a vector has; some rows share each weight."""

    name = "rvv_rows"

    tile: str = knob("", *TILES, meaning=TILE_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """int8 to int8."""
        return target.has_rvv and VectorEpilogue.of(node, graph) is not None

    def _tile(self, node: Node, graph: Graph) -> Tile:
        (rows, depth), epilogue = graph.types[node.inputs[0]].shape, VectorEpilogue.of(node, graph)
        outputs = graph.types[node.outputs[0]].shape[1]
        return TILES.get(self.tile) or best(rows, depth, outputs, "" if epilogue is None else epilogue.kind)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """The results, if something follows them."""
        epilogue = VectorEpilogue.of(node, graph)
        return 0 if epilogue is None or epilogue.rest is None else graph.types[node.outputs[0]].count

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The tiles', 6 instructions an output that something follows."""
        (rows, depth), epilogue = graph.types[node.inputs[0]].shape, VectorEpilogue.of(node, graph)
        assert epilogue is not None
        outputs = graph.types[node.outputs[0]].shape[1]
        after = 6.0 * rows * outputs if epilogue.rest is not None else 0.0
        return self._tile(node, graph).cost(rows, depth, outputs, epilogue.kind) + after

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        epilogue = VectorEpilogue.of(node, graph)
        assert epilogue is not None
        rows, depth = graph.types[node.inputs[0]].shape
        body = template(
            "kernels/dense/rvv/gemv_int8.c.j2",
            rows=rows,
            depth=depth,
            outputs=graph.types[node.outputs[0]].shape[1],
            function=self._tile(node, graph).function + epilogue.kind,
            epilogue=epilogue,
            rest=lambda acc, offset, channel, row: epilogue.rest_text(node, graph, acc, offset, channel, row),
        )
        packed = epilogue.packed(graph.constants[node.inputs[1]].T)
        scratch = "int8_t" if epilogue.rest is not None else ""
        return epilogue.kernel(node, graph, body, packed, epilogue.layout_of("input"), "mt_rvv_tile_int8.h", scratch)


SCHEDULES = (Gemv(),)
