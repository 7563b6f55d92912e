"""Dense layers of float32 for Helium: vectors of outputs.

The inner loops and the layout of the packed weights: crt/include/mt_mve_gemv_f32.h.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.dense.gemv import LAYOUT_F32, Call, GroupedGemv, pack_f32
from mtool.compiler.kernels.epilogues import FloatEpilogue, Int8Epilogue, Int16Epilogue, SumEpilogue
from mtool.compiler.kernels.f32 import stored_as, words_of
from mtool.compiler.kernels.mve import INT8_LANES, INT16_LANES, MultiplierScaling, has_narrow_sums, vector_scaling
from mtool.compiler.kernels.packing import filled_up, packed_by_rows, round_up
from mtool.compiler.kernels.scaling import NearFloatScaling, Scaling
from mtool.compiler.kernels.schedule import knob
from mtool.compiler.kernels.target import Target

# Dense layers of int8 for Helium: eight outputs at a time.
#
# The inner loops and the layout of the packed weights: crt/include/mt_mve_gemv_int8.h.


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


# Dense layers of int16 activations for Helium: eight outputs at a time.
#
# The inner loops and the layout of the packed weights: crt/include/mt_mve_gemv_int16.h.


def pack_int16(weights: Array, bias: Array, scale: Array | None) -> Array:
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

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """One for each kind of result."""
        epilogue = self.epilogue(node, graph)
        assert epilogue is not None
        weights, bias = (graph.constants[node.inputs[n]] for n in (1, 2))
        layout = "8 outputs a row: the bytes of biases, vectors of 8 weights by turns"
        if not isinstance(epilogue, Int16Epilogue):
            stream = packed_by_rows(partial(pack_int16, scale=None), GROUP, weights, bias)
            return Call("mt_mve16_dense_sums", stream, layout)
        stream = packed_by_rows(pack_int16, GROUP, weights, bias, epilogue.scale)
        return Call("mt_mve16_dense", stream, f"{layout}, the bytes of scales", "&range")


class GemvInt16(Rows):
    """Row by row of the input; eight outputs share each vector of it."""

    name = "mve16_rows"
    range_of = "kernels/mve/tile_int16.c.j2"
    storing = 30

    def epilogue(self, node: Node, graph: Graph) -> Int16Epilogue | None:
        """Of int16."""
        return Int16Epilogue.of(node, graph)


# Dense layers whose results are sums of int16, for Helium: eight outputs at a time.
#
# The inner loops and the layout of the packed weights: crt/include/mt_mve_gemv_int16.h.


class GemvSums(Rows):
    """Row by row of the input; eight outputs share each vector of it. What follows a row of sums is any expression."""

    name = "mve16_row_sums"
    staged = DType.INT32
    storing = 100

    def epilogue(self, node: Node, graph: Graph) -> SumEpilogue | None:
        """Of sums."""
        return SumEpilogue.of(node, graph)


FLOAT_GROUPS = (16, 8, 4)  # outputs at a time: the loops that mt_mve_gemv_f32.h has


@dataclass(frozen=True)
class GemvF32(GroupedGemv):
    """Row by row of the input; a few vectors of outputs share each input element."""

    name = "mve_f32_rows"
    element = DType.FLOAT32
    header = "mt_mve_gemv_f32.h"

    outputs: int = knob(0, *FLOAT_GROUPS, meaning="at a time; auto: as many as take fewest instructions")

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """float32."""
        return target.has_mve and self.epilogue(node, graph) is not None

    def epilogue(self, node: Node, graph: Graph) -> FloatEpilogue | None:
        """Of float32."""
        return FloatEpilogue.of(node, graph)

    def group(self, node: Node, graph: Graph) -> int:
        """As many as take fewest instructions."""
        return self.outputs or min(FLOAT_GROUPS, key=lambda outputs: self._row(node, graph, outputs))

    def padded_depth(self, depth: int) -> int:
        """Whole groups of four."""
        return round_up(depth, 4)

    def _row(self, node: Node, graph: Graph, outputs: int) -> int:
        """Instructions of a row: a load and a product for each vector of weights, two for four inputs, the results."""
        depth = graph.types[node.inputs[0]].shape[1]
        groups = round_up(graph.types[node.outputs[0]].shape[1], outputs) // outputs
        vectors = outputs // 4
        return groups * ((8 * vectors + 2) * round_up(depth, 4) // 4 + 7 * vectors + 20)

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """Those of a row for each."""
        return graph.types[node.inputs[0]].shape[0] * float(self._row(node, graph, self.group(node, graph)))

    def call(self, node: Node, graph: Graph, target: Target) -> Call:
        """By the outputs at a time; the last argument is the least that a result may be."""
        epilogue, group = self.epilogue(node, graph), self.group(node, graph)
        assert epilogue is not None
        weights, bias = (graph.constants[node.inputs[n]] for n in (1, 2))
        stored = stored_as(node, graph) or ""
        function = f"mt_mve_f32_rows_{stored + '_' if stored else ''}{group}"
        return Call(function, pack_f32(weights, bias, group, stored), LAYOUT_F32 + words_of(stored), epilogue.least)


SCHEDULES = (Gemv(), GemvInt16(), GemvSums(), GemvF32())
