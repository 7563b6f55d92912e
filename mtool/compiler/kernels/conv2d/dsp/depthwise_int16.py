"""Depthwise convolutions of int16 activations for SIMD32: pairs of taps pass over a channel's plane.

The inner loops and the layout of the packed weights: crt/include/mt_dsp_depthwise_int16.h.
"""

from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.kernels.conv2d.dsp import depthwise_int8
from mtool.compiler.kernels.epilogues.integer import Int16Epilogue
from mtool.compiler.kernels.target import Target


@dataclass(frozen=True)
class Depthwise(depthwise_int8.Depthwise):
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


SCHEDULE = Depthwise()
