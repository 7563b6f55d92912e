"""Depthwise convolutions of int16 activations for Helium: eight lanes of channels.

The inner loops and the layout of the packed weights: crt/include/mt_mve_depthwise_int16.h.
"""

import math

import numpy as np

from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv, Ring, reads_ahead
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule
from mtool.compiler.kernels.epilogues import Int8Epilogue, Int16Epilogue, Products, SumEpilogue
from mtool.compiler.kernels.mve import INT8_LANES, INT16_LANES, WIDENED_ORDER, has_narrow_sums
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.scaling import Scaling
from mtool.compiler.kernels.schedule import Kernel
from mtool.compiler.kernels.target import Target

# Depthwise convolutions of int8 with any kernel for Helium: 16 lanes of channels, a ring of rows.
#
# The inner loops and the layout of the packed weights: crt/include/mt_mve_depthwise_int8.h.


HEADER = "mt_mve_depthwise_int8.h"


def pack(taps: Array, bias: Array, scaling: Scaling) -> Array:
    """Return int8 [C/16, 128 or 192 + 16 * T]: biases, taps, scaling; the lanes of all but taps as they are widened.

    Args:
        taps: int8 [T, C]; T is filled up to an even number, C to a multiple of 16.
        bias: int32 [C], the input's zero point folded in.
        scaling: of C channels.
    """
    count, channels = taps.shape
    more = round_up(channels, INT8_LANES) - channels
    filled = np.pad(taps, ((0, count % 2), (0, more)))
    weights = filled.reshape(len(filled), -1, INT8_LANES).transpose(1, 0, 2).reshape(-1, len(filled) * INT8_LANES)
    biases = np.pad(bias.astype(np.int32), (0, more)).reshape(-1, INT8_LANES)[:, WIDENED_ORDER]
    heads = np.ascontiguousarray(biases).view(np.int8)
    return np.concatenate([heads, weights, scaling.padded(channels + more).vectors(INT8_LANES, WIDENED_ORDER)], axis=1)


class Depthwise(ConvSchedule[Int8Epilogue]):
    """Depthwise: 16 channels at a time, each row of input is copied once into a ring of as many as the kernel spans.

    Taps go in pairs, whose products are summed in 16 bits. The last lanes may be fewer than 16.
    """

    name = "mve_taps"
    core = "has_mve"
    forms = (Int8Epilogue,)
    over_operands = False

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """Any kernel, stride, dilation and multiplier, weights from -127, one image, int8 to 8 bits."""
        return conv.is_depthwise and conv.batch == 1 and has_negatives(epilogue) and epilogue.stores_kind

    def _pitch(self, conv: Conv) -> int:
        """Bytes of a row of the ring."""
        return INT8_LANES * Ring.of(conv).columns

    def scratch(self, conv: Conv, epilogue: Int8Epilogue) -> int:
        """The ring, and where taps lie in it."""
        return Ring.of(conv).rows * self._pitch(conv) + 4 * round_up(conv.depth, 2)

    def over_input(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """If rows are read before they are written and channels are their own."""
        return conv.channels == conv.out_channels and reads_ahead(conv, Ring.of(conv).rows)

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """26 instructions for two taps of a vector, 45 for its result, 5 for a copied vector."""
        vectors = math.ceil(conv.out_channels / INT8_LANES)
        after = 6 * conv.pixels * conv.out_channels if epilogue.rest is not None else 0
        each = 26 * math.ceil(conv.depth / 2) + 45
        return vectors * (each * conv.pixels + 5.0 * math.prod(conv.size) + 30 * conv.out_size[0]) + after

    def kernel(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Kernel:
        """Write the function."""
        taps = np.ascontiguousarray(epilogue.weights.reshape(conv.out_channels, -1).T)
        packed = pack(taps, epilogue.bias, epilogue.scaling)
        layout = f"16 channels a row: bytes of biases, a vector a tap, bytes of {epilogue.scaling.meaning}"
        declared = epilogue.declared("mt_mve_range", "MT_MVE_RANGE")
        return epilogue.kernel(
            "kernels/conv2d/mve/depthwise_int8.c.j2",
            Products(packed, layout, (HEADER,), declared=declared),
            "int8_t",
            conv=conv,
            multiplier=conv.out_channels // conv.channels,
            copied=Ring.of(conv).copied,
            pitch=self._pitch(conv),
            taps=round_up(conv.depth, 2),
            stream=packed.shape[1],
        )


def has_negatives(epilogue: Int8Epilogue) -> bool:
    """Return whether the weights are int8, and the negative of each is too."""
    return bool(epilogue.weights.dtype == np.int8 and epilogue.weights.min(initial=0) >= -127)


HEADER_INT16 = "mt_mve_depthwise_int16.h"


def pack_int16(taps: Array, bias: Array, scale: Array | None) -> Array:
    """Return int8 [C/8, 32 or 64 + 8 * T]: biases and scales of even and odd channels around eight of each tap.

    Args:
        taps: int8 [T, C]; C is filled up to a multiple of 8.
        bias: int32 [C], the input's zero point folded in.
        scale: float32 [C]; None: there are none.
    """
    count, channels = taps.shape
    more = round_up(channels, INT16_LANES) - channels
    weights = np.pad(taps, ((0, 0), (0, more))).reshape(count, -1, INT16_LANES).swapaxes(0, 1)
    ends = []
    for end in (bias.astype(np.int32), *([] if scale is None else [scale.astype(np.float32)])):
        lanes = np.pad(end, (0, more)).reshape(-1, INT16_LANES // 2, 2).swapaxes(1, 2)
        ends.append(np.ascontiguousarray(lanes).reshape(-1, INT16_LANES).view(np.int8))
    return np.concatenate([ends[0], weights.reshape(len(weights), -1), *ends[1:]], axis=1)


class DepthwiseInt16(ConvSchedule[Int16Epilogue | SumEpilogue]):
    """Depthwise: pixel by pixel, where each tap lies in the image is found once for all channels, eight at a time.

    Rows of the input are copied into a ring of as many as the kernel spans.
    """

    name = "mve16_taps"
    core = "has_mve"
    forms = (Int16Epilogue, SumEpilogue)
    over_operands = False

    def fits(self, conv: Conv, epilogue: Int16Epilogue | SumEpilogue) -> bool:
        """Any kernel, stride and dilation, one image, int16 to int16 or sums of 32 bits."""
        return conv.is_channelwise and has_narrow_sums(epilogue.node, epilogue.graph)

    def _results(self, conv: Conv, epilogue: Int16Epilogue | SumEpilogue) -> int:
        """Results of a pixel that an epilogue follows, in int16."""
        if isinstance(epilogue, SumEpilogue):
            return 2 * round_up(conv.channels, INT16_LANES)
        return conv.channels if epilogue.rest is not None else 0

    def scratch(self, conv: Conv, epilogue: Int16Epilogue | SumEpilogue) -> int:
        """An offset a tap, a pixel of padding, results that an epilogue follows, the ring."""
        ring = Ring.of(conv).rows * conv.size[1] * conv.channels
        return 4 * conv.depth + 2 * (conv.channels + self._results(conv, epilogue) + ring)

    def over_input(self, conv: Conv, epilogue: Int16Epilogue | SumEpilogue) -> bool:
        """If rows are copied before they are written."""
        return reads_ahead(conv, Ring.of(conv).rows)

    def instructions(self, conv: Conv, epilogue: Int16Epilogue | SumEpilogue, target: Target) -> float:
        """10 instructions a tap of a vector, 32 for its result, 12 to find where a tap is."""
        vectors, after = math.ceil(conv.channels / INT16_LANES), 8 * self._results(conv, epilogue)
        copying = math.prod(conv.size) * conv.channels / 2
        return float(conv.pixels * (vectors * (8 * conv.depth + 34) + 12 * conv.depth + after)) + copying

    def kernel(self, conv: Conv, epilogue: Int16Epilogue | SumEpilogue, target: Target) -> Kernel:
        """Write the function."""
        taps, scale = np.ascontiguousarray(epilogue.weights.reshape(conv.channels, -1).T), None
        layout, declared = "8 channels a row: bytes of biases (even channels first), a vector a tap", ""
        if isinstance(epilogue, Int16Epilogue):
            scale, layout = epilogue.scale, f"{layout}, bytes of scales"
            declared = epilogue.declared("mt_mve16_range", "MT_MVE16_RANGE")
        packed = pack_int16(taps, epilogue.graph.constants[epilogue.node.inputs[2]], scale)
        return epilogue.kernel(
            "kernels/conv2d/mve/depthwise_int16.c.j2",
            Products(packed, layout, (HEADER_INT16,), declared=declared),
            "int32_t",
            conv=conv,
            span=Ring.of(conv).rows,
        )
