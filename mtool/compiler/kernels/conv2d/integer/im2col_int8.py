"""Convolutions of 8 bits for cores without SIMD. See mtool/compiler/kernels/integer/tile.py."""

from dataclasses import dataclass

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.code_price import price_of_code
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.in_place import pointwise_in_place
from mtool.compiler.kernels.epilogues.expression import EpilogueText
from mtool.compiler.kernels.integer.tile import (
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
from mtool.compiler.kernels.knobs import knob
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weight_offset import stored_weights, weight_offset


@dataclass(frozen=True)
class Im2col(BaseSchedule):
    """Gather the input patches of some pixels, which are then multiplied with all output channels, some at a time."""

    name = "int_columns"

    columns: int = knob(0, 1, 2, 3, 4, meaning=COLUMNS_MEANING)
    channels: int = knob(0, 1, 2, 4, 6, 8, meaning=CHANNELS_MEANING)
    unroll: int = knob(0, 1, 2, 4, meaning=UNROLL_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """8 bits by 8 bits, and not as many groups as channels."""
        return target.registers > 0 and is_narrow(node, graph) and not Conv.of(node, graph).is_depthwise

    def _work(self, node: Node, graph: Graph) -> Work:
        conv = Conv.of(node, graph)
        return Work(
            conv.pixels,
            conv.out_channels // conv.group,
            conv.depth,
            reads_activations(node, graph),
            price_of_code(node, graph),
        )

    def _tile(self, node: Node, graph: Graph, target: Target) -> Tile:
        return Tile.best(target, self._work(node, graph), self.columns, self.channels, self.unroll)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """As many patches as a tile has at most."""
        conv = Conv.of(node, graph)
        return min(self.columns or 2, conv.pixels) * conv.depth

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if pointwise and not growing; a residual operand that is not its input."""
        return pointwise_in_place(node, graph)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The tiles', 1.5 instructions a gathered element, 8 a row of a patch, 12 more an output."""
        conv = Conv.of(node, graph)
        products = self._tile(node, graph, target).cost(target, self._work(node, graph))
        rows, outputs = 0 if conv.is_pointwise else conv.kernel[0], conv.out_channels // conv.group
        return conv.batch * conv.group * (products + conv.pixels * (1.5 * conv.depth + 8 * rows + RESULT * outputs))

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue = Conv.of(node, graph), EpilogueText(node, graph)
        tile = self._tile(node, graph, target)
        weights = pack(stored_weights(node, graph).reshape(conv.out_channels, -1), tile.channels, conv.group)
        ties = epilogue.beside_halves(tile.channels)
        body = template(
            "kernels/conv2d/integer/im2col_int8.c.j2",
            ties=ties is not None,
            conv=conv,
            tile=tile,
            packed=weights.size,
            target=target,
            offset=weight_offset(node, graph),
            x=graph.types[node.inputs[0]].dtype.c,
            epilogue=epilogue,
        )
        return epilogue.kernel(body, weights, graph.types[node.inputs[0]].dtype.c, layout(tile.channels), ties)


SCHEDULE = Im2col()
