"""Depthwise convolutions for Helium: vectors of channels, of int16 and float32 from a ring of rows.

The inner loops and the layouts of the packed weights: crt/include/mt_mve_depthwise*.h, mt_mve_taps_int8.h.
"""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule, TapsSchedule
from mtool.compiler.kernels.epilogues import Epilogue16, FloatEpilogue, Int8Epilogue, Products
from mtool.compiler.kernels.mve import EVEN_FIRST, F32_LANES, INT16_LANES, has_narrow_sums
from mtool.compiler.kernels.packing import by_turns, numbers_of, round_up
from mtool.compiler.kernels.schedule import Target, knob


def pack_int16(taps: Array, bias: Array, scale: Array | None = None) -> Array:
    """Return int8 [C/8, 32 or 64 + 8 * T]: biases and scales of even and odd channels around eight of each tap.

    Args:
        taps: int8 [C, T]; C is padded to a multiple of 8.
        bias: int32 [C], the input's zero point folded in.
        scale: float32 [C]; None: there are none.
    """
    parts = [numbers_of(bias, INT16_LANES, np.int32, order=EVEN_FIRST), by_turns(taps, INT16_LANES, 1)]
    if scale is not None:
        parts.append(numbers_of(scale, INT16_LANES, np.float32, order=EVEN_FIRST))
    return np.concatenate(parts, axis=1)


class DepthwiseInt16(ConvSchedule[Epilogue16]):
    """Depthwise: pixel by pixel; the position of each tap is computed once for all channels, eight at a time.

    Rows of the input are copied into a ring of the rows that the kernel spans.
    """

    name = "mve16_taps"
    template = "kernels/conv2d/mve/depthwise_int16.c.j2"
    scratch_type = "int32_t"
    core = "has_mve"
    has_ring = True
    forms = get_args(Epilogue16)
    over_operands = False

    def fits(self, conv: Conv, epilogue: Epilogue16) -> bool:
        """Any kernel, stride and dilation, one image, int16 to int16 or sums of 32 bits."""
        return conv.is_channelwise and has_narrow_sums(epilogue.node, epilogue.graph)

    def _results(self, conv: Conv, epilogue: Epilogue16) -> int:
        """Results of a pixel that an epilogue follows, in int16."""
        if epilogue.is_scaled:
            return conv.channels if epilogue.rest is not None else 0
        return 2 * round_up(conv.channels, INT16_LANES)

    def scratch(self, conv: Conv, epilogue: Epilogue16) -> int:
        """An offset a tap, a pixel of padding, results that an epilogue follows, the ring."""
        ring = conv.ring.rows * conv.size[1] * conv.channels
        return 4 * conv.depth + 2 * (conv.channels + self._results(conv, epilogue) + ring)

    def instructions(self, conv: Conv, epilogue: Epilogue16, target: Target) -> float:
        """10 instructions a tap of a vector, 32 for its result, 12 to find where a tap is."""
        vectors, after = math.ceil(conv.channels / INT16_LANES), 8 * self._results(conv, epilogue)
        copying = math.prod(conv.size) * conv.channels / 2
        return float(conv.pixels * (vectors * (8 * conv.depth + 34) + 12 * conv.depth + after)) + copying

    def products(self, conv: Conv, epilogue: Epilogue16, target: Target) -> Products:
        """Eight channels together."""
        stream = pack_int16(epilogue.weights.reshape(conv.channels, -1), *epilogue.numbers)
        layout = "8 channels a row: bytes of biases (even channels first), a vector a tap"
        layout += ", bytes of scales" if epilogue.is_scaled else ""
        declared = epilogue.declared("mt_mve16_range", "MT_MVE16_RANGE")
        return Products(stream, layout, "mt_mve_depthwise_int16.h", declared=declared)


class DepthwiseInt8(TapsSchedule):
    """Depthwise: pixel by pixel, eight channels at a time, from where the input lies: for few pixels."""

    name = "mve_taps"
    template = "kernels/conv2d/mve/taps_int8.c.j2"
    core = "has_mve"
    together = 8

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """8 instructions a tap of a vector, 31 for its result, 22 for a pixel; 6 for an element of an epilogue."""
        after = 6 * conv.channels if epilogue.rest is not None else 0
        return float(conv.pixels * (conv.channels / 8 * (8 * conv.depth + 31) + 22 + after) + 30)

    def products(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Products:
        """Eight channels together."""
        taps = pack_int16(epilogue.weights.reshape(conv.channels, -1), epilogue.bias)
        stream = np.concatenate([taps, epilogue.scaling.vectors(INT16_LANES, EVEN_FIRST)], axis=1)
        layout = f"8 channels a row: bytes of biases (even channels first), a vector a tap, {epilogue.scaling.meaning}"
        declared = epilogue.declared("mt_mve_range", "MT_MVE_RANGE")
        return Products(stream, layout, "mt_mve_taps_int8.h", declared=declared)

    def values(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> dict[str, Any]:
        """The bytes from each tap to the next."""
        return {"step": conv.tap_step}


OUTPUTS = (4, 3, 2, 1, 5, 6)  # at a time
REGISTERS = 8
REACH = 508 // 16  # the largest offset of a load, in vectors
MOST_CODE = 320  # the most instructions, as all taps are written out
MOST_ROWS = 16  # the most rows of a ring


@frozen
class Segment:
    """Taps of a row of the kernel whose weights are held in registers while the inputs pass by.

    `passing`: for each vector of input, how many columns from the first output's first tap it stands, what it is
    multiplied with: pairs of an output and a tap, the taps counted from the segment's first.
    """

    first: int
    taps: int
    passing: Mapping[int, tuple[tuple[int, int], ...]]

    @property
    def instructions(self) -> int:
        """Loads of weights and inputs, products."""
        return self.taps + len(self.passing) + sum(len(products) for products in self.passing.values())


def segments(conv: Conv, outputs: int) -> tuple[Segment, ...]:
    """Cut a row of the kernel into as few segments as the registers allow, besides the sums and an input."""
    most = REGISTERS - 1 - outputs
    result = []
    for first in range(0, conv.kernel[1], most):
        taps = min(most, conv.kernel[1] - first)
        passing: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for output in range(outputs):
            for tap in range(taps):
                column = output * conv.stride[1] + (first + tap) * conv.dilation[1]
                passing[column].append((output, tap))
        result.append(Segment(first, taps, {column: tuple(passing[column]) for column in sorted(passing)}))
    return tuple(result)


def block_cost(conv: Conv, outputs: int) -> int:
    """Return the instructions for `outputs` adjacent outputs; 0 for none."""
    row = sum(segment.instructions for segment in segments(conv, outputs))
    return conv.kernel[0] * row + 3 * outputs + 3 if outputs else 0


def pack_taps(taps: Array, bias: Array) -> Array:
    """Return the stream of vectors, float32 [C/4, 1 + taps, 4]: biases, then a vector a tap; C is padded.

    Args:
        taps: float32 [C, taps].
        bias: float32 [C].
    """
    columns = np.concatenate([bias[:, None], taps], axis=1).astype(np.float32)
    return by_turns(columns, F32_LANES, 1).reshape(-1, columns.shape[1], F32_LANES)


@dataclass(frozen=True)
class DepthwiseF32(ConvSchedule[FloatEpilogue]):
    """Depthwise: four channels at a time, each row of input is copied once into a ring of the kernel's rows.

    Products are added in the order of the portable loops. The last vector may have fewer than four lanes.
    """

    name = "mve_f32_taps"
    template = "kernels/conv2d/mve/depthwise_f32.c.j2"
    core = "has_mve"
    has_ring = True
    forms = (FloatEpilogue,)

    outputs: int = knob(
        0,
        *OUTPUTS,
        meaning="adjacent outputs that share inputs and weights; auto: the number with the fewest instructions",
    )

    def _outputs(self, conv: Conv) -> int:
        """Outputs at a time; 0: a load does not reach all of their inputs."""
        wide = conv.out_size[1]

        def cost(outputs: int) -> int:
            return wide // outputs * block_cost(conv, outputs) + block_cost(conv, wide % outputs)

        def reaches(outputs: int) -> bool:
            return (outputs - 1) * conv.stride[1] + (conv.kernel[1] - 1) * conv.dilation[1] <= REACH

        tried = (self.outputs,) if self.outputs else OUTPUTS
        return min((n for count in tried if reaches(n := min(count, wide))), key=cost, default=0)

    def fits(self, conv: Conv, epilogue: FloatEpilogue) -> bool:
        """Depthwise, one image, one output per channel, float32, not too many taps, no operands in the epilogue."""
        if not (conv.is_channelwise and epilogue.is_alone and epilogue.keeps_type and conv.ring.rows <= MOST_ROWS):
            return False
        outputs = self._outputs(conv)
        return outputs > 0 and block_cost(conv, outputs) + block_cost(conv, conv.out_size[1] % outputs) <= MOST_CODE

    def scratch(self, conv: Conv, epilogue: FloatEpilogue) -> int:
        """The ring."""
        return 4 * conv.ring.rows * F32_LANES * conv.ring.columns

    def instructions(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> float:
        """The blocks; 4 for a copied vector, 20 for its row, 24 for one of outputs; 6 for an element of an epilogue."""
        outputs = self._outputs(conv)
        whole, rest = divmod(conv.out_size[1], outputs)
        row = whole * block_cost(conv, outputs) + block_cost(conv, rest) + 24
        after = 6 * conv.pixels * conv.channels if epilogue.rest is not None else 0
        copying = conv.plane[0] * (4 * conv.ring.copied + 20)
        return math.ceil(conv.channels / F32_LANES) * float(conv.out_size[0] * row + copying) + after

    def products(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> Products:
        """Four channels together."""
        packed = pack_taps(epilogue.weights.reshape(conv.channels, -1), epilogue.bias_of_model)
        return Products(packed, "of four channels together their biases, then each tap", "mt_mve_depthwise_f32.h")

    def values(self, conv: Conv, epilogue: FloatEpilogue, target: Target) -> dict[str, Any]:
        """The segments of some outputs side by side."""
        outputs = self._outputs(conv)
        held = [segment.taps for n in (outputs, conv.out_size[1] % outputs) if n for segment in segments(conv, n)]
        variables = {"outputs": outputs, "most_taps": max(held), "reach": REACH}
        return variables | {"segments": lambda outputs: segments(conv, outputs)}


SCHEDULES = (DepthwiseInt8(), DepthwiseInt16(), DepthwiseF32())
