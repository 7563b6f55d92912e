"""Register tiles of int16 activations for Helium, which 1x1 and im2col share: four pixels by two channels.

The inner loops and the layout of the packed weights: crt/include/mt_mve_tile_4x2_int16.h.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from mtool.compiler.ir import DType
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv, Tile
from mtool.compiler.kernels.conv2d.mve.tiles_int8 import SCATTER_REACH
from mtool.compiler.kernels.conv2d.tiles import TileSchedule
from mtool.compiler.kernels.epilogues import Int16Epilogue, Products, SumEpilogue
from mtool.compiler.kernels.mve import INT16_LANES, has_narrow_sums
from mtool.compiler.kernels.packing import packed_by_rows, round_up
from mtool.compiler.kernels.schedule import knob
from mtool.compiler.kernels.target import Target

HEADER = "mt_mve_tile_4x2_int16.h"
UNROLLS = (4, 2, 1)  # blocks an iteration: the loops that mt_mve_tile_4x2_int16.h has


def best_unroll(depth: int) -> int:
    """Return the largest unrolling of mt_mve_tile_4x2_int16.h, in blocks, that divides the depth."""
    blocks = round_up(depth, INT16_LANES) // INT16_LANES
    return next(unroll for unroll in UNROLLS if blocks % unroll == 0)


def pack(weights: Array, bias: Array, scale: Array | None = None, *, padded: int) -> Array:
    """Return the stream of mt_mve16_columns, int8 [N/2, 8 or 16 + 2 * padded].

    Args:
        weights: int8 [N, K]; N is filled up to an even number, K to `padded`.
        bias: int32 [N], the input's zero point folded in.
        scale: float32 [N]; None: the stream has none.
        padded: whole vectors.
    """
    count = round_up(weights.shape[0], 2)
    more = count - weights.shape[0]
    filled = np.pad(weights, ((0, more), (0, padded - weights.shape[1]))).reshape(count // 2, 2, -1, INT16_LANES)
    heads = np.pad(bias, (0, more)).view(np.int8).reshape(count // 2, 8)
    parts = [heads, filled.swapaxes(1, 2).reshape(count // 2, -1)]
    if scale is not None:
        parts.append(np.pad(scale.astype(np.float32), (0, more)).view(np.int8).reshape(count // 2, 8))
    return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class Tiles(TileSchedule[Int16Epilogue | SumEpilogue]):
    """The common part of both schedules."""

    core = "has_mve"
    forms = (Int16Epilogue, SumEpilogue)
    template = "kernels/conv2d/mve/tiles_int16.c.j2"
    element = DType.INT16
    scratch_type = "int16_t"

    unroll: int = knob(0, *UNROLLS, meaning="blocks of k an iteration; auto: the most that divide the depth")

    def fits(self, conv: Conv, epilogue: Int16Epilogue | SumEpilogue) -> bool:
        """One image, int16 to int16 or sums of 32 bits."""
        narrow = has_narrow_sums(epilogue.node, epilogue.graph)
        return super().fits(conv, epilogue) and narrow and conv.out_channels < SCATTER_REACH

    def shape(self, conv: Conv) -> Tile:
        """Four pixels by two channels."""
        return Tile(4, 2)

    def _unroll(self, conv: Conv) -> int:
        return self.unroll or best_unroll(conv.depth)

    def depth(self, conv: Conv) -> int:
        """Whole iterations."""
        return round_up(conv.depth, INT16_LANES * self._unroll(conv))

    def gathered(self, conv: Conv) -> int:
        """A column, unless taps are whole vectors."""
        return 0 if self.pointwise or conv.channels // conv.group % INT16_LANES == 0 else self.depth(conv)

    def instructions(self, conv: Conv, epilogue: Int16Epilogue | SumEpilogue, target: Target) -> float:
        """14 instructions a block of 4 x 2 dot products, 2 an iteration, 36 for the results; what gathers."""
        gathering, tile = conv.depth * (1.5 if self.gathered(conv) else 0.4), self.shape(conv)
        each = tile.channel_steps(conv) * (self.depth(conv) / INT16_LANES * (14 + 2 / self._unroll(conv)) + 36)
        after = 6 * conv.pixels * conv.out_channels if self.staged(conv, epilogue) else 0
        return conv.group * tile.columns(conv) * (each + 4 * gathering + 20) + after

    def products(self, conv: Conv, epilogue: Int16Epilogue | SumEpilogue, target: Target) -> Products:
        """Two channels together."""
        depth, unroll = self.depth(conv), self._unroll(conv)
        numbers, kind, last = [epilogue.graph.constants[epilogue.node.inputs[2]]], "sums", ""
        declared = (
            f"int32_t *const sums = (int32_t *)(void *)(scratch + {4 * depth}); /* of two channels by four pixels */"
        )
        layout = "two output channels a row: bytes of biases, vectors of 8 weights by turns"
        if isinstance(epilogue, Int16Epilogue):
            numbers, kind, last = [*numbers, epilogue.scale], "columns", "&range"
            declared, layout = epilogue.declared("mt_mve16_range", "MT_MVE16_RANGE"), layout + ", bytes of scales"
        filters = epilogue.weights.reshape(conv.out_channels, -1)
        weights = packed_by_rows(partial(pack, padded=depth), 2, filters, *numbers, groups=conv.group)
        return Products(weights, layout, (HEADER,), f"mt_mve16_{kind}_{unroll}", declared, last)

    def values(self, conv: Conv, epilogue: Int16Epilogue | SumEpilogue) -> dict[str, Any]:
        """Whether patches are gathered before they become columns."""
        return {"gathers": self.gathered(conv) > 0}


class Im2col(Tiles):
    """k x k: the patches of four pixels are gathered side by side and multiplied with all channels, two at a time.

    Vectors are copied where a pixel is whole vectors, rows of a patch or elements elsewhere.
    """

    name = "mve16_patch"


class Pointwise(Tiles):
    """1x1: four pixels side by side times all channels, two at a time. In place; growing layers run backwards."""

    name = "mve16_pointwise"
    pointwise = True
