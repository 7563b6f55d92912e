"""Lanes of Helium's vectors."""

import numpy as np

from mtool.compiler.ir import Graph, Node

INT8_LANES = 16
INT16_LANES = 8
F32_LANES = 4
# Where a vector's lanes are after VMULLB/VMULLT and VMOVLB/VMOVLT.
WIDENED_ORDER = np.array([0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15])


def has_narrow_sums(node: Node, graph: Graph) -> bool:
    """Whether the weights are int8 and sums are proved to fit in 32 bits."""
    weights, bias = (graph.constants[node.inputs[n]].dtype for n in (1, 2))
    return bool(weights == np.int8 and bias == np.int32)
