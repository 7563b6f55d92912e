"""Dense layers of int16 activations for Helium: eight outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_mve_gemv_int16.h.
"""

from typing import ClassVar

import numpy as np

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.dense.gemv import Call, GroupedGemv
from mtool.compiler.kernels.epilogues.integer import Int16Epilogue
from mtool.compiler.kernels.mve.vectors import INT16_LANES, has_narrow_sums
from mtool.compiler.kernels.packing import packed_by_rows
from mtool.compiler.kernels.padding import round_up
from mtool.compiler.kernels.target import Target

GROUP = 8  # outputs at a time


def pack(weights: Array, bias: Array, scale: Array | None) -> Array:
    """Return the stream of mt_mve16_rows, int8 [N/8, 32 or 64 + 8 * K]; N and K are filled up to multiples of 8.

    Args:
        weights: int8 [N, K].
        bias: int32 [N], the input's zero point folded in.
        scale: float32 [N]; None: the stream has none.
    """
    count, depth = (round_up(size, GROUP) for size in weights.shape)
    more = count - weights.shape[0]
    filled = np.pad(weights, ((0, more), (0, depth - weights.shape[1]))).reshape(
        -1, GROUP, depth // INT16_LANES, INT16_LANES
    )
    heads = np.pad(bias.astype(np.int32), (0, more)).view(np.int8).reshape(-1, 4 * GROUP)
    parts = [heads, filled.transpose(0, 2, 1, 3).reshape(len(heads), -1)]
    if scale is not None:
        parts.append(np.pad(scale.astype(np.float32), (0, more)).view(np.int8).reshape(-1, 4 * GROUP))
    return np.concatenate(parts, axis=1)


class Rows(GroupedGemv):
    """What the schedules have in common whose results are of int16 and those whose results are the sums."""

    element = DType.INT16
    header = "mt_mve_gemv_int16.h"
    storing: ClassVar[int]
    """Instructions for eight outputs, beside their sums."""

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """int16, sums of 32 bits."""
        return target.has_mve and has_narrow_sums(node, graph) and self.epilogue(node, graph) is not None

    def group(self, node: Node, graph: Graph) -> int:
        """Eight."""
        return GROUP

    def padded_depth(self, depth: int) -> int:
        """Whole vectors."""
        return round_up(depth, INT16_LANES)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """19 instructions for 8 inputs and eight outputs, and what storing those takes."""
        rows, depth = graph.types[node.inputs[0]].shape
        return rows * self.groups(node, graph) * (19 * self.padded_depth(depth) / INT16_LANES + self.storing)


class Gemv(Rows):
    """Row by row of the input; eight outputs share each vector of it."""

    name = "mve16_rows"
    range_of = "kernels/mve/tile_int16.c.j2"
    storing = 30

    def epilogue(self, node: Node, graph: Graph) -> Int16Epilogue | None:
        """Of int16."""
        return Int16Epilogue.of(node, graph)

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """There is one."""
        epilogue = self.epilogue(node, graph)
        assert epilogue is not None
        weights, bias = (graph.constants[node.inputs[n]] for n in (1, 2))
        layout = "8 outputs a row: the bytes of biases, vectors of 8 weights by turns, the bytes of scales"
        return Call("mt_mve16_dense", packed_by_rows(pack, GROUP, weights, bias, epilogue.scale), layout, "&range")


SCHEDULE = Gemv()
