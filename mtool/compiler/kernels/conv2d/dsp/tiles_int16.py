"""Register tiles of int16 activations for SIMD32, which 1x1 and im2col share: three pixels by two channels.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_tile_3x2_int16.h.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mtool.compiler.ir import DType
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv, Tile
from mtool.compiler.kernels.conv2d.tiles import TileSchedule
from mtool.compiler.kernels.dsp import PACKING_MEANING, UNROLLS, Kind, pack_int16
from mtool.compiler.kernels.epilogues import Int16Epilogue, Products, SumEpilogue
from mtool.compiler.kernels.packing import packed_by_rows, round_up
from mtool.compiler.kernels.schedule import knob
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


@dataclass(frozen=True)
class Tiles(TileSchedule[Int16Epilogue | SumEpilogue]):
    """The common part of both schedules."""

    core = "has_dsp"
    forms = (Int16Epilogue, SumEpilogue)
    template = "kernels/conv2d/dsp/tiles_int16.c.j2"
    element = DType.INT16
    scratch_type = "int32_t"
    apart = True

    unroll: int = knob(0, *UNROLLS, meaning="steps of k an iteration; auto: with the fewest instructions")
    packing: str = knob("", "halves", meaning=PACKING_MEANING)

    def fits(self, conv: Conv, epilogue: Int16Epilogue | SumEpilogue) -> bool:
        """Return whether the shape is one of this schedule's, and the weights are int8 or int16."""
        known = Kind.of(epilogue.node, epilogue.graph, self.packing) is not None
        return super().fits(conv, epilogue) and known

    def order(self, conv: Conv) -> Array:
        """Return the index into the filter of each element of a column, -1 for filling."""
        return np.arange(conv.channels)

    def gathering(self, conv: Conv) -> float:
        """Return the instructions that make all columns of all groups."""
        raise NotImplementedError

    def shape(self, conv: Conv) -> Tile:
        """Three pixels by two channels."""
        return Tile(3, 2)

    def _unroll(self, conv: Conv) -> int:
        return self.unroll or best_unroll(self.order(conv).size)

    def depth(self, conv: Conv) -> int:
        """Whole iterations."""
        return round_up(self.order(conv).size, self._unroll(conv))

    def products(self, conv: Conv, epilogue: Int16Epilogue | SumEpilogue, target: Target) -> Products:
        """Two channels together, or one with sums of 64 bits."""
        kind = Kind.of(epilogue.node, epilogue.graph, self.packing)
        assert kind is not None
        depth, order, together = self.depth(conv), self.order(conv), 1 if kind.long else 2
        scaled = isinstance(epilogue, Int16Epilogue)
        scales = [epilogue.scale] if isinstance(epilogue, Int16Epilogue) else []

        def rows(weights: Array, bias: Array, scale: Array | None = None) -> Array:
            columns = np.pad(weights.reshape(len(weights), -1), ((0, 0), (0, 1)))[:, order]
            return pack_int16(columns, bias, scale, depth, together, self.packing)

        bias = epilogue.graph.constants[epilogue.node.inputs[2]]
        stream = packed_by_rows(rows, together, epilogue.weights, bias, *scales, groups=conv.group)
        function = kind.function("mt_dsp16" if scaled else "mt_dsp16_sums", self._unroll(conv))
        declared = f"int32_t *const sums = scratch + {depth // 2 * 3};"
        if isinstance(epilogue, Int16Epilogue):
            declared = epilogue.declared("mt_dsp_range", "MT_DSP16_RANGE")
        layout, last = kind.layout(together, scaled=scaled), "&range" if scaled else ""
        return Products(stream, layout, (HEADER,), function, declared, last)

    def values(self, conv: Conv, epilogue: Int16Epilogue | SumEpilogue) -> dict[str, Any]:
        """Whether sums have 64 bits, and whether taps are gathered one by one."""
        long = epilogue.graph.constants[epilogue.node.inputs[2]].dtype == np.int64
        return {"long": long, "by_taps": goes_by_taps(conv)}

    def instructions(self, conv: Conv, epilogue: Int16Epilogue | SumEpilogue, target: Target) -> float:
        """The dot products, 60 for two channels of three pixels, what gathers the pixels."""
        kind, sums = Kind.of(epilogue.node, epilogue.graph, self.packing), isinstance(epilogue, SumEpilogue)
        assert kind is not None
        pairs = conv.group * math.ceil(conv.out_channels / conv.group / 2)
        results = 300 if kind.long else 20 if sums else 60
        after = (14 if sums else 8) * conv.pixels * conv.out_channels if epilogue.rest is not None else 0
        dots = dot_cost(self.order(conv).size, self._unroll(conv), kind)
        return math.ceil(conv.pixels / 3) * pairs * (dots + results) + after + self.gathering(conv)


def goes_by_taps(conv: Conv) -> bool:
    """Return whether the channels of a patch's taps do not stand side by side."""
    return conv.group > 1 or conv.dilation[1] > 1


class Im2col(Tiles):
    """k x k: the patches of three pixels are gathered into columns, multiplied with all channels, two at a time.

    Rows of a patch are copied by words inside the image, element by element on its border. Taps whose channels do not
    stand side by side (groups, dilations) are gathered first.
    """

    name = "dsp16_patch"

    def fits(self, conv: Conv, epilogue: Int16Epilogue | SumEpilogue) -> bool:
        """One image, int16 to int16, or sums of 32 bits."""
        return super().fits(conv, epilogue)

    def order(self, conv: Conv) -> Array:
        """Whole rows, each filled up to pairs; or all taps."""
        height, row = (1, conv.depth) if goes_by_taps(conv) else (conv.kernel[0], conv.kernel[1] * conv.channels)
        order = np.pad(np.arange(height * row).reshape(height, row), ((0, 0), (0, row % 2)), constant_values=-1)
        return order.reshape(-1)

    def gathered(self, conv: Conv) -> int:
        """A patch, or a row of it."""
        return conv.depth if goes_by_taps(conv) else conv.kernel[1] * conv.channels

    def gathering(self, conv: Conv) -> float:
        """3 for two gathered elements, 20 a row or 12 a tap."""
        gathering = 1.5 * conv.depth + (20 * conv.kernel[0])
        if goes_by_taps(conv):
            gathering += conv.depth + 12 * math.prod(conv.kernel)
        return conv.pixels * conv.group * gathering


class Pointwise(Tiles):
    """1x1: three pixels stand side by side and are multiplied with all channels, two at a time. In place either way.

    A layer that grows runs backwards, so that its output may start where its input starts.
    """

    name = "dsp16_pointwise"
    pointwise = True

    def fits(self, conv: Conv, epilogue: Int16Epilogue | SumEpilogue) -> bool:
        """1x1 of one image, int16 to int16, or sums of 32 bits."""
        return super().fits(conv, epilogue)

    def gathering(self, conv: Conv) -> float:
        """6 to copy two elements of three pixels."""
        return math.ceil(conv.pixels / 3) * 3 * conv.channels
