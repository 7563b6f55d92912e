"""Depthwise 3x3 of int8 for SIMD32: pairs of taps slide over a channel's plane of int16.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_depthwise3x3_int8.h.
"""

from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import DIRECTION_MEANING, DIRECTIONS, Conv
from mtool.compiler.kernels.dsp import any_has_floats, best_scaling
from mtool.compiler.kernels.epilogues import Int8Epilogue
from mtool.compiler.kernels.exact_scaling import ALONE, ExactScaling
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.scaling import Scaling
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel, knob
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weighted_sum import stored_weights, weight_offset

HEADER = "mt_dsp_depthwise3x3_int8.h"
ROW_REACH = 1020  # bytes: the largest offset of LDRD
STEP_REACH = 4095  # bytes: the largest offset of STRB and constant of ADDW


@dataclass(frozen=True, slots=True)
class Traversal:
    """The plane of a channel as it is traversed: sizes and pads along (slow, fast), steps in bytes of the tensors.

    The fast axis is the one with the fewer instructions: outputs go in pairs, and an odd one costs.
    """

    size: tuple[int, int]
    out_size: tuple[int, int]
    pad: tuple[int, int]
    in_step: tuple[int, int]
    out_step: tuple[int, int]
    stride: int
    transposed: bool

    @classmethod
    def of(cls, conv: Conv, direction: str = "") -> "Traversal | None":
        """Choose the direction; None: neither is within the reach of the instructions.

        Of two that cost the same, the turned one takes fewer instructions with a stride of one, the other with two.
        """
        (h, w), (oh, ow), c = conv.size, conv.out_size, conv.channels
        straight = cls(conv.size, conv.out_size, conv.pad, (w * c, c), (ow * c, c), conv.stride[0], False)
        turned = cls((w, h), (ow, oh), conv.pad[::-1], (c, w * c), (c, ow * c), conv.stride[0], True)
        named = {"straight": [straight], "turned": [turned]}.get(direction, [straight, turned])
        fitting = [traversal for traversal in named if traversal._is_in_reach()]
        usual = conv.stride[0] == 1
        return min(fitting, key=lambda traversal: (traversal.cost(), traversal.transposed != usual), default=None)

    @property
    def rows(self) -> int:
        """Rows of the plane."""
        return (self.out_size[0] - 1) * self.stride + 3

    @property
    def pitch(self) -> int:
        """Elements from one row of the plane to the next: even, and as far as loads of four reach."""
        reached = (self.out_size[1] - 1) * self.stride + (4 if self.stride > 1 or self.out_size[1] % 2 else 3)
        return round_up(max(reached, self.copied[1] + self.pad[1]), 2)

    @property
    def copied(self) -> tuple[int, int]:
        """Rows and columns of the input that outputs reach."""
        columns = (self.out_size[1] - 1) * self.stride + 3
        return min(self.size[0], self.rows - self.pad[0]), min(self.size[1], columns - self.pad[1])

    def cost(self) -> float:
        """Instructions a channel: 25 a pair (28 with a stride), 13 a single output, 2.3 a copied element."""
        pairs, single = divmod(self.out_size[1], 2)
        row = pairs * (25 if self.stride == 1 else 28) + single * 13 + 7
        return self.out_size[0] * row + self.copied[0] * (self.copied[1] * 2.3 + 6) + 50

    def _is_in_reach(self) -> bool:
        return 4 * self.pitch <= ROW_REACH and 2 * self.out_step[1] <= STEP_REACH


@dataclass(frozen=True)
class Depthwise3x3(BaseSchedule):
    """Depthwise 3x3: a channel is widened with its padding into a plane of int16, then pairs of taps slide over it.

    A channel has been read whole before any of it is written, and writes only its own elements: the output may take the
    input's storage.
    """

    name = "dsp_plane"

    direction: str = knob("", *DIRECTIONS, meaning=DIRECTION_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """3x3, stride 1 or 2 both ways, one image, int8 to int8."""
        conv, epilogue = Conv.of(node, graph), Int8Epilogue.of(node, graph)
        shape = conv.is_depthwise and conv.batch == 1 and conv.out_channels == conv.channels
        plain = conv.kernel == (3, 3) and conv.dilation == (1, 1) and conv.stride in ((1, 1), (2, 2))
        fits = epilogue is not None and epilogue.rest is None and (epilogue.is_bounded or epilogue.is_plain)
        int8 = stored_weights(node, graph).dtype == np.int8
        return target.has_dsp and shape and plain and fits and int8 and Traversal.of(conv, self.direction) is not None

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """One padded plane of int16."""
        traversal = self._traversal(node, graph)
        return 2 * traversal.pitch * traversal.rows

    def _traversal(self, node: Node, graph: Graph) -> Traversal:
        traversal = Traversal.of(Conv.of(node, graph), self.direction)
        assert traversal is not None
        return traversal

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if the output is no larger."""
        return (0,) if graph.types[node.inputs[0]].bytes >= graph.types[node.outputs[0]].bytes else ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """See Traversal."""
        return Conv.of(node, graph).channels * self._traversal(node, graph).cost()

    def _alike(self, node: Node, graph: Graph) -> list[Node]:
        """Return the nodes that have the same function, if they have the same scaling."""
        if "alike depthwise" not in graph.memo:
            known: dict[tuple[object, ...], list[Node]] = {}
            graph.memo["alike depthwise"] = known
            for one in graph.nodes:
                if one.op == node.op and Conv.of(one, graph).is_depthwise:
                    known.setdefault(self._key(one, graph), []).append(one)
        alike: list[Node] = graph.memo["alike depthwise"][self._key(node, graph)]
        return alike

    def _key(self, node: Node, graph: Graph) -> tuple[object, ...]:
        epilogue = Int8Epilogue.of(node, graph)
        return (Conv.of(node, graph), epilogue and (epilogue.how, epilogue.rest))

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        epilogue, traversal = Int8Epilogue.of(node, graph), self._traversal(node, graph)
        assert epilogue is not None
        conv = Conv.of(node, graph)
        taps = stored_weights(node, graph).reshape(conv.channels, 3, 3)
        scaling, bias = best_scaling(node, graph, ALONE)
        packed = pack(taps.swapaxes(1, 2) if traversal.transposed else taps, bias, scaling)
        body = template(
            "kernels/conv2d/dsp/depthwise3x3_int8.c.j2",
            conv=conv,
            traversal=traversal,
            how=epilogue.how,
            kind=scaling.kind,
            exact=scaling if isinstance(scaling, ExactScaling) else None,
            floats=any_has_floats(self._alike(node, graph), graph),
            stream=packed.shape[1],
            offset=weight_offset(node, graph),
        )
        layout = f"a channel a row: bias, {scaling.meaning}, a word (w0,w1,w2,0) for each row of taps"
        return epilogue.kernel(node, graph, body, packed, layout, HEADER, "int16_t")


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
