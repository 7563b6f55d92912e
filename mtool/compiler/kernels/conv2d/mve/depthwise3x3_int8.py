"""Depthwise 3x3 of int8 for Helium: 16 lanes of channels, a ring of three padded rows.

The inner loops and the layout of the packed weights: crt/include/mt_mve_depthwise3x3_int8.h.
"""

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.epilogues import Int8Epilogue
from mtool.compiler.kernels.mve import INT8_LANES, WIDENED_ORDER
from mtool.compiler.kernels.packing import round_up
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.scaling import Scaling
from mtool.compiler.kernels.schedule import BaseSchedule, Kernel
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


class Depthwise3x3(BaseSchedule):
    """Depthwise 3x3: 16 channels at a time (or 8 of two pixels), each row of input is copied once into a ring of three.

    Rows are read before they are written: the output may take the input's storage.
    """

    name = "mve_ring"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """3x3, stride 1 or 2, whole vectors of channels (or 8 and pairs of pixels), weights from -127, int8 to int8."""
        conv, epilogue = Conv.of(node, graph), Int8Epilogue.of(node, graph)
        shape = conv.is_depthwise and conv.batch == 1 and conv.out_channels == conv.channels
        plain = conv.kernel == (3, 3) and conv.dilation == (1, 1) and conv.stride in ((1, 1), (2, 2))
        pairs = conv.channels == INT8_LANES // 2 and conv.stride == (1, 1) and conv.out_size[1] % 2 == 0
        lanes = conv.channels % INT8_LANES == 0 or pairs
        weights = graph.constants[node.inputs[1]]
        int8 = weights.dtype == np.int8 and weights.min(initial=0) >= -127
        return target.has_mve and shape and plain and lanes and int8 and epilogue is not None and epilogue.rest is None

    def _pitch(self, conv: Conv) -> int:
        """Bytes of a row of the ring."""
        lanes = min(conv.channels, INT8_LANES)
        columns = max((conv.out_size[1] - 1) * conv.stride[1] + 3, conv.size[1] + conv.pad[1])
        return round_up(columns * lanes + (INT8_LANES - lanes) * 2, INT8_LANES)

    def scratch_bytes(self, node: Node, graph: Graph) -> int:
        """Three rows."""
        return 3 * self._pitch(Conv.of(node, graph))

    def in_place(self, node: Node, graph: Graph) -> tuple[int, ...]:
        """Its input, if rows are read before they are written; a vector's channels are its own in both."""
        conv = Conv.of(node, graph)
        out_row, in_row = (size[1] * conv.channels for size in (conv.out_size, conv.size))
        ahead = all(
            (y + 1) * out_row <= max(0, y * conv.stride[0] - conv.pad[0] + 3) * in_row for y in range(conv.out_size[0])
        )
        return (0,) if ahead else ()

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """130 instructions a vector of outputs, 12 a copied vector."""
        conv = Conv.of(node, graph)
        return conv.channels / INT8_LANES * (130.0 * conv.pixels + 11.5 * conv.size[0] * conv.size[1])

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        conv, epilogue = Conv.of(node, graph), Int8Epilogue.of(node, graph)
        assert epilogue is not None
        lanes = min(conv.channels, INT8_LANES)
        taps = np.ascontiguousarray(graph.constants[node.inputs[1]].reshape(conv.channels, 9).T)
        packed = pack(taps, epilogue.bias, epilogue.scaling)
        body = template(
            "kernels/conv2d/mve/depthwise3x3_int8.c.j2",
            conv=conv,
            how=epilogue.how,
            kind=epilogue.scaling.kind,
            stream=packed.shape[1],
            pitch=self._pitch(conv),
            lanes=lanes,
            pixels=INT8_LANES // lanes,
        )
        layout = f"16 channels a row: a vector a tap, bytes of biases, bytes of {epilogue.scaling.meaning}"
        return epilogue.kernel(node, graph, body, packed, layout, HEADER, "int8_t")
