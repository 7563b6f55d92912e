"""Depthwise convolutions whose results are sums of int16, for SIMD32: pairs of taps meet a channel's plane.

The inner loops: crt/include/mt_dsp_depthwise_int16.h.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.node import WithEpilogue
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import DIRECTION_MEANING, DIRECTIONS, Conv
from mtool.compiler.kernels.epilogues import Int8Epilogue, Int16Epilogue, SumEpilogue
from mtool.compiler.kernels.exact_scaling import ExactScaling
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.scaling import Scaling
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel, knob
from mtool.compiler.kernels.target import Target

# Depthwise convolutions of int8 with any kernel for SIMD32: pairs of taps pass over a channel's plane.
#
# The inner loops and the layout of the packed weights: crt/include/mt_dsp_depthwise_int8.h.


Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Traversal:
    """The plane of a channel as it is traversed: everything as (slow, fast), steps in bytes of the tensors.

    With a dilation along the fast axis the columns stand in as many phases, so that the taps of an output are
    neighbours.
    """

    size: Pair
    out_size: Pair
    pad: Pair
    kernel: Pair
    stride: Pair
    dilation: Pair
    in_step: Pair
    out_step: Pair
    transposed: bool

    @classmethod
    def of(cls, conv: Conv, direction: str = "") -> "Traversal | None":
        """Choose the direction with the fewer instructions; None: neither is possible."""
        (_, w), (_, ow), c, n = conv.size, conv.out_size, conv.channels, conv.out_channels
        in_step, out_step = (w * c, c), (ow * n, n)
        straight = cls(
            conv.size, conv.out_size, conv.pad, conv.kernel, conv.stride, conv.dilation, in_step, out_step, False
        )
        turned = cls(
            _turned(conv.size), _turned(conv.out_size), _turned(conv.pad), _turned(conv.kernel), _turned(conv.stride),
            _turned(conv.dilation), _turned(in_step), _turned(out_step), True,
        )  # fmt: skip
        named = {"straight": [straight], "turned": [turned]}.get(direction, [straight, turned])
        possible = [traversal for traversal in named if traversal.dilation[1] == 1 or traversal.stride[1] == 1]
        return min(possible, key=lambda traversal: traversal.cost(1), default=None)

    @property
    def steps(self) -> int:
        """Pairs of columns that a row of taps needs, one column later too."""
        return self.kernel[1] // 2 + 1

    @property
    def taps(self) -> int:
        """Elements of the spread taps."""
        return self.kernel[0] * self.steps * 4

    @property
    def reached(self) -> Pair:
        """Rows and columns with padding that outputs reach."""
        return tuple(  # type: ignore[return-value]
            (self.out_size[i] - 1) * self.stride[i] + (self.kernel[i] - 1) * self.dilation[i] + 1 for i in (0, 1)
        )

    @property
    def rows(self) -> int:
        """Rows of the plane."""
        return self.reached[0]

    @property
    def phase(self) -> int:
        """Elements of one phase of a row, an even number: what whole groups of four outputs read."""
        wanted = -(-self.out_size[1] // self.dilation[1])
        ahead = 2 * self.steps + {1: 2, 2: 6}.get(self.stride[1], 3 * self.stride[1])
        columns = -(-(self.copied[1] + self.pad[1]) // self.dilation[1])
        return round_up(max((round_up(wanted, 4) - 4) * self.stride[1] + ahead, columns), 2)

    @property
    def pitch(self) -> int:
        """Elements from one row of the plane to the next."""
        return self.phase * self.dilation[1]

    @property
    def copied(self) -> Pair:
        """Rows and columns of the input that outputs reach."""
        return tuple(min(self.size[i], self.reached[i] - self.pad[i]) for i in (0, 1))  # type: ignore[return-value]

    def cost(self, multiplier: int) -> float:
        """Instructions a channel: 6 a step for four outputs (10 with a large stride), 46 for four results."""
        each = 6 if self.stride[1] <= 2 else 10
        four = self.kernel[0] * (each * self.steps + 6) + 46
        row = math.ceil(self.out_size[1] / self.dilation[1] / 4) * self.dilation[1] * four + 16
        copying = self.copied[0] * (self.copied[1] * (2.3 if self.dilation[1] == 1 else 9) + 6)
        return multiplier * (self.out_size[0] * row + 3 * self.taps) + copying


def _turned(pair: Pair) -> Pair:
    return pair[1], pair[0]


@dataclass(frozen=True)
class Depthwise(BaseSchedule):
    """Depthwise: a channel is widened with its padding into a plane of int16; pairs of taps serve four outputs.

    A channel has been read whole before any of it is written, and writes only its own elements: the output may take the
    input's storage.
    """

    name = "dsp_taps"
    epilogue_type: ClassVar[type[Int8Epilogue]] = Int8Epilogue
    after: ClassVar[int] = 6  # instructions of an output that an epilogue follows
    sweep: ClassVar[str] = "mt_dsp_sweep"
    header: ClassVar[str] = "mt_dsp_depthwise_int8.h"

    direction: str = knob("", *DIRECTIONS, meaning=DIRECTION_MEANING)

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Any kernel, stride and multiplier, one image, int8 to 8 bits; weights may have a zero point."""
        conv, epilogue = Conv.of(node, graph), self.epilogue_type.of(node, graph)
        shape = conv.is_depthwise and conv.batch == 1 and Traversal.of(conv, self.direction) is not None
        narrow = graph.constants[node.inputs[1]].dtype in (np.int8, np.int16)
        as_wide = graph.types[node.outputs[0]].dtype.size == self.epilogue_type.kind.size
        return target.has_dsp and shape and narrow and epilogue is not None and as_wide

    def _traversal(self, node: Node, graph: Graph) -> Traversal:
        traversal = Traversal.of(Conv.of(node, graph), self.direction)
        assert traversal is not None
        return traversal

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """One padded plane of int16, and a channel's taps."""
        traversal = self._traversal(node, graph)
        return 2 * (traversal.pitch * traversal.rows + traversal.taps)

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if each channel has one output that is no larger."""
        conv = Conv.of(node, graph)
        own = conv.channels == conv.out_channels and not WithEpilogue.of(node).epilogue.operands() & {0}
        smaller = graph.types[node.inputs[0]].bytes >= graph.types[node.outputs[0]].bytes
        return (0,) if own and smaller else ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """See Traversal, and what follows."""
        conv, epilogue = Conv.of(node, graph), self.epilogue_type.of(node, graph)
        after = (
            self.after * conv.pixels * conv.out_channels if epilogue is not None and epilogue.rest is not None else 0
        )
        return conv.channels * self._traversal(node, graph).cost(conv.out_channels // conv.channels) + after

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        epilogue, traversal, conv = (
            self.epilogue_type.of(node, graph),
            self._traversal(node, graph),
            Conv.of(node, graph),
        )
        assert epilogue is not None
        taps = graph.constants[node.inputs[1]].reshape(conv.out_channels, *conv.kernel)
        scaling, bias = epilogue.exact_scaling(taps)
        packed = pack(taps.swapaxes(1, 2) if traversal.transposed else taps, bias, scaling)
        body = template(
            "kernels/conv2d/dsp/depthwise.c.j2",
            conv=conv,
            traversal=traversal,
            how=epilogue.how,
            epilogue=epilogue,
            multiplier=conv.out_channels // conv.channels,
            spread="mt_dsp_spread_i8" if taps.dtype == np.int8 else "mt_dsp_spread_i16",
            stream=packed.shape[1],
            x=self.epilogue_type.kind.c,
            sweep=self.sweep,
            kind=scaling.kind,
            exact=scaling if isinstance(scaling, ExactScaling) else None,
            head=4 // packed.itemsize * (1 + scaling.words.shape[1]),
            rest=lambda acc, offset, channel: epilogue.rest_text(node, graph, acc, offset, channel),
        )
        layout = f"a channel a row: bytes of bias and {scaling.meaning}, taps in rows that are filled up"
        return epilogue.kernel(node, graph, body, packed, layout, self.header, "int16_t")


def pack(taps: Array, bias: Array, scaling: Scaling | None) -> Array:
    """Return for each channel bias, scaling and taps in the taps' own type; a row of taps is filled up to whole steps.

    Args:
        taps: int8 or int16 [N, rows, columns], along (slow, fast).
        bias: int32 [N], the input's zero point folded in.
        scaling: of N channels; None: there is none.
    """
    count, _, columns = taps.shape
    filled = np.pad(taps, ((0, 0), (0, 0), (0, columns // 2 * 2 + 2 - columns))).reshape(count, -1)
    heads = bias.astype(np.int32).view(np.uint32)[:, None]
    if scaling is not None:
        heads = np.concatenate([heads, scaling.words], axis=1)
    return np.concatenate([np.ascontiguousarray(heads).view(taps.dtype), filled], axis=1)


# Depthwise convolutions of int16 activations for SIMD32: pairs of taps pass over a channel's plane.
#
# The inner loops and the layout of the packed weights: crt/include/mt_dsp_depthwise_int16.h.


@dataclass(frozen=True)
class DepthwiseInt16(Depthwise):
    """Depthwise: a channel is copied with its padding into a plane, then pairs of taps serve four outputs.

    As of int8, but that nothing is widened.
    """

    name = "dsp16_taps"
    epilogue_type = Int16Epilogue
    after = 8
    sweep = "mt_dsp16_sweep"
    header = "mt_dsp_depthwise_int16.h"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Any kernel, stride and multiplier, one image, int16 to int16, sums of 32 bits."""
        return bool(graph.constants[node.inputs[2]].dtype == np.int32) and super().supports(node, graph, target)


@dataclass(frozen=True)
class DepthwiseSums(Depthwise):
    """Depthwise: a channel is copied with its padding into a plane, then pairs of taps meet four outputs.

    What follows a row of sums is any expression.
    """

    name = "dsp16_tap_sums"
    header = "mt_dsp_depthwise_int16.h"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Any kernel, stride and multiplier, one image, int16, sums of 32 bits."""
        conv = Conv.of(node, graph)
        shape = conv.is_depthwise and conv.batch == 1 and Traversal.of(conv, self.direction) is not None
        narrow = graph.constants[node.inputs[1]].dtype in (np.int8, np.int16)
        return target.has_dsp and shape and narrow and SumEpilogue.of(node, graph) is not None

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """One padded plane of int16, a channel's taps, a row of sums."""
        return super().scratch_bytes(node, graph) + 4 * self._traversal(node, graph).out_size[1]

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """None."""
        return ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """See Traversal, and 8 of an output for what follows."""
        conv = Conv.of(node, graph)
        each = self._traversal(node, graph).cost(conv.out_channels // conv.channels)
        return conv.channels * each + 8 * conv.pixels * conv.out_channels

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        epilogue, traversal, conv = SumEpilogue.of(node, graph), self._traversal(node, graph), Conv.of(node, graph)
        assert epilogue is not None
        taps = graph.constants[node.inputs[1]].reshape(conv.out_channels, *conv.kernel)
        packed = pack(taps.swapaxes(1, 2) if traversal.transposed else taps, epilogue.bias, None)
        body = template(
            "kernels/conv2d/dsp/depthwise.c.j2",
            conv=conv,
            traversal=traversal,
            epilogue=epilogue,
            multiplier=conv.out_channels // conv.channels,
            spread="mt_dsp_spread_i8" if taps.dtype == np.int8 else "mt_dsp_spread_i16",
            stream=packed.shape[1],
            x="int16_t",
            kind="",
            head=4 // packed.itemsize,
            rest=lambda acc, offset, channel: epilogue.rest_text(node, graph, acc, offset, channel),
        )
        layout = "a channel a row: bytes of bias, taps in rows that are filled up"
        return epilogue.kernel(node, graph, body, packed, layout, self.header, "int16_t")
