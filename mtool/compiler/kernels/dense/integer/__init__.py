"""Dense layers for cores that have nothing but a multiplier of integers."""

from dataclasses import dataclass

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.code_price import price_of_code
from mtool.compiler.kernels.epilogues import EpilogueText
from mtool.compiler.kernels.integer import (
    CHANNELS_MEANING,
    COLUMNS_MEANING,
    RESULT,
    UNROLL_MEANING,
    Tile,
    Work,
    is_narrow,
    layout,
    pack,
    reads_activations,
)
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel, knob
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weighted_sum import stored_weights, weight_offset

# Dense layers of 8 bits for cores without SIMD. See mtool/compiler/kernels/integer/__init__.py.


@dataclass(frozen=True)
class Gemv(BaseSchedule):
    """Some outputs at a time share each input element; of two rows, two rows each weight."""

    name = "int_rows"

    columns: int = knob(0, 1, 2, meaning=COLUMNS_MEANING)
    channels: int = knob(0, 1, 2, 4, 6, 8, meaning=CHANNELS_MEANING)
    unroll: int = knob(0, 1, 2, 4, meaning=UNROLL_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """8 bits by 8 bits."""
        return target.registers > 0 and is_narrow(node, graph)

    def _work(self, node: Node, graph: Graph) -> Work:
        rows, depth = graph.types[node.inputs[0]].shape
        return Work(
            rows,
            graph.types[node.outputs[0]].shape[1],
            depth,
            reads_activations(node, graph),
            price_of_code(node, graph),
        )

    def _tile(self, node: Node, graph: Graph, target: Target) -> Tile:
        work = self._work(node, graph)
        columns = 1 if work.vectors % (self.columns or 2) else self.columns
        return Tile.best(target, work, columns, self.channels, self.unroll)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The tiles', 12 instructions more an output."""
        work = self._work(node, graph)
        return self._tile(node, graph, target).cost(target, work) + RESULT * work.vectors * work.outputs

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        epilogue, tile, work = EpilogueText(node, graph), self._tile(node, graph, target), self._work(node, graph)
        ties = epilogue.beside_halves(tile.channels)
        body = template(
            "kernels/dense/integer/gemv_int8.c.j2",
            ties=ties is not None,
            rows=work.vectors,
            depth=work.depth,
            outputs=work.outputs,
            tile=tile,
            target=target,
            offset=weight_offset(node, graph),
            x=graph.types[node.inputs[0]].dtype.c,
            epilogue=epilogue,
        )
        weights = pack(stored_weights(node, graph), tile.channels)
        return epilogue.kernel(body, weights, layout=layout(tile.channels), ties=ties)


SCHEDULES = (Gemv(),)
