"""Depthwise 3x3 of int8 for SIMD32: pairs of taps slide over a channel's plane of int16.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_depthwise3x3_int8.h.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import DIRECTION_MEANING, DIRECTIONS, Conv, Traversal
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule
from mtool.compiler.kernels.dsp import any_has_floats, best_scaling
from mtool.compiler.kernels.epilogues import Int8Epilogue, Products
from mtool.compiler.kernels.exact_scaling import ALONE, ExactScaling
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.scaling import Scaling
from mtool.compiler.kernels.schedule import Kernel, knob
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weighted_sum import stored_weights

HEADER = "mt_dsp_depthwise3x3_int8.h"
ROW_REACH = 1020  # bytes: the largest offset of LDRD
STEP_REACH = 4095  # bytes: the largest offset of STRB and constant of ADDW


class SlidingTraversal(Traversal):
    """The plane of a channel whose outputs go in pairs along the fast axis: an odd one costs."""

    __slots__ = ()

    @classmethod
    def of(cls, conv: Conv, direction: str = "") -> Self | None:
        """Choose the direction with the fewer instructions; None: neither is within the reach of the instructions.

        Of two that cost the same, the turned one takes fewer instructions with a stride of one, the other with two.
        """
        fitting = [
            way for way in cls.ways(conv, direction) if 4 * way.pitch <= ROW_REACH and 2 * way.out_step[1] <= STEP_REACH
        ]
        usual = conv.stride[0] == 1
        return min(fitting, key=lambda way: (way.cost(), way.transposed != usual), default=None)

    @property
    def pitch(self) -> int:
        """Elements from one row of the plane to the next: even, and as far as loads of four reach."""
        stride, outputs = self.stride[1], self.out_size[1]
        reached = (outputs - 1) * stride + (4 if stride > 1 or outputs % 2 else 3)
        return round_up(max(reached, self.copied[1] + self.pad[1]), 2)

    def cost(self) -> float:
        """Instructions a channel: 25 a pair (28 with a stride), 13 a single output, 2.3 a copied element."""
        pairs, single = divmod(self.out_size[1], 2)
        row = pairs * (25 if self.stride[1] == 1 else 28) + single * 13 + 7
        return self.out_size[0] * row + self.copied[0] * (self.copied[1] * 2.3 + 6) + 50


@dataclass(frozen=True)
class Depthwise3x3(ConvSchedule[Int8Epilogue]):
    """Depthwise 3x3: a channel is widened with its padding into a plane of int16, then pairs of taps slide over it.

    A channel has been read whole before any of it is written, and writes only its own elements: the output may take the
    input's storage.
    """

    name = "dsp_plane"
    core = "has_dsp"
    forms = (Int8Epilogue,)

    direction: str = knob("", *DIRECTIONS, meaning=DIRECTION_MEANING)

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """3x3, stride 1 or 2 both ways, one image, int8 to int8."""
        direct = epilogue.rest is None and (epilogue.is_bounded or epilogue.is_plain)
        int8 = stored_weights(epilogue.node, epilogue.graph).dtype == np.int8
        return conv.is_depthwise_3x3 and direct and int8 and SlidingTraversal.of(conv, self.direction) is not None

    def _traversal(self, conv: Conv) -> SlidingTraversal:
        traversal = SlidingTraversal.of(conv, self.direction)
        assert traversal is not None
        return traversal

    def scratch(self, conv: Conv, epilogue: Int8Epilogue) -> int:
        """One padded plane of int16."""
        traversal = self._traversal(conv)
        return 2 * traversal.pitch * traversal.plane[0]

    def over_input(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """If the output is no larger."""
        return conv.shrinks

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """See SlidingTraversal."""
        return conv.channels * self._traversal(conv).cost()

    def kernel(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Kernel:
        """Write the function; nodes that are alike have the same if they have the same scaling."""
        node, graph, traversal = epilogue.node, epilogue.graph, self._traversal(conv)
        if "alike depthwise" not in graph.memo:
            known: dict[tuple[object, ...], list[Node]] = {}
            graph.memo["alike depthwise"] = known
            for one in graph.nodes:
                if one.op == node.op and Conv.of(one, graph).is_depthwise:
                    known.setdefault(_key(one, graph), []).append(one)
        alike: list[Node] = graph.memo["alike depthwise"][_key(node, graph)]
        scaling, bias = best_scaling(node, graph, ALONE)
        taps = traversal.turned_taps(stored_weights(node, graph).reshape(conv.channels, 3, 3))
        packed = pack(taps, bias, scaling)
        layout = f"a channel a row: bias, {scaling.meaning}, a word (w0,w1,w2,0) for each row of taps"
        return epilogue.kernel(
            "kernels/conv2d/dsp/depthwise3x3_int8.c.j2",
            Products(packed, layout, (HEADER,)),
            "int16_t",
            conv=conv,
            traversal=traversal,
            kind=scaling.kind,
            exact=scaling if isinstance(scaling, ExactScaling) else None,
            floats=any_has_floats(alike, graph),
            stream=packed.shape[1],
            offset=conv.offset,
        )


def _key(node: Node, graph: Graph) -> tuple[object, ...]:
    epilogue = Int8Epilogue.of(node, graph)
    return Conv.of(node, graph), epilogue and (epilogue.how, epilogue.rest)


def pack(taps: Array, bias: Array, scaling: Scaling) -> Array:
    """Return uint32 [C, 5 or 6]: bias, scaling, and for each row of taps a word of (w0, w1, w2, 0).

    Args:
        taps: int8 [C, 3, 3], along (slow, fast).
        bias: int32 [C], the input's zero point folded in.
        scaling: of C channels.
    """
    rows = np.zeros((taps.shape[0], 3, 4), np.int8)
    rows[:, :, :3] = taps
    heads = bias.astype(np.int32).view(np.uint32)[:, None]
    return np.concatenate([heads, scaling.words, rows.reshape(-1, 12).view(np.uint32)], axis=1)
