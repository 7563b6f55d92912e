"""Depthwise convolutions for SIMD32: pairs of taps pass over a channel's plane of int16.

The inner loops and the layouts of the packed weights: crt/include/mt_dsp_depthwise*.h.
"""

import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from mtool.compiler.ir import Array, Graph, Node
from mtool.compiler.kernels.conv2d.geometry import DIRECTION_MEANING, DIRECTIONS, Conv, Traversal
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule, T, TapsSchedule
from mtool.compiler.kernels.dsp import any_has_floats, best_scaling, in_software
from mtool.compiler.kernels.epilogues import Int8Epilogue, Int16Epilogue, Products, SumEpilogue
from mtool.compiler.kernels.exact_scaling import ALONE, PLACES, ExactScaling
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.scaling import FloatScaling, Scaling
from mtool.compiler.kernels.schedule import Target, knob

# Depthwise convolutions of int8 with any kernel for SIMD32: pairs of taps pass over a channel's plane.
#
# The inner loops and the layout of the packed weights: crt/include/mt_dsp_depthwise_int8.h.


class PhasedTraversal(Traversal):
    """The plane of a channel over which pairs of taps pass.

    With a dilation along the fast axis, the columns are ordered by phase, so that the taps of an output are adjacent.
    """

    __slots__ = ()

    @classmethod
    def all(cls, conv: Conv, direction: str = "") -> list[Self]:
        """Return the possible traversals, the one with the fewest instructions first."""
        possible = [way for way in cls.ways(conv, direction) if way.dilation[1] == 1 or way.stride[1] == 1]
        return sorted(possible, key=lambda way: way.cost(1))

    @property
    def steps(self) -> int:
        """Pairs of columns that a row of taps needs, one column later too."""
        return self.kernel[1] // 2 + 1

    @property
    def taps(self) -> int:
        """Elements of the spread taps."""
        return self.kernel[0] * self.steps * 4

    @property
    def phase(self) -> int:
        """Elements of one phase of a row, an even number: what whole groups of four outputs read."""
        outputs = -(-self.out_size[1] // self.dilation[1])
        ahead = 2 * self.steps + {1: 2, 2: 6}.get(self.stride[1], 3 * self.stride[1])
        columns = -(-(self.copied[1] + self.pad[1]) // self.dilation[1])
        return round_up(max((round_up(outputs, 4) - 4) * self.stride[1] + ahead, columns), 2)

    @property
    def pitch(self) -> int:
        """Elements from one row of the plane to the next."""
        return self.phase * self.dilation[1]

    def cost(self, multiplier: int) -> float:
        """Instructions a channel: 6 a step for four outputs (10 with a large stride), 46 for four results."""
        step = 6 if self.stride[1] <= 2 else 10
        four = self.kernel[0] * (step * self.steps + 6) + 46
        row = math.ceil(self.out_size[1] / self.dilation[1] / 4) * self.dilation[1] * four + 16
        copying = self.copied[0] * (self.copied[1] * (2.3 if self.dilation[1] == 1 else 9) + 6)
        return multiplier * (self.out_size[0] * row + 3 * self.taps) + copying


@dataclass(frozen=True)
class Taps(ConvSchedule[T]):
    """The common part of the schedules."""

    core = "has_dsp_and_fpu"
    header: ClassVar[str]
    after: ClassVar[int]  # additional instructions per output with an epilogue
    sweep: ClassVar[str] = ""
    template = "kernels/conv2d/dsp/depthwise.c.j2"
    scratch_type = "int16_t"
    over_operands = False

    direction: str = knob("", *DIRECTIONS, meaning=DIRECTION_MEANING)

    def fits(self, conv: Conv, epilogue: T) -> bool:
        """Return whether it is depthwise, of one image, with weights of 8 or 16 bits."""
        shape = conv.is_depthwise and conv.batch == 1 and PhasedTraversal.all(conv, self.direction) != []
        return shape and epilogue.weights.dtype in (np.int8, np.int16)

    def _traversal(self, conv: Conv) -> PhasedTraversal:
        return PhasedTraversal.all(conv, self.direction)[0]

    def scratch(self, conv: Conv, epilogue: T) -> int:
        """One padded plane of int16, and a channel's taps."""
        traversal = self._traversal(conv)
        return 2 * (traversal.pitch * traversal.plane[0] + traversal.taps)

    def instructions(self, conv: Conv, epilogue: T, target: Target) -> float:
        """See PhasedTraversal, and what follows."""
        after: float = self.after if epilogue.rest is not None else 0
        after += in_software(lambda: self._scaling(epilogue)[0], target)
        cost = conv.channels * self._traversal(conv).cost(conv.out_channels // conv.channels)
        return cost + after * conv.pixels * conv.out_channels

    def _scaling(self, epilogue: T) -> tuple[Scaling | None, Array]:
        """Return the scaling of the sums, if any, and the biases."""
        return None, epilogue.bias_of_model

    def products(self, conv: Conv, epilogue: T, target: Target) -> Products:
        """A single channel."""
        scaling, bias = self._scaling(epilogue)
        taps = self._traversal(conv).turned_taps(epilogue.weights.reshape(conv.out_channels, *conv.kernel))
        words = "" if scaling is None else f" and {scaling.meaning}"
        layout = f"a channel a row: bytes of bias{words}, taps in rows that are padded"
        return Products(pack(taps, bias, scaling), layout, self.header)

    def values(self, conv: Conv, epilogue: T, target: Target) -> dict[str, Any]:
        """The traversal, and how sums are scaled."""
        scaling, _ = self._scaling(epilogue)
        exact = scaling if isinstance(scaling, ExactScaling) else None
        return {"traversal": self._traversal(conv), "scaling": scaling, "exact": exact, "sweep": self.sweep}


class Depthwise(Taps[Int8Epilogue]):
    """Depthwise: a channel is widened with its padding into a plane of int16; pairs of taps serve four outputs.

    A channel is read completely before any of it is written, and writes only its own elements: the output may take the
    input's storage.
    """

    name = "dsp_taps"
    core = "has_dsp"
    forms = (Int8Epilogue,)
    header = "mt_dsp_depthwise_int8.h"
    after = 6
    sweep = "mt_dsp_sweep"

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """Any kernel, stride and multiplier, one image, int8 to 8 bits; weights may have a zero point."""
        return super().fits(conv, epilogue) and epilogue.stores_kind

    def over_input(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """If each channel has one output and the output is not larger than the input."""
        return conv.channels == conv.out_channels and conv.shrinks

    def _scaling(self, epilogue: Int8Epilogue) -> tuple[Scaling | None, Array]:
        return epilogue.exact_scaling()


def pack(taps: Array, bias: Array, scaling: Scaling | None) -> Array:
    """Return for each channel bias, scaling and taps in the taps' own type; a row of taps is padded to whole steps.

    Args:
        taps: int8 or int16 [N, rows, columns], along (slow, fast).
        bias: int32 [N], the input's zero point folded in.
        scaling: the scaling of N channels; None: none.
    """
    count, _, columns = taps.shape
    filled = np.pad(taps, ((0, 0), (0, 0), (0, columns // 2 * 2 + 2 - columns))).reshape(count, -1)
    heads = bias.astype(np.int32).view(np.uint32)[:, None]
    if scaling is not None:
        heads = np.concatenate([heads, scaling.words], axis=1)
    return np.concatenate([np.ascontiguousarray(heads).view(taps.dtype), filled], axis=1)


class DepthwiseInt16(Depthwise):
    """Depthwise: a channel is copied with its padding into a plane, then pairs of taps serve four outputs.

    Like that of int8, but without widening.
    """

    name = "dsp16_taps"
    core = "has_dsp_and_fpu"
    forms = (Int16Epilogue,)
    header = "mt_dsp_depthwise_int16.h"
    after = 8
    sweep = "mt_dsp16_sweep"

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """Any kernel, stride and multiplier, one image, int16 to int16, sums of 32 bits."""
        return bool(epilogue.bias.dtype == np.int32) and super().fits(conv, epilogue)


class DepthwiseSums(Taps[SumEpilogue]):
    """Depthwise: a channel is copied with its padding into a plane, then pairs of taps serve four outputs.

    Any expression can follow a row of sums.
    """

    name = "dsp16_tap_sums"
    forms = (SumEpilogue,)
    header = "mt_dsp_depthwise_int16.h"
    after = 8

    def fits(self, conv: Conv, epilogue: SumEpilogue) -> bool:
        """Any kernel, stride and multiplier, one image, int16, sums of 32 bits."""
        return super().fits(conv, epilogue)

    def scratch(self, conv: Conv, epilogue: SumEpilogue) -> int:
        """One padded plane of int16, a channel's taps, a row of sums."""
        return super().scratch(conv, epilogue) + 4 * self._traversal(conv).out_size[1]


ROW_REACH = 1020  # bytes: the largest offset of LDRD
STEP_REACH = 4095  # bytes: the largest offset of STRB and constant of ADDW
COMMON_PITCH = 32  # elements of a plane's row, at least, where layers of several sizes share a function


class SlidingTraversal(Traversal):
    """The plane of a channel whose outputs are computed in pairs along the fast axis; a single one costs extra."""

    __slots__ = ()

    @classmethod
    def all(cls, conv: Conv, direction: str = "") -> list[Self]:
        """Return the traversals within the reach of the instructions, the one with the fewest instructions first.

        Of two that cost the same, the turned one takes fewer instructions with a stride of one, the other with two.
        """
        fitting = [
            way for way in cls.ways(conv, direction) if 4 * way.pitch <= ROW_REACH and 2 * way.out_step[1] <= STEP_REACH
        ]
        usual = conv.stride[0] == 1
        return sorted(fitting, key=lambda way: (way.cost(), way.transposed != usual))

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

    A channel is read completely before any of it is written, and writes only its own elements: the output may take the
    input's storage.
    """

    name = "dsp_plane"
    template = "kernels/conv2d/dsp/depthwise3x3_int8.c.j2"
    scratch_type = "int16_t"
    core = "has_dsp"
    forms = (Int8Epilogue,)

    direction: str = knob("", *DIRECTIONS, meaning=DIRECTION_MEANING)

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """3x3, stride 1 or 2 both ways, one image, int8 to int8."""
        direct = epilogue.rest is None and (epilogue.is_bounded or epilogue.is_plain)
        int8 = epilogue.stored_weights.dtype == np.int8
        return conv.is_depthwise_3x3 and direct and int8 and SlidingTraversal.all(conv, self.direction) != []

    def _traversal(self, conv: Conv) -> SlidingTraversal:
        return SlidingTraversal.all(conv, self.direction)[0]

    def scratch(self, conv: Conv, epilogue: Int8Epilogue) -> int:
        """One padded plane of int16."""
        return 2 * self._pitch(conv, epilogue) * self._traversal(conv).plane[0]

    def _pitch(self, conv: Conv, epilogue: Int8Epilogue) -> int:
        return max(self._traversal(conv).pitch, COMMON_PITCH * epilogue.graph.for_size)

    def over_input(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """If the output is not larger than the input."""
        return conv.shrinks

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """See SlidingTraversal."""
        software = in_software(lambda: best_scaling(epilogue.node, epilogue.graph, ALONE)[0], target)
        return conv.channels * (self._traversal(conv).cost() + software * conv.pixels)

    def _is_sized(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> bool:
        """Whether layers of other sizes can have the same function (codegen.functions): code is to be small."""
        traversal, (scaling, _) = self._traversal(conv), best_scaling(epilogue.node, epilogue.graph, ALONE)
        short = traversal.pitch <= COMMON_PITCH and traversal.out_size[1] > 1
        exact = isinstance(scaling, ExactScaling | FloatScaling)
        return epilogue.graph.for_size and target.has_float and short and exact

    def _scaling(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> tuple[Scaling, Array]:
        scaling, bias = best_scaling(epilogue.node, epilogue.graph, ALONE)
        if isinstance(scaling, FloatScaling) and self._is_sized(conv, epilogue, target):
            return ExactScaling.of_floats(scaling.scale, epilogue.how.zero_point, PLACES[0]), bias
        return scaling, bias

    def products(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Products:
        """A single channel."""
        weights = epilogue.stored_weights
        scaling, bias = self._scaling(conv, epilogue, target)
        taps = self._traversal(conv).turned_taps(weights.reshape(conv.channels, 3, 3))
        layout = f"a channel a row: bias, {scaling.meaning}, a word (w0,w1,w2,0) for each row of taps"
        shared = ("MT_DSP_WIDEN_PLANE(mt_dsp_plane)",) * epilogue.graph.for_size
        return Products(pack_3x3(taps, bias, scaling), layout, "mt_dsp_depthwise3x3_int8.h", shared=shared)

    def values(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> dict[str, Any]:
        """The traversal, and how sums are scaled; nodes that are alike have one function if they do it alike."""
        node, graph = epilogue.node, epilogue.graph
        if "alike depthwise" not in graph.memo:
            groups: dict[tuple[object, ...], list[Node]] = {}
            graph.memo["alike depthwise"] = groups
            for other in graph.nodes:
                if other.op == node.op and Conv.of(other, graph).is_depthwise:
                    groups.setdefault(_key(other, graph), []).append(other)
        alike, sized = graph.memo["alike depthwise"], self._is_sized(conv, epilogue, target)
        scaling, _ = self._scaling(conv, epilogue, target)
        exact = scaling if isinstance(scaling, ExactScaling) else None
        nodes = itertools.chain(*alike.values()) if sized else alike[_key(node, graph)]
        variables = {"traversal": self._traversal(conv), "pitch": self._pitch(conv, epilogue), "sized": sized}
        variables |= {"by_function": graph.for_size, "kind": scaling.kind, "exact": exact}
        return variables | {"floats": any_has_floats(nodes, graph, or_all=sized)}


def _key(node: Node, graph: Graph) -> tuple[object, ...]:
    epilogue = Int8Epilogue.of(node, graph)
    return Conv.of(node, graph), epilogue and (epilogue.how, epilogue.rest)


def pack_3x3(taps: Array, bias: Array, scaling: Scaling) -> Array:
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


class Columns(TapsSchedule):
    """Depthwise: pixel by pixel, four channels at a time, pairs of taps from where the input lies."""

    name = "dsp_columns"
    template = "kernels/conv2d/dsp/columns_int8.c.j2"
    core = "has_dsp"
    together = 4

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """18 instructions two taps of four channels, 46 for their results, 12 for a pixel; 6 for an epilogue."""
        after = 6.0 * conv.channels if epilogue.rest is not None else 0.0
        after += in_software(lambda: epilogue.exact_scaling()[0], target) * conv.channels
        four = 18 * -(-conv.depth // 2) + 46
        return float(conv.pixels * (conv.channels / 4 * four + 12 + after) + 20)

    def products(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Products:
        """Four channels together."""
        scaling, bias = epilogue.exact_scaling()
        stream = pack_columns(epilogue.weights.reshape(conv.channels, -1), bias, scaling)
        layout = f"4 channels a row: biases, words of two channels' two taps, {scaling.meaning} of each"
        return Products(stream, layout, "mt_dsp_columns_int8.h")

    def values(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> dict[str, Any]:
        """How sums are scaled."""
        scaling, _ = epilogue.exact_scaling()
        if isinstance(scaling, ExactScaling):
            return {"by": f"MT_EXACT_{scaling.places}", "mixed": int(not scaling.has_multiplier.all())}
        return {"by": {"": "MT_BY_FLOAT", "_twice": "MT_TWICE", "_once": "MT_ONCE"}[scaling.kind], "mixed": 0}


def pack_columns(taps: Array, bias: Array, scaling: Scaling) -> Array:
    """Return the stream of mt_dsp_tap_sums, uint32 [C/4, ...].

    Args:
        taps: int8 [C, T].
        bias: int32 [C], the input's zero point folded in.
        scaling: of C channels.
    """
    count = len(taps)
    pairs = np.pad(taps, ((0, 0), (0, taps.shape[1] % 2))).reshape(
        count // 4, 2, 2, -1, 2
    )  # four, two, channel, pair, tap
    words = np.ascontiguousarray(pairs.transpose(0, 3, 1, 4, 2)).reshape(count // 4, -1).view(np.uint32)
    heads, scales = bias.astype(np.int32).view(np.uint32).reshape(-1, 4), scaling.words.reshape(count // 4, -1)
    return np.concatenate([heads, words, scales], axis=1)


SCHEDULES = (Depthwise3x3(), Depthwise(), Columns(), DepthwiseInt16(), DepthwiseSums())
