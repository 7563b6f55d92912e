"""Schedules of conv2d for SIMD32 (Armv7E-M and Armv8-M with DSP): three pixels by two channels, int8.

The inner loops and the layout of the packed weights are in crt/include/mt_dsp_columns.h.
"""

import math
from dataclasses import dataclass

import numpy as np

from mtool.ir import Graph, Node
from mtool.ops.conv2d.dsp_weights import Packed, round_up
from mtool.ops.conv2d.schedules import Conv
from mtool.ops.requantise import Int8Epilogue
from mtool.ops.schedule import BaseSchedule, Kernel, Target, knob, residual_operands, template

UNROLLS = (28, 16, 8)  # steps of k an iteration: the loops that mt_dsp_columns.h has
HEADER = "mt_dsp_columns.h"


def dot_cost(depth: int, unroll: int, *, apart: bool = False) -> int:
    """Return instructions of 3 x 2 dot products: 17 for four steps of k (19 of weights apart), 3 an iteration."""
    return round_up(depth, unroll) // unroll * (unroll // 4 * (19 if apart else 17) + 3)


def best_unroll(depth: int) -> int:
    """Return the unrolling with the fewest instructions."""
    return min(UNROLLS, key=lambda unroll: dot_cost(depth, unroll))


@dataclass(frozen=True, slots=True)
class Columns:
    """How the patches of a convolution stand in the columns.

    `rows` bytes of a patch row are copied by words; with `lasts` the one byte that a row has more goes into a word
    for all rows. `by_taps`: a tap's channels at a time, since they do not stand side by side. `order` has the place in
    the kernel of each byte of the column, -1 for filling.
    """

    row_words: int
    lasts: bool
    order: tuple[int, ...]
    by_taps: bool = False

    @classmethod
    def of(cls, conv: Conv) -> "Columns":
        """Choose: whole rows, rows and last bytes, rows filled up to words, or taps."""
        height, row = conv.kernel[0], conv.kernel[1] * conv.channels
        if conv.group > 1 or (conv.channels % 4 and conv.dilation != (1, 1)):
            order = (*range(conv.depth), *[-1] * (-conv.depth % 4))
            return cls(len(order) // 4, False, order, True)
        if row % 4 == 0:
            return cls(row // 4, False, tuple(range(height * row)))
        if row % 4 == 1 and row > 4 and height <= 4:
            body = [y * row + i for y in range(height) for i in range(row - 1)]
            lasts = [y * row + row - 1 for y in range(height)]
            return cls(row // 4, True, (*body, *lasts, *[-1] * (4 - height)))
        filled = round_up(row, 4)
        places = (y * row + i if i < row else -1 for y in range(height) for i in range(filled))
        return cls(filled // 4, False, tuple(places))


def shrinks_by_rows(conv: Conv, pixels: int) -> bool:
    """Whether each row of outputs ends before the input that the next one reads, and is whole groups of `pixels`."""
    out_row, in_row = conv.out_size[1] * conv.out_channels, conv.size[1] * conv.channels
    return conv.out_size[1] % pixels == 0 and all(
        (y + 1) * out_row <= max(0, (y + 1) * conv.stride[0] - conv.pad[0]) * in_row
        for y in range(conv.out_size[0] - 1)
    )


def results_aside(conv: Conv, epilogue: Int8Epilogue | None) -> int:
    """Return the bytes of results that are not stored directly: all three pixels', or those of the unwanted ones."""
    channels = conv.out_channels // conv.group
    direct = (epilogue is None or epilogue.rest is None) and channels % 2 == 0
    return round_up(channels, 2) * (3 if not direct else 1 if conv.pixels % 3 else 0)


@dataclass(frozen=True)
class _Columns(BaseSchedule):
    """What both schedules share."""

    unroll: int = knob(0, *UNROLLS, meaning="steps of k an iteration; auto: with the fewest instructions")

    def _unroll(self, depth: int) -> int:
        return self.unroll or best_unroll(depth)

    def _padded(self, depth: int) -> int:
        return round_up(depth, self._unroll(depth))


class Pointwise(_Columns):
    """1x1: three pixels are widened to int16 and meet all channels, two at a time. In place either way.

    A layer that grows runs backwards, so that its output may start where its input starts.
    """

    name = "dsp_pointwise"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """1x1 of one image, int8 to int8, more than one input.

        A pixel's last word may reach into the pixels behind it: of one channel they would have to be three.
        """
        conv = Conv.of(node, graph)
        shape = conv.is_pointwise and conv.group == 1 and conv.batch == 1 and conv.channels > 1
        return target.has_dsp and shape and self._packed(node, graph) is not None

    def _packed(self, node: Node, graph: Graph) -> Packed | None:
        epilogue, weights = Int8Epilogue.of(node, graph), graph.constants[node.inputs[1]]
        if epilogue is None or weights.dtype != np.int8:
            return None
        depth = Conv.of(node, graph).channels
        filters = weights.reshape(weights.shape[0], depth)
        return Packed.of(epilogue, filters, graph.constants[node.inputs[2]], self._padded(depth))

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Three columns, results that are not stored directly, the last pixels if they are not whole words."""
        conv = Conv.of(node, graph)
        copied = 2 * conv.channels + round_up(conv.channels, 4) if conv.channels % 4 else 0  # as far as words reach
        aside = results_aside(conv, Int8Epilogue.of(node, graph))
        return 6 * self._padded(conv.channels) + aside + copied

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, and a residual operand that is not its input."""
        residuals = residual_operands(node, graph)
        if node.attrs["epilogue"].operands() & {0} or graph.types[node.outputs[0]].dtype.size != 1:
            return residuals
        return (0, *residuals)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The dot products, 57 for two channels of three pixels, 14 to widen four elements of three."""
        conv = Conv.of(node, graph)
        packed = self._packed(node, graph)
        apart = packed is not None and packed.apart
        tile = conv.out_channels / 2 * (dot_cost(conv.channels, self._unroll(conv.channels), apart=apart) + 57)
        return math.ceil(conv.pixels / 3) * (tile + 14 * conv.channels / 4)

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, packed = Conv.of(node, graph), self._packed(node, graph)
        assert packed is not None
        epilogue = packed.epilogue
        unroll = self._unroll(conv.channels)
        body = template(
            "conv2d/dsp_pointwise.c.j2",
            conv=conv,
            function=packed.function(unroll),
            depth=round_up(conv.channels, unroll),
            results=results_aside(conv, epilogue),
            epilogue=epilogue,
            backward=conv.out_channels > conv.channels,
            rest=lambda acc, offset: epilogue.rest_text(node, graph, acc, offset),
        )
        return epilogue.kernel(node, graph, body, packed.stream, HEADER)


class Patch(_Columns):
    """k x k: the patches of three pixels are gathered into columns of int16, which meet all channels, two at a time.

    Rows of a patch are copied by words inside the image; byte by byte on its border, unless a pixel is whole words.
    """

    name = "dsp_patch"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image, int8 to int8, more than one input of a group."""
        conv = Conv.of(node, graph)
        shape = conv.batch == 1 and not conv.is_depthwise
        return target.has_dsp and shape and self._packed(node, graph) is not None

    def _packed(self, node: Node, graph: Graph) -> Packed | None:
        epilogue, weights = Int8Epilogue.of(node, graph), graph.constants[node.inputs[1]]
        if epilogue is None or weights.dtype != np.int8:
            return None
        conv = Conv.of(node, graph)
        order = np.asarray(Columns.of(conv).order)
        flat = weights.reshape(weights.shape[0], -1)
        filters = np.concatenate([flat, np.zeros((flat.shape[0], 1), np.int8)], axis=1)[:, order]
        padded = self._padded(order.size)
        return Packed.of(epilogue, filters, graph.constants[node.inputs[2]], padded, conv.group)

    def _aside(self, conv: Conv, epilogue: Int8Epilogue | None, columns: Columns) -> int:
        """Bytes for one patch of a border pixel, or for results that are not stored directly."""
        gathered = len(columns.order) if conv.channels % 4 or columns.by_taps else 0
        return max(results_aside(conv, epilogue), gathered)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Three columns, a row of results if they are stored a row at a time, a border patch."""
        conv, epilogue = Conv.of(node, graph), Int8Epilogue.of(node, graph)
        columns = Columns.of(conv)
        depth = len(columns.order)
        row = conv.out_size[1] * conv.out_channels if self._by_rows(node, graph) else 0
        return 6 * self._padded(depth) + row + self._aside(conv, epilogue, columns)

    def _by_rows(self, node: Node, graph: Graph) -> bool:
        """Whether the output may take the input's storage, if a row of it is held back until it is whole."""
        epilogue, conv = Int8Epilogue.of(node, graph), Conv.of(node, graph)
        return epilogue is not None and epilogue.rest is None and conv.group == 1 and shrinks_by_rows(conv, 3)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if it shrinks fast enough; a residual operand that is not its input."""
        residuals = residual_operands(node, graph)
        return (0, *residuals) if self._by_rows(node, graph) else residuals

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The dot products, 57 for two channels of three pixels, 8 for four gathered elements."""
        conv = Conv.of(node, graph)
        columns = Columns.of(conv)
        depth = len(columns.order)
        pairs = conv.group * math.ceil(conv.out_channels / conv.group / 2)
        packed = self._packed(node, graph)
        apart = packed is not None and packed.apart
        tile = pairs * (dot_cost(depth, self._unroll(depth), apart=apart) + 57)
        gathering = 8 * depth / 4 + (12 * math.prod(conv.kernel) if columns.by_taps else 20 * conv.kernel[0])
        return math.ceil(conv.pixels / 3) * tile + conv.pixels * conv.group * gathering

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, packed = Conv.of(node, graph), self._packed(node, graph)
        assert packed is not None
        epilogue = packed.epilogue
        columns = Columns.of(conv)
        unroll = self._unroll(len(columns.order))
        body = template(
            "conv2d/dsp_patch.c.j2",
            conv=conv,
            columns=columns,
            function=packed.function(unroll),
            depth=round_up(len(columns.order), unroll),
            stream=packed.stream.size // conv.group,
            epilogue=epilogue,
            aside=self._aside(conv, epilogue, columns) > 0,
            by_rows=self._by_rows(node, graph),
            rest=lambda acc, offset: epilogue.rest_text(node, graph, acc, offset),
        )
        return epilogue.kernel(node, graph, body, packed.stream, HEADER)
