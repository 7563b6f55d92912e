"""Winograd's F(2x2, 3x3) in integers: four of nine products of a 3x3 convolution with stride 1 are left.

A tile is 2x2 outputs, of 4x4 inputs d: Y = A'[(G g G') * (B' d B)]A, with * element by element. G has halves: it is
doubled, so that weights are whole, and sums are four times the convolution's. As additions of 32 bits wrap around, only
the result has to be within them.

Sources: Lavin and Gray, Fast Algorithms for Convolutional Neural Networks (arXiv 1509.09308); the doubling: Meng and
Brothers, Efficient Winograd Convolution via Integer Arithmetic (arXiv 1901.01965).
"""

import numpy as np

from mtool.compiler.ir import Graph, Node
from mtool.compiler.ir.blocks import row_sums
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.epilogues import Int8Epilogue
from mtool.compiler.kernels.exact_scaling import MOST_MOVED
from mtool.compiler.kernels.scaling import Scaling
from mtool.compiler.kernels.threshold_multipliers import Reach

G = np.array([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]])
"""What is applied to both sides of 3x3 weights: twice the usual matrix."""

ELEMENTS = (1, 2, 0, 3)
"""The order of the elements, by rows and by columns; weights of 3 have their sign turned."""

FACTOR = 4  # of the sums
LIMIT = 2**31


def transformed(weights: Array) -> Array:
    """Return weights [N, 3, 3, C] of 8 or 9 bits transformed, int16 [N, 4, 4, C]: row, column, in their usual order."""
    wide: Array = np.einsum("ai,nijc,bj->nabc", G, weights.astype(np.int32), G)
    return wide.astype(np.int16)


def by_columns(weights: Array) -> Array:
    """Return weights as `transformed` gives them, [N, 4 columns, 4 rows, C], in the order of ELEMENTS."""
    signs = np.array([1, 1, 1, -1], np.int16)
    ordered = weights[:, ELEMENTS][:, :, ELEMENTS] * signs[:, None, None] * signs[:, None]
    return np.ascontiguousarray(ordered.swapaxes(1, 2))


def scaled(epilogue: Int8Epilogue) -> tuple[Scaling, Array]:
    """Return the scaling of a layer's sums that are four times as large, if they fit, and biases, not multiplied."""
    scaling, bias = epilogue.exact_scaling()
    bias, scaling = scaling.without_dead_channels(epilogue.weights, bias)
    return scaling.fourfold(), bias


def sums_fit(epilogue: Int8Epilogue) -> bool:
    """Whether four times the sums of a layer stay within 32 bits."""
    known: dict[tuple[str, ...], bool] = epilogue.graph.memo.setdefault("fourfold sums", {})
    key = tuple(epilogue.node.inputs[1:3])
    if key not in known:
        bias, _ = epilogue.scaling.without_dead_channels(epilogue.weights, epilogue.bias)
        known[key] = fits(epilogue.weights, bias)
    return known[key]


def products_fit(node: Node, graph: Graph) -> bool:
    """Whether four times a node's sums stay within 32 bits without their biases, which are added afterwards."""
    known: dict[str, bool] = graph.memo.setdefault("fourfold products", {})
    value = node.inputs[1]
    if value not in known:
        weights = graph.constants[value]
        known[value] = int(row_sums(weights).magnitude.max(initial=0)) * 2**8 < LIMIT // FACTOR
    return known[value]


def fits(weights: Array, bias: Array) -> bool:
    """Whether four times the sum of each channel stays within 32 bits, whatever the inputs of 8 bits.

    Its bias may be moved besides (mtool.compiler.kernels.exact_scaling).

    Args:
        weights: integers [N, ...].
        bias: int32 [N].
    """
    reach = Reach.of(weights, bias)
    return int(max(-reach.least.min(initial=0), reach.most.max(initial=0))) < LIMIT // FACTOR - MOST_MOVED
