"""Depthwise convolutions whose results are sums of int16, for SIMD32: pairs of taps meet a channel's plane.

The inner loops: crt/include/mt_dsp_depthwise_int16.h.
"""

from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.conv2d.dsp import depthwise_int8
from mtool.compiler.kernels.conv2d.dsp.depthwise_int8 import Traversal, pack
from mtool.compiler.kernels.conv2d.geometry import Conv
from mtool.compiler.kernels.epilogues.sums import SumEpilogue
from mtool.compiler.kernels.rendering import template
from mtool.compiler.kernels.schedule import Kernel
from mtool.compiler.kernels.target import Target


@dataclass(frozen=True)
class Depthwise(depthwise_int8.Depthwise):
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


SCHEDULE = Depthwise()
