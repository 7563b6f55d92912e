"""Schedules of conv2d with int16 activations for SIMD32: three pixels by two channels.

The inner loops and the layout of the packed weights are in crt/include/mt_dsp16_columns.h.
"""

import math
from dataclasses import dataclass

import numpy as np

from mtool.ir import Graph, Node
from mtool.ir.types import Array
from mtool.ops.conv2d.dsp16_weights import Kind, pack
from mtool.ops.conv2d.dsp_columns import UNROLLS
from mtool.ops.conv2d.dsp_weights import round_up
from mtool.ops.conv2d.schedules import Conv
from mtool.ops.requantise import Int16Epilogue
from mtool.ops.schedule import BaseSchedule, Kernel, Target, knob, residual_operands, template

HEADER = "mt_dsp16_columns.h"


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

    epilogue: Int16Epilogue
    stream: Array
    kind: Kind

    @classmethod
    def of(cls, node: Node, graph: Graph, order: Array, depth: int, groups: int, packing: str) -> "Packed | None":
        """Pack a node's weights; None: the schedules are not for it.

        Args:
            node: a conv2d.
            graph: its graph.
            order: the place in the filter of each element of a column, -1 for filling.
            depth: what a column is filled up to, a multiple of 4.
            groups: of channels.
            packing: see `pack`.
        """
        epilogue, weights, bias = Int16Epilogue.of(node, graph), *(graph.constants[node.inputs[n]] for n in (1, 2))
        kind = Kind.of(weights, bias, packing)
        if epilogue is None or kind is None:
            return None
        flat = weights.reshape(weights.shape[0], -1)
        filters = np.concatenate([flat, np.zeros((flat.shape[0], 1), flat.dtype)], axis=1)[:, order]
        split = (np.split(data, groups) for data in (filters, bias, epilogue.scale))
        parts = [pack(w, b, s, depth, 1 if kind.long else 2, packing) for w, b, s in zip(*split, strict=True)]
        return cls(epilogue, np.concatenate(parts), kind)


def results_aside(conv: Conv, epilogue: Int16Epilogue | None) -> int:
    """Return how many results are not stored directly: all three pixels', or those of the unwanted ones."""
    channels = conv.out_channels // conv.group
    direct = (epilogue is None or epilogue.rest is None) and channels % 2 == 0
    return round_up(channels, 2) * (3 if not direct else 1 if conv.pixels % 3 else 0)


PACKING_MEANING = "of weights: halves are pairs of int16; auto: bytes that are widened in the loop, if they are int8"


@dataclass(frozen=True)
class _Columns(BaseSchedule):
    """What both schedules share."""

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

    def _packed(self, node: Node, graph: Graph) -> Packed | None:
        conv = Conv.of(node, graph)
        return Packed.of(node, graph, self._order(conv), self._padded(conv), conv.group, self.packing)

    def _tiles(self, node: Node, graph: Graph) -> float:
        """Instructions of all tiles: the dot products, and 60 for two channels of three pixels."""
        conv, packed = Conv.of(node, graph), self._packed(node, graph)
        assert packed is not None
        depth = self._order(conv).size
        pairs = conv.group * math.ceil(conv.out_channels / conv.group / 2)
        results = 300 if packed.kind.long else 60
        after = 8 * conv.pixels * conv.out_channels if packed.epilogue.rest is not None else 0
        dots = dot_cost(depth, self._unroll(depth), packed.kind)
        return math.ceil(conv.pixels / 3) * pairs * (dots + results) + after


class Pointwise(_Columns):
    """1x1: three pixels stand side by side and meet all channels, two at a time. In place either way.

    A layer that grows runs backwards, so that its output may start where its input starts.
    """

    name = "dsp16_pointwise"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """1x1 of one image, int16 to int16."""
        conv = Conv.of(node, graph)
        shape = conv.is_pointwise and conv.group == 1 and conv.batch == 1
        return target.has_dsp and shape and self._packed(node, graph) is not None

    def _order(self, conv: Conv) -> Array:
        return np.arange(conv.channels)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Three columns, and results that are not stored directly."""
        conv = Conv.of(node, graph)
        return 6 * self._padded(conv) + 2 * results_aside(conv, Int16Epilogue.of(node, graph))

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, and a residual operand that is not its input."""
        residuals = residual_operands(node, graph)
        if node.attrs["epilogue"].operands() & {0} or graph.types[node.outputs[0]].dtype.size != 2:
            return residuals
        return (0, *residuals)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """The tiles, 6 to copy two elements of three pixels."""
        conv = Conv.of(node, graph)
        return self._tiles(node, graph) + math.ceil(conv.pixels / 3) * 3 * conv.channels

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, packed = Conv.of(node, graph), self._packed(node, graph)
        assert packed is not None
        epilogue = packed.epilogue
        body = template(
            "conv2d/dsp16_pointwise.c.j2",
            conv=conv,
            function=packed.kind.function("mt_dsp16", self._unroll(conv.channels)),
            long=packed.kind.long,
            depth=self._padded(conv),
            epilogue=epilogue,
            aside=results_aside(conv, epilogue) > 0,
            backward=conv.out_channels > conv.channels,
            rest=lambda acc, offset: epilogue.rest_text(node, graph, acc, offset),
        )
        return epilogue.kernel(node, graph, body, packed.stream, HEADER)


class Patch(_Columns):
    """k x k: the patches of three pixels are gathered into columns, which meet all channels, two at a time.

    Rows of a patch are copied by words inside the image, element by element on its border. Taps whose channels do not
    stand side by side (groups, dilations) are gathered first.
    """

    name = "dsp16_patch"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image, int16 to int16."""
        conv = Conv.of(node, graph)
        shape = conv.batch == 1 and not conv.is_depthwise
        return target.has_dsp and shape and self._packed(node, graph) is not None

    def _by_taps(self, conv: Conv) -> bool:
        return conv.group > 1 or conv.dilation[1] > 1

    def _order(self, conv: Conv) -> Array:
        """Whole rows, each filled up to pairs; or all taps."""
        height, row = (1, conv.depth) if self._by_taps(conv) else (conv.kernel[0], conv.kernel[1] * conv.channels)
        places = np.pad(np.arange(height * row).reshape(height, row), ((0, 0), (0, row % 2)), constant_values=-1)
        return places.reshape(-1)

    def _gathered(self, conv: Conv) -> int:
        """Elements of a patch, or of a row of it, that are gathered before they become a column."""
        return conv.depth if self._by_taps(conv) else conv.kernel[1] * conv.channels

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Three columns, and what is gathered or not stored directly."""
        conv = Conv.of(node, graph)
        return 6 * self._padded(conv) + 2 * max(
            results_aside(conv, Int16Epilogue.of(node, graph)), self._gathered(conv)
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
        conv, packed = Conv.of(node, graph), self._packed(node, graph)
        assert packed is not None
        epilogue = packed.epilogue
        body = template(
            "conv2d/dsp16_patch.c.j2",
            conv=conv,
            by_taps=self._by_taps(conv),
            function=packed.kind.function("mt_dsp16", self._unroll(self._order(conv).size)),
            long=packed.kind.long,
            depth=self._padded(conv),
            stream=packed.stream.size // conv.group,
            epilogue=epilogue,
            rest=lambda acc, offset: epilogue.rest_text(node, graph, acc, offset),
        )
        return epilogue.kernel(node, graph, body, packed.stream, HEADER)
