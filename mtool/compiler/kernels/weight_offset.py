"""Integer weights whose zero point is far from 0: in flash they are int8, less one number that belongs to all of them.

A weight w is stored as w - d, and sum x * w is sum x * (w - d) + d * sum x. The sum of the inputs is the same for all
outputs of a pixel, so that weights of uint8 cost nearly what those of int8 cost.
"""

import numpy as np

from mtool.compiler.ir import DType, Graph, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.weighted_sum import WeightedSum

FARTHEST = 127  # an offset and its negative are int8 too
EIGHT_BITS = (DType.INT8, DType.UINT8)


def weight_offset(node: Node, graph: Graph) -> int:
    """Return what a schedule may take off a node's int16 weights, so that they are int8; 0: nothing.

    Only where the inputs have 8 bits, and no part of such a sum leaves int32.
    """
    known: dict[str, int] = graph.memo.setdefault("weight offsets", {})
    value = node.inputs[1]
    weights = graph.constants.get(value)
    if weights is None or weights.dtype != np.int16 or not weights.size:
        return 0
    if graph.types[node.inputs[0]].dtype not in EIGHT_BITS:
        return 0
    attrs = WeightedSum.of(node)
    depth = weights.size // weights.shape[0]
    if graph.constants[node.inputs[2]].dtype != np.int32 or (attrs.acc_bound or 2**31) + 2**16 * 2 * depth >= 2**31:
        return 0
    if value not in known:
        known[value] = _offset(int(weights.min()), int(weights.max()))
    return known[value]


def _offset(least: int, most: int) -> int:
    """Return the number nearest to 0 without which weights from `least` to `most` are int8; 0: there is none."""
    low, high = most - 127, least + 128
    offset = min(max(0, low), high)
    return offset if low <= high and abs(offset) <= FARTHEST else 0


def is_stored_as_int8(node: Node, graph: Graph) -> bool:
    """Whether a node's weights are int8 in flash."""
    return graph.types[node.inputs[1]].dtype is DType.INT8 or weight_offset(node, graph) != 0


def stored_weights(node: Node, graph: Graph) -> Array:
    """Return a node's weights as they are stored: without their offset, if they have one."""
    weights, offset = graph.constants[node.inputs[1]], weight_offset(node, graph)
    if not offset:
        return weights
    stored = np.empty(weights.shape, np.int8)
    np.subtract(weights, np.int16(offset), out=stored, casting="unsafe")  # without one of int16 in between
    return stored
