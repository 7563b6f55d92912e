"""Depthwise convolutions whose results are sums of int16, for SIMD32: pairs of taps meet a channel's plane.

The inner loops: crt/include/mt_dsp_depthwise_int16.h.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import DIRECTION_MEANING, DIRECTIONS, Conv, Traversal
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule, T
from mtool.compiler.kernels.epilogues import Int8Epilogue, Int16Epilogue, Products, SumEpilogue
from mtool.compiler.kernels.exact_scaling import ExactScaling
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.scaling import Scaling
from mtool.compiler.kernels.schedule import Kernel, knob
from mtool.compiler.kernels.target import Target

# Depthwise convolutions of int8 with any kernel for SIMD32: pairs of taps pass over a channel's plane.
#
# The inner loops and the layout of the packed weights: crt/include/mt_dsp_depthwise_int8.h.


class PhasedTraversal(Traversal):
    """The plane of a channel over which pairs of taps pass.

    With a dilation along the fast axis the columns stand in as many phases, so that the taps of an output are
    neighbours.
    """

    __slots__ = ()

    @classmethod
    def of(cls, conv: Conv, direction: str = "") -> Self | None:
        """Choose the direction with the fewer instructions; None: neither is possible."""
        possible = [way for way in cls.ways(conv, direction) if way.dilation[1] == 1 or way.stride[1] == 1]
        return min(possible, key=lambda way: way.cost(1), default=None)

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
        wanted = -(-self.out_size[1] // self.dilation[1])
        ahead = 2 * self.steps + {1: 2, 2: 6}.get(self.stride[1], 3 * self.stride[1])
        columns = -(-(self.copied[1] + self.pad[1]) // self.dilation[1])
        return round_up(max((round_up(wanted, 4) - 4) * self.stride[1] + ahead, columns), 2)

    @property
    def pitch(self) -> int:
        """Elements from one row of the plane to the next."""
        return self.phase * self.dilation[1]

    def cost(self, multiplier: int) -> float:
        """Instructions a channel: 6 a step for four outputs (10 with a large stride), 46 for four results."""
        each = 6 if self.stride[1] <= 2 else 10
        four = self.kernel[0] * (each * self.steps + 6) + 46
        row = math.ceil(self.out_size[1] / self.dilation[1] / 4) * self.dilation[1] * four + 16
        copying = self.copied[0] * (self.copied[1] * (2.3 if self.dilation[1] == 1 else 9) + 6)
        return multiplier * (self.out_size[0] * row + 3 * self.taps) + copying


@dataclass(frozen=True)
class Taps(ConvSchedule[T]):
    """The common part of the schedules."""

    core = "has_dsp"
    header: ClassVar[str]
    after: ClassVar[int]  # instructions of an output that an epilogue follows
    over_operands = False

    direction: str = knob("", *DIRECTIONS, meaning=DIRECTION_MEANING)

    def fits(self, conv: Conv, epilogue: T) -> bool:
        """Return whether it is depthwise, of one image, with weights of 8 or 16 bits."""
        shape = conv.is_depthwise and conv.batch == 1 and PhasedTraversal.of(conv, self.direction) is not None
        return shape and epilogue.weights.dtype in (np.int8, np.int16)

    def _traversal(self, conv: Conv) -> PhasedTraversal:
        traversal = PhasedTraversal.of(conv, self.direction)
        assert traversal is not None
        return traversal

    def scratch(self, conv: Conv, epilogue: T) -> int:
        """One padded plane of int16, and a channel's taps."""
        traversal = self._traversal(conv)
        return 2 * (traversal.pitch * traversal.plane[0] + traversal.taps)

    def instructions(self, conv: Conv, epilogue: T, target: Target) -> float:
        """See PhasedTraversal, and what follows."""
        after = self.after * conv.pixels * conv.out_channels if epilogue.rest is not None else 0
        return conv.channels * self._traversal(conv).cost(conv.out_channels // conv.channels) + after

    def rendered(self, conv: Conv, epilogue: T, bias: Array, scaling: Scaling | None = None, **values: Any) -> Kernel:
        """Write the function, of sums that are scaled or are not."""
        traversal, taps = self._traversal(conv), epilogue.weights.reshape(conv.out_channels, *conv.kernel)
        packed = pack(traversal.turned_taps(taps), bias, scaling)
        words = "" if scaling is None else f" and {scaling.meaning}"
        return epilogue.kernel(
            "kernels/conv2d/dsp/depthwise.c.j2",
            Products(packed, f"a channel a row: bytes of bias{words}, taps in rows that are filled up", (self.header,)),
            "int16_t",
            conv=conv,
            traversal=traversal,
            multiplier=conv.out_channels // conv.channels,
            spread="mt_dsp_spread_i8" if taps.dtype == np.int8 else "mt_dsp_spread_i16",
            stream=packed.shape[1],
            kind="" if scaling is None else scaling.kind,
            exact=scaling if isinstance(scaling, ExactScaling) else None,
            head=4 // packed.itemsize * (1 if scaling is None else 1 + scaling.words.shape[1]),
            **values,
        )


class Depthwise(Taps[Int8Epilogue]):
    """Depthwise: a channel is widened with its padding into a plane of int16; pairs of taps serve four outputs.

    A channel has been read whole before any of it is written, and writes only its own elements: the output may take the
    input's storage.
    """

    name = "dsp_taps"
    forms = (Int8Epilogue,)
    header = "mt_dsp_depthwise_int8.h"
    after = 6
    sweep: ClassVar[str] = "mt_dsp_sweep"

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """Any kernel, stride and multiplier, one image, int8 to 8 bits; weights may have a zero point."""
        return super().fits(conv, epilogue) and epilogue.stores_kind

    def over_input(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """If each channel has one output that is no larger."""
        return conv.channels == conv.out_channels and conv.shrinks

    def kernel(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Kernel:
        """Write the function."""
        scaling, bias = epilogue.exact_scaling()
        return self.rendered(conv, epilogue, bias, scaling, x=epilogue.kind.c, sweep=self.sweep)


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


class DepthwiseInt16(Depthwise):
    """Depthwise: a channel is copied with its padding into a plane, then pairs of taps serve four outputs.

    As of int8, but that nothing is widened.
    """

    name = "dsp16_taps"
    forms = (Int16Epilogue,)
    header = "mt_dsp_depthwise_int16.h"
    after = 8
    sweep = "mt_dsp16_sweep"

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """Any kernel, stride and multiplier, one image, int16 to int16, sums of 32 bits."""
        return bool(epilogue.bias.dtype == np.int32) and super().fits(conv, epilogue)


class DepthwiseSums(Taps[SumEpilogue]):
    """Depthwise: a channel is copied with its padding into a plane, then pairs of taps meet four outputs.

    What follows a row of sums is any expression.
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

    def kernel(self, conv: Conv, epilogue: SumEpilogue, target: Target) -> Kernel:
        """Write the function."""
        return self.rendered(conv, epilogue, epilogue.bias, x="int16_t")
