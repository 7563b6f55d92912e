"""Register tiles of int16 activations for Helium, which 1x1 and im2col share: four pixels by two channels.

The inner loops and the layout of the packed weights: crt/include/mt_mve_tile_4x2_int16.h.
"""

import math
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv, own_in_place
from mtool.compiler.kernels.conv2d.mve.tiles_int8 import SCATTER_REACH
from mtool.compiler.kernels.epilogues import SumEpilogue, epilogue_of_int16
from mtool.compiler.kernels.mve import INT16_LANES, has_narrow_sums
from mtool.compiler.kernels.packing import packed_by_rows, round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel, knob
from mtool.compiler.kernels.target import Target

HEADER = "mt_mve_tile_4x2_int16.h"
UNROLLS = (4, 2, 1)  # blocks an iteration: the loops that mt_mve_tile_4x2_int16.h has


def best_unroll(depth: int) -> int:
    """Return the largest unrolling of mt_mve_tile_4x2_int16.h, in blocks, that divides the depth."""
    blocks = round_up(depth, INT16_LANES) // INT16_LANES
    return next(unroll for unroll in UNROLLS if blocks % unroll == 0)


def pack(weights: Array, bias: Array, scale: Array | None, padded: int) -> Array:
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
class Tiles(BaseSchedule):
    """The common part of both schedules."""

    template = ""
    pixelwise = False

    unroll: int = knob(0, *UNROLLS, meaning="blocks of k an iteration; auto: the most that divide the depth")

    def _unroll(self, conv: Conv) -> int:
        return self.unroll or best_unroll(conv.depth)

    def _padded(self, conv: Conv) -> int:
        return round_up(conv.depth, INT16_LANES * self._unroll(conv))

    def fits(self, conv: Conv) -> bool:
        """Whether the shape is one of this schedule's."""
        raise NotImplementedError

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """One image, int16 to int16 or sums of 32 bits."""
        conv = Conv.of(node, graph)
        shape = conv.batch == 1 and self.fits(conv) and conv.out_channels < SCATTER_REACH
        narrow = has_narrow_sums(node, graph)
        return target.has_mve and shape and narrow and epilogue_of_int16(node, graph) is not None

    def _stores_directly(self, node: Node, graph: Graph) -> bool:
        """Whether all results are stored where they belong."""
        conv, epilogue = Conv.of(node, graph), epilogue_of_int16(node, graph)
        plain = epilogue is None or epilogue.rest is None
        return plain and conv.pixels % 4 == 0 and conv.out_channels // conv.group % 2 == 0

    def _gathered(self, conv: Conv) -> int:
        """Elements of a patch that is gathered before it becomes a column."""
        return 0 if self.pixelwise or conv.channels // conv.group % INT16_LANES == 0 else self._padded(conv)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Four columns, and a patch or results that are not stored directly."""
        conv = Conv.of(node, graph)
        results = 0 if self._stores_directly(node, graph) else 4 * round_up(conv.out_channels // conv.group, 2)
        if isinstance(epilogue_of_int16(node, graph), SumEpilogue):
            results *= 2  # they are int32
        return 2 * (4 * self._padded(conv) + max(results, self._gathered(conv)))

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """A residual operand that is not its input; the input too, if pixel by pixel."""
        return own_in_place(node, graph, possible=self.pixelwise)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """14 instructions a block of 4 x 2 dot products, 2 an iteration, 36 for the results; what gathers."""
        conv = Conv.of(node, graph)
        gathering = conv.depth * (1.5 if self._gathered(conv) else 0.4)
        pairs = math.ceil(conv.out_channels / conv.group / 2)
        tile = pairs * (self._padded(conv) / INT16_LANES * (14 + 2 / self._unroll(conv)) + 36)
        after = 0 if self._stores_directly(node, graph) else 6 * conv.pixels * conv.out_channels
        return conv.group * math.ceil(conv.pixels / 4) * (tile + 4 * gathering + 20) + after

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue = Conv.of(node, graph), epilogue_of_int16(node, graph)
        assert epilogue is not None
        filters = graph.constants[node.inputs[1]].reshape(conv.out_channels, -1)
        sums = isinstance(epilogue, SumEpilogue)
        scales = [] if isinstance(epilogue, SumEpilogue) else [epilogue.scale]
        padded, bias = self._padded(conv), graph.constants[node.inputs[2]]

        def rows(weights: Array, bias: Array, scale: Array | None = None) -> Array:
            return pack(weights, bias, scale, padded)

        weights = packed_by_rows(rows, 2, filters, bias, *scales, groups=conv.group)
        body = template(
            self.template,
            conv=conv,
            padded=self._padded(conv),
            unroll=self._unroll(conv),
            gathered=self._gathered(conv) > 0,
            stream=weights.size // conv.group,
            epilogue=epilogue,
            stored_directly=self._stores_directly(node, graph),
            backward=conv.out_channels > conv.channels,
            rest=lambda acc, offset, channel: epilogue.rest_text(node, graph, acc, offset, channel),
        )
        layout = "two output channels a row: bytes of biases, vectors of 8 weights by turns"
        layout += "" if sums else ", bytes of scales"
        return epilogue.kernel(node, graph, body, weights, layout, HEADER, "int16_t")


# Convolutions of int16 activations for Helium: patches stand side by side as columns.


class Im2col(Tiles):
    """k x k: the patches of four pixels are gathered side by side and multiplied with all channels, two at a time.

    Vectors are copied where a pixel is whole vectors, rows of a patch or elements elsewhere.
    """

    name = "mve16_patch"
    template = "kernels/conv2d/mve/im2col_int16.c.j2"

    def fits(self, conv: Conv) -> bool:
        """More than one input of a group."""
        return not conv.is_depthwise


# 1x1 convolutions of int16 activations for Helium.


class Pointwise(Tiles):
    """1x1: four pixels side by side times all channels, two at a time. In place; growing layers run backwards."""

    name = "mve16_pointwise"
    template = "kernels/conv2d/mve/pointwise_int16.c.j2"
    pixelwise = True

    def fits(self, conv: Conv) -> bool:
        """1x1, stride 1, no padding, no groups."""
        return conv.is_pointwise and conv.group == 1
