"""Weighted sums for a computer, in vectors of floats."""

import numpy as np

from mtool.compiler.ir import Array, DType, Graph, Node
from mtool.compiler.kernels.packing import by_turns
from mtool.compiler.kernels.weighted_sum import EIGHT_BITS, remembered

# Weighted sums in vectors of floats: which nodes can use them, and whether integers are exact in them.


LANES = 8
"""Channels are padded to a multiple of this, the longest vector."""
WORTH = 50_000.0
"""Instructions that vectors have to save in a node: small nodes stay loops, which are easier to read."""
_EXACT = 2**24  # integers up to this are exact in float32
_FARTHEST = {DType.INT8: 128, DType.UINT8: 255}


def has_float_sums(node: Node, graph: Graph) -> bool:
    """Whether a node's sums, without bias, can be computed in vectors of floats; exactly, if they are integers."""
    kind = graph.types[node.inputs[0]].dtype
    weights, bias = (graph.constants[value] for value in node.inputs[1:3])
    if kind is DType.FLOAT32:
        return weights.dtype in (np.float32, np.int8) and bias.dtype == np.float32
    return kind in EIGHT_BITS and bias.dtype == np.int32 and _is_exact(node, graph, _FARTHEST[kind])


def _is_exact(node: Node, graph: Graph, farthest: int) -> bool:
    """Whether all partial sums of integer products, in any order, are exact in float32."""

    def greatest() -> int:
        weights = graph.constants[node.inputs[1]]
        rows = weights.reshape(weights.shape[0], -1)
        return max((int(np.abs(row.astype(np.int64)).sum()) for row in rows), default=0)

    return remembered(graph, "sums of weights", node.inputs[1], greatest) * farthest <= _EXACT


def packed(weights: Array) -> Array:
    """Return the weights of mt_simd_columns, float32 [N/8, K, 8].

    Args:
        weights: numbers [N, K]; N is padded to a multiple of 8.
    """
    return by_turns(weights.astype(np.float32), LANES, 1).reshape(-1, weights.shape[1], LANES)
