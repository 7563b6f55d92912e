"""Convolutions of int8 for Helium whose patches are 64 bytes at most: a few channels, or a small kernel.

The inner loops and the layout of the packed weights: crt/include/mt_mve_pixels_int8.h.
"""

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.in_place import own_in_place, shrinks_by_rows
from mtool.compiler.kernels.conv2d.mve.pointwise_pixels_int8 import EACH, HEADER, LAYOUT, TOGETHER, pack, takes
from mtool.compiler.kernels.epilogues.integer import Int8Epilogue
from mtool.compiler.kernels.mve.vectors import INT8_LANES
from mtool.compiler.kernels.padding import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.scaling import FloatScaling
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
from mtool.compiler.kernels.target import Target

TOGETHER_PIXELS = (8, 6, 4, 2)  # that are gathered before they are multiplied


class Columns(BaseSchedule):
    """k x k, patches of at most 64 bytes: gathered by rows of a patch, a vector each, padding by predication.

    Two pixels stay in registers, times all channels, four at a time. A row of results may be held back, so that the
    output can take the input's storage.
    """

    name = "mve_columns"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """No dilation, no groups, rows of a patch of 16 bytes at most, one image, int8 to all of int8 by floats."""
        conv, epilogue = Conv.of(node, graph), Int8Epilogue.of(node, graph)
        shape = conv.group == 1 and conv.batch == 1 and conv.dilation == (1, 1) and not conv.is_pointwise
        if not (target.has_mve and shape and conv.kernel[1] * conv.channels <= INT8_LANES):
            return False
        if epilogue is None or epilogue.rest is not None or not conv.meets_the_image:
            return False
        return takes(epilogue, graph.constants[node.inputs[1]], conv.depth)

    def _together(self, conv: Conv) -> int:
        """How many pixels are gathered: a part of a row, if that lets rows be held back."""
        return next((many for many in TOGETHER_PIXELS if shrinks_by_rows(conv, many)), TOGETHER_PIXELS[0])

    def _by_rows(self, conv: Conv) -> bool:
        return shrinks_by_rows(conv, self._together(conv))

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """The columns, what is written behind the last, and a row that is held back."""
        conv = Conv.of(node, graph)
        row = conv.out_size[1] * conv.out_channels if self._by_rows(conv) else 0
        return self._together(conv) * round_up(conv.depth, INT8_LANES) + INT8_LANES + row

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """The input, row by row."""
        return own_in_place(node, graph, possible=self._by_rows(Conv.of(node, graph)))

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """32 to 72 instructions for two pixels and four channels; 5 a row of a patch, 20 a pixel."""
        conv = Conv.of(node, graph)
        each = EACH[round_up(conv.depth, INT8_LANES) // INT8_LANES - 1]
        gathered = conv.pixels * (5 * conv.kernel[0] + 20)
        return gathered + round_up(conv.pixels, 2) / 2 * (conv.out_channels / TOGETHER * each + 20)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue = Conv.of(node, graph), Int8Epilogue.of(node, graph)
        assert epilogue is not None and isinstance(epilogue.scaling, FloatScaling)
        filters = graph.constants[node.inputs[1]].reshape(conv.out_channels, -1)
        padded = round_up(conv.depth, INT8_LANES)
        body = template(
            "kernels/conv2d/mve/im2col_columns_int8.c.j2",
            conv=conv,
            epilogue=epilogue,
            padded=padded,
            blocks=padded // INT8_LANES,
            together=self._together(conv),
            by_rows=self._by_rows(conv),
        )
        weights = pack(filters, epilogue.bias, epilogue.scaling.scale)
        return epilogue.kernel(node, graph, body, weights, LAYOUT, HEADER, "int8_t")


SCHEDULE = Columns()
