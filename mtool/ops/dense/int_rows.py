"""Schedule of dense for cores that have nothing but a multiplier of integers. See mtool/ops/integer_tile.py."""

from dataclasses import dataclass

from mtool.ir import Graph, Node
from mtool.ops.conv2d.schedules import EpilogueText
from mtool.ops.integer_tile import Tile, Work, is_narrow, pack, price_of_code, reads_activations
from mtool.ops.schedule import BaseSchedule, Kernel, Target, knob, template


@dataclass(frozen=True)
class Rows(BaseSchedule):
    """Some outputs at a time share each input element; of two rows, two rows each weight.

    columns: rows of a tile, which divide them. channels: outputs of a tile. unroll: elements of the depth in one turn
    of the loop, which divide it. All at most; 0: as the core has registers, and as the work is worth the code.
    """

    name = "int_rows"

    columns: int = knob(0, 1, 2)
    channels: int = knob(0, 1, 2, 4, 6, 8)
    unroll: int = knob(0, 1, 2, 4)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """8 bits by 8 bits."""
        return target.registers > 0 and is_narrow(node, graph)

    def _work(self, node: Node, graph: Graph) -> Work:
        rows, depth = graph.types[node.inputs[0]].shape
        return Work(
            rows, graph.types[node.outputs[0]].shape[1], depth, reads_activations(node, graph), price_of_code(graph)
        )

    def _tile(self, node: Node, graph: Graph, target: Target) -> Tile:
        work = self._work(node, graph)
        columns = 1 if work.vectors % (self.columns or 2) else self.columns
        return Tile.best(target, work, columns, self.channels, self.unroll)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The tiles'."""
        return self._tile(node, graph, target).cost(target, self._work(node, graph))

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        epilogue, tile, work = EpilogueText(node, graph), self._tile(node, graph, target), self._work(node, graph)
        body = template(
            "dense/int_rows.c.j2",
            rows=work.vectors,
            depth=work.depth,
            outputs=work.outputs,
            tile=tile,
            target=target,
            x=graph.types[node.inputs[0]].dtype.c,
            epilogue=epilogue,
        )
        return epilogue.kernel(body, pack(graph.constants[node.inputs[1]], tile.channels))
