"""Schedule of depthwise convolutions with int16 activations for SIMD32. See crt/include/mt_dsp16_taps.h."""

from dataclasses import dataclass

import numpy as np

from mtool.ir import Graph, Node
from mtool.ops.conv2d import dsp_taps
from mtool.ops.conv2d.dsp_taps import Walk, pack
from mtool.ops.conv2d.schedules import Conv
from mtool.ops.requantise import Int16Epilogue
from mtool.ops.schedule import Kernel, Target, template

HEADER = "mt_dsp16_taps.h"


@dataclass(frozen=True)
class Taps(dsp_taps.Taps):
    """Depthwise: a channel is copied with its padding into a plane, then pairs of taps meet four outputs.

    As of int8, but that nothing is widened.
    """

    name = "dsp16_taps"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Any kernel, stride and multiplier, one image, int16 to int16, sums of 32 bits."""
        conv, epilogue = Conv.of(node, graph), Int16Epilogue.of(node, graph)
        shape = conv.is_depthwise and conv.batch == 1 and Walk.of(conv, self.direction) is not None
        weights, bias = (graph.constants[node.inputs[n]].dtype for n in (1, 2))
        sums = weights in (np.int8, np.int16) and bias == np.int32
        wide = graph.types[node.outputs[0]].dtype.size == 2
        return target.has_dsp and shape and sums and wide and epilogue is not None

    def cost(self, node: Node, graph: Graph, target: Target) -> float:
        """See Walk; 8 an output that an epilogue follows."""
        conv, epilogue = Conv.of(node, graph), Int16Epilogue.of(node, graph)
        after = 8 * conv.pixels * conv.out_channels if epilogue is not None and epilogue.rest is not None else 0
        return conv.channels * self._walk(node, graph).cost(conv.out_channels // conv.channels) + after

    def emit(self, node: Node, graph: Graph, target: Target) -> Kernel:
        """Write the function."""
        epilogue, walk, conv = Int16Epilogue.of(node, graph), self._walk(node, graph), Conv.of(node, graph)
        assert epilogue is not None
        taps = graph.constants[node.inputs[1]].reshape(conv.out_channels, *conv.kernel)
        packed = pack(taps.swapaxes(1, 2) if walk.transposed else taps, epilogue.bias, epilogue.scaling)
        body = template(
            "conv2d/dsp_taps.c.j2",
            conv=conv,
            walk=walk,
            how=epilogue.how,
            epilogue=epilogue,
            multiplier=conv.out_channels // conv.channels,
            spread="mt_dsp_spread_i8" if taps.dtype == np.int8 else "mt_dsp_spread_i16",
            stream=packed.shape[1],
            kind="",
            head=8 // packed.itemsize,
            x="int16_t",
            sweep="mt_dsp16_sweep",
            rest=lambda acc, offset: epilogue.rest_text(node, graph, acc, offset),
        )
        return epilogue.kernel(node, graph, body, packed, HEADER, scratch="int16_t")
