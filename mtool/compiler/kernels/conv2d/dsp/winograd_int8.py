"""Convolutions of int8 for SIMD32, 3x3 with stride 1, by fewer products: Winograd's F(2x2, 3x3) in integers.

The inner loop and the layout of the packed weights: crt/include/mt_dsp_winograd_int8.h.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import OUTPUTS, Blocks, Conv
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule
from mtool.compiler.kernels.dsp import LIMITS
from mtool.compiler.kernels.epilogues import Int8Epilogue, Products
from mtool.compiler.kernels.exact_scaling import ExactScaling
from mtool.compiler.kernels.packing import packed_by_rows, round_up
from mtool.compiler.kernels.scaling import Scaling
from mtool.compiler.kernels.schedule import Kernel, knob
from mtool.compiler.kernels.target import Target
from mtool.compiler.kernels.weighted_sum import is_stored_as_int8
from mtool.compiler.kernels.winograd import FACTOR, by_columns, scaled, sums_fit, transformed

HEADER = "mt_dsp_winograd_int8.h"
FOURS = 4  # output channels together
UNROLLS = (16, 8)  # input channels in one turn of the loop; 32, if asked for, are 1.6 KB of code more
SUMS = 40 * 4  # bytes: MT_DSP_BLOCK_SUMS
LAYOUT = (
    "four output channels at a time: of each column of the transformed elements four biases and a word of two input "
    "channels for each, then"
)


def pack(weights: Array, bias: Array, scaling: Scaling, depth: int) -> Array:
    """Return the stream of mt_dsp_winograd, uint32 [N/4, ...], the input channels filled up to `depth`.

    Args:
        weights: integers [N, 3, 3, C].
        bias: int32 [N].
        scaling: of N channels, for sums that are four times as large.
        depth: a multiple of 4.
    """
    count = round_up(len(weights), FOURS)
    fours, numbers = count // FOURS, scaling.padded(count).words
    wide = by_columns(transformed(weights))
    filled = np.zeros((count, 4, 4, depth), np.int16)
    filled[: len(weights), ..., : weights.shape[3]] = wide
    # of four input channels the pairs are (0, 2) and (1, 3)
    pairs = filled.reshape(fours, FOURS, 4, 4, depth // 4, 2, 2).swapaxes(5, 6)
    words = np.ascontiguousarray(pairs).view(np.uint32).reshape(fours, FOURS, 4, 4 * depth // 2)
    biases = np.zeros((fours, 4, FOURS), np.int32)
    biases[:, 0] = np.pad(bias * np.int32(FACTOR), (0, count - len(bias))).reshape(fours, FOURS)
    sums = np.concatenate([biases.view(np.uint32)[:, :, None], words.transpose(0, 2, 3, 1)], axis=2)
    behind = numbers.reshape(fours, FOURS, -1).swapaxes(1, 2)
    return np.concatenate([sums.reshape(fours, -1), behind.reshape(fours, -1)], axis=1)


@dataclass(frozen=True)
class Winograd(ConvSchedule[Int8Epilogue]):
    """Blocks of 2x4 outputs: their inputs are transformed, multiplied with all channels, four at a time, and back."""

    name = "dsp_winograd"
    core = "has_dsp"
    forms = (Int8Epilogue,)
    unroll: int = knob(0, 32, *UNROLLS, meaning="input channels an iteration; auto: with the fewest instructions")

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """int8 to int8, 3x3, stride 1, one group; four times a sum stays within 32 bits."""
        int8 = is_stored_as_int8(epilogue.node, epilogue.graph)
        return Blocks.can_compute(conv) and int8 and sums_fit(epilogue)

    def _unroll(self, conv: Conv) -> int:
        return self.unroll or min(UNROLLS, key=lambda unroll: _depth_cost(conv, unroll))

    def _depth(self, conv: Conv) -> int:
        return round_up(conv.channels, self._unroll(conv))

    def scratch(self, conv: Conv, epilogue: Int8Epilogue) -> int:
        """A block's columns; its sums and results, where a patch on the border is put together before."""
        results = math.prod(OUTPUTS) * round_up(conv.out_channels, FOURS)
        return 64 * self._depth(conv) + max(SUMS + results, _blocks(conv).patch)

    def grown_bytes(self, node: Node, graph: Graph) -> int:
        """16 words of 16 bits instead of 9 of 8 for each pair of channels, both filled up."""
        conv = Conv.of(node, graph)
        filled = round_up(conv.out_channels, FOURS) * (16 * 2 * self._depth(conv) + 4 * 4)
        return max(1, filled - 9 * conv.channels * conv.out_channels)

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """By block: 340 for four input channels, the products of four output channels, 60 and 9 a word of results."""
        blocks, fours = _blocks(conv), -(-conv.out_channels // FOURS)
        each = 340 * -(-conv.channels // 4) + fours * (_depth_cost(conv, self._unroll(conv)) + 400 + 72) + 90
        return blocks.count * each + blocks.gathered * 24 * (12 + conv.channels)

    def kernel(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Kernel:
        """Write the function; the runtime's is of any range, as its results are stored apart."""
        (scaling, bias), depth, unroll = scaled(epilogue), self._depth(conv), self._unroll(conv)
        whole, shared = depth == unroll, tuple[str, ...]()
        stream = packed_by_rows(partial(pack, depth=depth), FOURS, epilogue.weights, bias, scaling)
        name = f"mt_dsp_winograd{'_whole' if whole else ''}{scaling.kind}_{unroll}"
        if isinstance(scaling, ExactScaling):
            clamped = (epilogue.how.low, epilogue.how.high) != LIMITS
            name += "_range" if clamped else ""
            by = f"MT_EXACT_{scaling.places}"
            shared = (f"MT_DSP_WINOGRAD({name}, {unroll}, {int(whole)}, {by}, {int(clamped)})",)
        declared = epilogue.declared("mt_dsp_range", "MT_DSP_RANGE")
        return epilogue.kernel(
            "kernels/conv2d/dsp/winograd_int8.c.j2",
            Products(stream, f"{LAYOUT} {scaling.meaning} of each", (HEADER,), name, declared, shared=shared),
            "int32_t",
            conv=conv,
            blocks=_blocks(conv),
            x_type="int8_t",
            depth=depth,
            turns=depth // unroll,
            sums=16 * depth,
            sums_bytes=SUMS,
        )


def _blocks(conv: Conv) -> Blocks:
    """Return its blocks, whose pixels are whole words."""
    return Blocks(conv, round_up(conv.channels, 4))


def _depth_cost(conv: Conv, unroll: int) -> int:
    """Return the instructions of a block's products for four output channels: 11 for two input channels."""
    depth = round_up(conv.channels, unroll)
    return 16 * (11 * depth // 2 + (0 if depth == unroll else 2 + 4 * depth // unroll))
