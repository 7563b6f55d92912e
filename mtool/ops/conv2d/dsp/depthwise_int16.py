"""Schedule of depthwise convolutions with int16 activations for SIMD32. See crt/include/mt_dsp16_taps.h."""

from dataclasses import dataclass

import numpy as np

from mtool.ir import Graph, Node
from mtool.kernels.epilogues.integer import Int16Epilogue
from mtool.kernels.target import Target
from mtool.ops.conv2d.dsp import depthwise_int8


@dataclass(frozen=True)
class Depthwise(depthwise_int8.Depthwise):
    """Depthwise: a channel is copied with its padding into a plane, then pairs of taps meet four outputs.

    As of int8, but that nothing is widened.
    """

    name = "dsp16_taps"
    epilogue_type = Int16Epilogue
    after = 8
    sweep = "mt_dsp16_sweep"
    header = "mt_dsp16_taps.h"

    def supports(self, node: Node, graph: Graph, target: Target) -> bool:
        """Any kernel, stride and multiplier, one image, int16 to int16, sums of 32 bits."""
        return bool(graph.constants[node.inputs[2]].dtype == np.int32) and super().supports(node, graph, target)
