"""Dense layers of int8 for Helium: eight outputs at a time.

The inner loops and the layout of the packed weights: crt/include/mt_mve_gemv_int8.h.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.dense.gemv import Call, GroupedGemv
from mtool.compiler.kernels.epilogues.integer import Int8Epilogue
from mtool.compiler.kernels.knobs import knob
from mtool.compiler.kernels.mve.scaling import MultiplierScaling, vector_scaling
from mtool.compiler.kernels.mve.vectors import INT8_LANES
from mtool.compiler.kernels.packing import packed_by_rows
from mtool.compiler.kernels.padding import filled_up, round_up
from mtool.compiler.kernels.scaling import NearFloatScaling, Scaling
from mtool.compiler.kernels.target import Target

GROUP = 8  # outputs at a time
BY_TURNS = np.array([0, 2, 4, 6, 1, 3, 5, 7])  # the outputs of two vectors that are narrowed into one
UNROLLS = (8, 4, 2, 1)  # vectors of inputs an iteration: the loops that mt_mve_gemv_int8.h has


def stands_by_turns(scaling: Scaling) -> bool:
    """Whether the even outputs are scaled in one vector and the odd in the other."""
    return isinstance(scaling, NearFloatScaling | MultiplierScaling)


def pack(weights: Array, bias: Array, scaling: Scaling, depth: int) -> Array:
    """Return the stream of mt_mve_rows, int8 [N/8, 64 or 96 + 8 * depth]; N is filled up to a multiple of 8.

    Args:
        weights: int8 [N, K].
        bias: int32 [N], the input's zero point folded in.
        scaling: of N channels.
        depth: whole vectors, which K is filled up to.
    """
    count = weights.shape[0]
    groups = round_up(count, GROUP) // GROUP
    more = groups * GROUP - count
    filled = filled_up(weights, groups * GROUP, depth).reshape(groups, GROUP, -1, INT8_LANES)
    heads = np.pad(bias.astype(np.int32), (0, more)).view(np.int8).reshape(groups, 4 * GROUP)
    tails = scaling.padded(groups * GROUP).vectors(GROUP, BY_TURNS if stands_by_turns(scaling) else None)
    return np.concatenate([heads, filled.swapaxes(1, 2).reshape(groups, -1), tails], axis=1)


@dataclass(frozen=True)
class Gemv(GroupedGemv):
    """Row by row of the input; eight outputs share each vector of it."""

    name = "mve_rows"
    element = DType.INT8
    header = "mt_mve_gemv_int8.h"
    range_of = "kernels/mve/tile_int8.c.j2"

    unroll: int = knob(0, *UNROLLS, meaning="vectors of inputs an iteration; auto: the most that divide the depth")

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """int8 to int8."""
        int8 = graph.constants[node.inputs[1]].dtype == np.int8
        return target.has_mve and int8 and self.epilogue(node, graph) is not None

    def epilogue(self, node: Node, graph: Graph) -> Int8Epilogue | None:
        """Of int8."""
        return Int8Epilogue.of(node, graph)

    def group(self, node: Node, graph: Graph) -> int:
        """Eight."""
        return GROUP

    def _unroll(self, depth: int) -> int:
        vectors = round_up(depth, INT8_LANES) // INT8_LANES
        return self.unroll or next(unroll for unroll in UNROLLS if vectors % unroll == 0)

    def padded_depth(self, depth: int) -> int:
        """Whole iterations."""
        return round_up(depth, INT8_LANES * self._unroll(depth))

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """17 instructions for 16 inputs and eight outputs, 2 an iteration, 20 for eight outputs."""
        rows, depth = graph.types[node.inputs[0]].shape
        each = (17 + 2 / self._unroll(depth)) * self.padded_depth(depth) / INT8_LANES + 20
        return rows * self.groups(node, graph) * each

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """By the scaling and the unrolling."""
        epilogue, weights = self.epilogue(node, graph), graph.constants[node.inputs[1]]
        assert epilogue is not None
        epilogue = vector_scaling(epilogue, weights)
        unroll = self._unroll(weights.shape[1])
        function = f"mt_mve_dense{epilogue.scaling.kind}{f'_{unroll}' if unroll > 1 else ''}"
        rows = partial(pack, depth=self.padded_depth(weights.shape[1]))
        packed = packed_by_rows(rows, GROUP, weights, epilogue.bias, epilogue.scaling)
        layout = "8 outputs a row: bytes of biases, vectors of 16 weights by turns, "
        layout += f"bytes of {epilogue.scaling.meaning}"
        return Call(function, packed, layout, "&range")


SCHEDULE = Gemv()
