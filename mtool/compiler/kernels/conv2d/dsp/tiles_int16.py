"""Register tiles of int16 activations for SIMD32, which 1x1 and im2col share: three pixels by two channels.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_tile_3x2_int16.h.
"""

import math
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.dsp.loops import UNROLLS
from mtool.compiler.kernels.dsp.weights_int16 import PACKING_MEANING, Kind, pack
from mtool.compiler.kernels.epilogues.integer import Int16Epilogue
from mtool.compiler.kernels.epilogues.sums import SumEpilogue, epilogue_of_int16
from mtool.compiler.kernels.knobs import knob
from mtool.compiler.kernels.packing import packed_by_rows
from mtool.compiler.kernels.padding import round_up
from mtool.compiler.kernels.schedule import BaseSchedule

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
            return pack(columns, bias, scale, depth, together, packing)

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
