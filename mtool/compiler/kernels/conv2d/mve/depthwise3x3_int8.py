"""Depthwise 3x3 of int8 for Helium: 16 lanes of channels, a ring of three padded rows.

The inner loops and the layout of the packed weights: crt/include/mt_mve_depthwise3x3_int8.h.
"""

import numpy as np

from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv, reads_ahead
from mtool.compiler.kernels.conv2d.mve.depthwise import has_negatives
from mtool.compiler.kernels.conv2d.schedule import ConvSchedule
from mtool.compiler.kernels.epilogues import Int8Epilogue, Products
from mtool.compiler.kernels.mve import INT8_LANES, WIDENED_ORDER
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.scaling import Scaling
from mtool.compiler.kernels.schedule import Kernel
from mtool.compiler.kernels.target import Target

HEADER = "mt_mve_depthwise3x3_int8.h"


def pack(taps: Array, bias: Array, scaling: Scaling) -> Array:
    """Return int8 [C/16, 272 or 336]: nine vectors of weights, biases and scaling in the order of the widened lanes.

    Eight channels are doubled: a vector has two pixels then.

    Args:
        taps: int8 [9, C], C a multiple of 16, or 8.
        bias: int32 [C], the input's zero point folded in.
        scaling: of C channels.
    """
    if taps.shape[1] == INT8_LANES // 2:
        taps, bias, scaling = np.tile(taps, 2), np.tile(bias, 2), scaling.repeated()
    weights = taps.reshape(9, -1, INT8_LANES).transpose(1, 0, 2).reshape(-1, 9 * INT8_LANES)
    heads = np.ascontiguousarray(bias.astype(np.int32).reshape(-1, INT8_LANES)[:, WIDENED_ORDER]).view(np.int8)
    return np.concatenate([weights, heads, scaling.vectors(INT8_LANES, WIDENED_ORDER)], axis=1)


class Depthwise3x3(ConvSchedule[Int8Epilogue]):
    """Depthwise 3x3: 16 channels at a time (or 8 of two pixels), each row of input is copied once into a ring of three.

    Rows are read before they are written: the output may take the input's storage.
    """

    name = "mve_ring"
    core = "has_mve"
    forms = (Int8Epilogue,)

    def fits(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """3x3, stride 1 or 2, whole vectors of channels (or 8 and pairs of pixels), weights from -127, int8 to int8."""
        pairs = conv.channels == INT8_LANES // 2 and conv.stride == (1, 1) and conv.out_size[1] % 2 == 0
        lanes = conv.channels % INT8_LANES == 0 or pairs
        return conv.is_depthwise_3x3 and lanes and has_negatives(epilogue) and epilogue.rest is None

    def _pitch(self, conv: Conv) -> int:
        """Bytes of a row of the ring."""
        lanes = min(conv.channels, INT8_LANES)
        columns = max((conv.out_size[1] - 1) * conv.stride[1] + 3, conv.size[1] + conv.pad[1])
        return round_up(columns * lanes + (INT8_LANES - lanes) * 2, INT8_LANES)

    def scratch(self, conv: Conv, epilogue: Int8Epilogue) -> int:
        """Three rows."""
        return 3 * self._pitch(conv)

    def over_input(self, conv: Conv, epilogue: Int8Epilogue) -> bool:
        """If rows are read before they are written; a vector's channels are its own in both."""
        return reads_ahead(conv, 3)

    def instructions(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> float:
        """130 instructions a vector of outputs, 12 a copied vector."""
        return conv.channels / INT8_LANES * (130.0 * conv.pixels + 11.5 * conv.size[0] * conv.size[1])

    def kernel(self, conv: Conv, epilogue: Int8Epilogue, target: Target) -> Kernel:
        """Write the function."""
        lanes = min(conv.channels, INT8_LANES)
        taps = np.ascontiguousarray(epilogue.weights.reshape(conv.channels, 9).T)
        packed = pack(taps, epilogue.bias, epilogue.scaling)
        layout = f"16 channels a row: a vector a tap, bytes of biases, bytes of {epilogue.scaling.meaning}"
        return epilogue.kernel(
            "kernels/conv2d/mve/depthwise3x3_int8.c.j2",
            Products(packed, layout, (HEADER,)),
            "int8_t",
            conv=conv,
            stream=packed.shape[1],
            pitch=self._pitch(conv),
            lanes=lanes,
            pixels=INT8_LANES // lanes,
        )
