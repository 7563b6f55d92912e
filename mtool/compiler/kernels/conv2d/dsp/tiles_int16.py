"""Register tiles of int16 activations for SIMD32, which 1x1 and im2col share: three pixels by two channels.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_tile_3x2_int16.h.
"""

import math
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv, own_in_place
from mtool.compiler.kernels.dsp import PACKING_MEANING, UNROLLS, Kind, pack_int16
from mtool.compiler.kernels.epilogues import Int16Epilogue, SumEpilogue, epilogue_of_int16
from mtool.compiler.kernels.packing import packed_by_rows, round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel, knob
from mtool.compiler.kernels.target import Target

HEADER = "mt_dsp_tile_3x2_int16.h"


def dot_cost(depth: int, unroll: int, kind: Kind) -> float:
    """Return instructions of 3 x 2 dot products: 19 (16 of halves) for four steps of k, 40 with sums of 64 bits."""
    if kind.long:
        return 10.0 * depth
    return round_up(depth, unroll) // unroll * (unroll // 4 * (16 if kind.halves else 19) + 3)


def best_unroll(depth: int) -> int:
    """Return the unrolling with the fewest instructions."""
    return min(UNROLLS, key=lambda unroll: dot_cost(depth, unroll, Kind(False, False)))


@dataclass(frozen=True, slots=True)
class Packed:
    """A layer's epilogue and packed weights [groups, ...], and the loops that they are for."""

    epilogue: Int16Epilogue | SumEpilogue
    stream: Array
    kind: Kind

    @classmethod
    def of(cls, node: Node, graph: Graph, order: Array, depth: int, groups: int, packing: str) -> "Packed":
        """Pack a node's weights.

        Args:
            node: a conv2d.
            graph: its graph.
            order: the index into the filter of each element of a column, -1 for filling.
            depth: what a column is filled up to, a multiple of 4.
            groups: of channels.
            packing: see `pack`.
        """
        epilogue, weights, bias = epilogue_of_int16(node, graph), *(graph.constants[node.inputs[n]] for n in (1, 2))
        kind = Kind.of(weights, bias, packing)
        assert epilogue is not None and kind is not None
        together = 1 if kind.long else 2
        scales = [] if isinstance(epilogue, SumEpilogue) else [epilogue.scale]

        def rows(weights: Array, bias: Array, scale: Array | None = None) -> Array:
            columns = np.pad(weights.reshape(len(weights), -1), ((0, 0), (0, 1)))[:, order]
            return pack_int16(columns, bias, scale, depth, together, packing)

        return cls(epilogue, packed_by_rows(rows, together, weights, bias, *scales, groups=groups), kind)

    @property
    def layout(self) -> str:
        """What stands where in a row of the stream."""
        return self.kind.layout(1 if self.kind.long else 2, scaled=not isinstance(self.epilogue, SumEpilogue))

    @property
    def stem(self) -> str:
        """What the names of the runtime's functions begin with."""
        return "mt_dsp16_sums" if isinstance(self.epilogue, SumEpilogue) else "mt_dsp16"


def staged_results(conv: Conv, epilogue: Int16Epilogue | SumEpilogue | None) -> int:
    """Return how many int16 results are not stored directly: all three pixels', or those of the unwanted ones.

    A sum counts twice.
    """
    channels = conv.out_channels // conv.group
    if isinstance(epilogue, SumEpilogue):
        return 6 * round_up(channels, 2)
    stored_directly = (epilogue is None or epilogue.rest is None) and channels % 2 == 0
    return round_up(channels, 2) * (3 if not stored_directly else 1 if conv.pixels % 3 else 0)


@dataclass(frozen=True)
class Tiles(BaseSchedule):
    """The common part of both schedules."""

    unroll: int = knob(0, *UNROLLS, meaning="steps of k an iteration; auto: with the fewest instructions")
    packing: str = knob("", "halves", meaning=PACKING_MEANING)

    def _order(self, conv: Conv) -> Array:
        raise NotImplementedError

    def _unroll(self, depth: int) -> int:
        return self.unroll or best_unroll(depth)

    def _padded(self, conv: Conv) -> int:
        """Elements of a column."""
        depth = self._order(conv).size
        return round_up(depth, self._unroll(depth))

    def _kind(self, node: Node, graph: Graph) -> Kind | None:
        return Kind.of(graph.constants[node.inputs[1]], graph.constants[node.inputs[2]], self.packing)

    def takes(self, node: Node, graph: Graph) -> bool:
        """Whether the weights are int8 or int16, and the epilogue one that tiles have by heart."""
        return self._kind(node, graph) is not None and epilogue_of_int16(node, graph) is not None

    def packed(self, node: Node, graph: Graph) -> Packed:
        """Return the weights in the columns' order."""
        conv = Conv.of(node, graph)
        return Packed.of(node, graph, self._order(conv), self._padded(conv), conv.group, self.packing)

    def _tiles(self, node: Node, graph: Graph) -> float:
        """Instructions of all tiles: the dot products, and 60 for two channels of three pixels."""
        conv, epilogue, kind = Conv.of(node, graph), epilogue_of_int16(node, graph), self._kind(node, graph)
        assert epilogue is not None and kind is not None
        depth = self._order(conv).size
        pairs = conv.group * math.ceil(conv.out_channels / conv.group / 2)
        sums = isinstance(epilogue, SumEpilogue)
        results = 300 if kind.long else 20 if sums else 60
        after = (14 if sums else 8) * conv.pixels * conv.out_channels if epilogue.rest is not None else 0
        dots = dot_cost(depth, self._unroll(depth), kind)
        return math.ceil(conv.pixels / 3) * pairs * (dots + results) + after


# Convolutions of int16 activations for SIMD32: patches become columns.


class Im2col(Tiles):
    """k x k: the patches of three pixels are gathered into columns, multiplied with all channels, two at a time.

    Rows of a patch are copied by words inside the image, element by element on its border. Taps whose channels do not
    stand side by side (groups, dilations) are gathered first.
    """

    name = "dsp16_patch"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image, int16 to int16, or sums of 32 bits."""
        conv = Conv.of(node, graph)
        shape = conv.batch == 1 and not conv.is_depthwise
        return target.has_dsp and shape and self.takes(node, graph)

    def _by_taps(self, conv: Conv) -> bool:
        return conv.group > 1 or conv.dilation[1] > 1

    def _order(self, conv: Conv) -> Array:
        """Whole rows, each filled up to pairs; or all taps."""
        height, row = (1, conv.depth) if self._by_taps(conv) else (conv.kernel[0], conv.kernel[1] * conv.channels)
        order = np.pad(np.arange(height * row).reshape(height, row), ((0, 0), (0, row % 2)), constant_values=-1)
        return order.reshape(-1)

    def _gathered(self, conv: Conv) -> int:
        """Elements of a patch, or of a row of it, that are gathered before they become a column."""
        return conv.depth if self._by_taps(conv) else conv.kernel[1] * conv.channels

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Three columns, and what is gathered or not stored directly."""
        conv = Conv.of(node, graph)
        return 6 * self._padded(conv) + 2 * max(
            staged_results(conv, epilogue_of_int16(node, graph)), self._gathered(conv)
        )

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The tiles, 3 for two gathered elements, 20 a row or 12 a tap."""
        conv = Conv.of(node, graph)
        gathering = 1.5 * conv.depth + (20 * conv.kernel[0])
        if self._by_taps(conv):
            gathering += conv.depth + 12 * math.prod(conv.kernel)
        return self._tiles(node, graph) + conv.pixels * conv.group * gathering

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, packed = Conv.of(node, graph), self.packed(node, graph)
        epilogue = packed.epilogue
        body = template(
            "kernels/conv2d/dsp/im2col_int16.c.j2",
            conv=conv,
            by_taps=self._by_taps(conv),
            function=packed.kind.function(packed.stem, self._unroll(self._order(conv).size)),
            long=packed.kind.long,
            depth=self._padded(conv),
            stream=packed.stream.size // conv.group,
            epilogue=epilogue,
            rest=lambda acc, offset, channel: epilogue.rest_text(node, graph, acc, offset, channel),
        )
        return epilogue.kernel(node, graph, body, packed.stream, packed.layout, HEADER, "int32_t")


# 1x1 convolutions of int16 activations for SIMD32.


class Pointwise(Tiles):
    """1x1: three pixels stand side by side and are multiplied with all channels, two at a time. In place either way.

    A layer that grows runs backwards, so that its output may start where its input starts.
    """

    name = "dsp16_pointwise"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """1x1 of one image, int16 to int16, or sums of 32 bits."""
        conv = Conv.of(node, graph)
        shape = conv.is_pointwise and conv.group == 1 and conv.batch == 1
        return target.has_dsp and shape and self.takes(node, graph)

    def _order(self, conv: Conv) -> Array:
        return np.arange(conv.channels)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Three columns, and results that are not stored directly."""
        conv = Conv.of(node, graph)
        return 6 * self._padded(conv) + 2 * staged_results(conv, epilogue_of_int16(node, graph))

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, and a residual operand that is not its input."""
        return own_in_place(node, graph, possible=True)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The tiles, 6 to copy two elements of three pixels."""
        conv = Conv.of(node, graph)
        return self._tiles(node, graph) + math.ceil(conv.pixels / 3) * 3 * conv.channels

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, packed = Conv.of(node, graph), self.packed(node, graph)
        epilogue = packed.epilogue
        body = template(
            "kernels/conv2d/dsp/pointwise_int16.c.j2",
            conv=conv,
            function=packed.kind.function(packed.stem, self._unroll(conv.channels)),
            long=packed.kind.long,
            depth=self._padded(conv),
            epilogue=epilogue,
            staged=staged_results(conv, epilogue) > 0,
            backward=conv.out_channels > conv.channels,
            rest=lambda acc, offset, channel: epilogue.rest_text(node, graph, acc, offset, channel),
        )
        return epilogue.kernel(node, graph, body, packed.stream, packed.layout, HEADER, "int32_t")
