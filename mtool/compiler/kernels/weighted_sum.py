"""Weighted sums, the common part of convolutions and dense layers: inputs times constant weights, plus a bias."""

import math
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from mtool.compiler.ir import Array, DType, Graph, Node, WithEpilogue
from mtool.compiler.ir.graph import accumulators
from mtool.compiler.kernels.specification import Operand

V = TypeVar("V")


class WeightedSum(WithEpilogue):
    """A kernel whose operands are its input, its weights (output channels first) and a bias for each channel.

    pad_value: the integer input's representation of 0: its zero point.
    float_bias: the epilogue adds the model's float bias, which may be rounded to whole steps of the accumulator
        where the result is an integer (mtool.compiler.passes.fold_constants).
    magnitude: each element of the input is this number or its negative; 0: unknown.
    macs: the multiply-accumulates of the original model, if channels have been removed; None: those of its shapes.
    """

    pad_value: int = 0
    float_bias: bool = False
    magnitude: int = 0
    macs: int | None = None

    def macs_of_rows(self, rows: int, of: int) -> int | None:
        """Return the share of `macs` for some of all rows."""
        return None if self.macs is None else self.macs * rows // of


def remembered(graph: Graph, name: str, key: Hashable, make: Callable[[], V]) -> V:
    """Return `make()`, cached for the graph's constants under a key."""
    cache: dict[Hashable, V] = graph.memo.setdefault(name, {})
    if key not in cache:
        cache[key] = make()
    return cache[key]


def macs_of(node: Node, graph: Graph) -> int:
    """Return a node's multiply-accumulates: those of the original model, or of its shapes."""
    macs = WeightedSum.of(node).macs
    products = math.prod(graph.types[node.inputs[1]].shape[1:])
    return graph.types[node.outputs[0]].count * products if macs is None else macs


def as_computed(node: Node) -> Node:
    """Return a node whose multiply-accumulates are those of its shapes, whatever the original model had."""
    attrs = node.attrs
    return replace(node, attrs=replace(attrs, macs=None)) if isinstance(attrs, WeightedSum) and attrs.macs else node


FACTORS = (DType.FLOAT32, DType.INT8, DType.UINT8, DType.INT16, DType.UINT16)
"""The element types of the factors: floats by floats or int8 weights, integers by integers."""
SUMS = (DType.FLOAT32, DType.INT32, DType.INT64)
"""The element types of the sums and the biases."""


def operands(layout: str, weights: str) -> tuple[Operand, Operand, Operand]:
    """Return the operands: an input and weights of these layouts, and a bias for each output channel."""
    return (
        Operand("input", layout, FACTORS, is_in_arena=True),
        Operand("weights", weights, FACTORS, is_constant=True),
        Operand("bias", weights[0], SUMS, is_constant=True),
    )


def check_types(node: Node, graph: Graph) -> None:
    """Check that a node multiplies and adds floats, or integers, and that its epilogue reads a sum of the bias's type.

    Floats may be multiplied by int8 weights.

    Raises:
        AssertionError: it does not; a bug in the pass that made it.
    """
    kinds = [graph.types[value] for value in node.inputs[:3]]
    mixed = ", ".join(map(str, kinds))
    activation, weight, added = (kind.dtype for kind in kinds)
    widens = activation.is_float and weight == DType.INT8  # each weight is converted to float when it is read
    assert activation.is_float == added.is_float and (activation.is_float == weight.is_float or widens), (
        f"{node.op} {node.name} mixes floats and integers: {mixed}"
    )
    dtype, read = kinds[2].dtype, accumulators(WithEpilogue.of(node).epilogue)
    assert read <= {dtype}, f"{node.op} {node.name} has sums of {dtype.label}; its epilogue reads another type"


def is_widened(node: Node, graph: Graph) -> bool:
    """Whether a node multiplies floats by int8 weights."""
    kinds = [graph.types[value].dtype for value in node.inputs[:2]]
    return kinds[0].is_float and kinds[1] == DType.INT8


# Integer weights whose zero point is far from 0: in flash they are int8, with one offset for all of them.
#
# A weight w is stored as w - d, and sum x * w is sum x * (w - d) + d * sum x. The sum of the inputs is the same for all
# outputs of a pixel, so that weights of uint8 cost nearly what those of int8 cost.


FARTHEST = 127  # so that an offset and its negative are int8 too
EIGHT_BITS = (DType.INT8, DType.UINT8)


def weight_offset(node: Node, graph: Graph) -> int:
    """Return the offset to subtract from a node's int16 weights so that they fit in int8; 0: none.

    Only if the inputs have 8 bits, and no part of such a sum overflows int32.
    """
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
    return remembered(graph, "weight offsets", value, lambda: _offset(int(weights.min()), int(weights.max())))


def _offset(least: int, most: int) -> int:
    """Return the smallest offset that brings weights from `least` to `most` into int8; 0: none."""
    low, high = most - 127, least + 128
    offset = min(max(0, low), high)
    return offset if low <= high and abs(offset) <= FARTHEST else 0


def is_stored_as_int8(node: Node, graph: Graph) -> bool:
    """Whether a node's weights are int8 in flash."""
    return graph.types[node.inputs[1]].dtype is DType.INT8 or weight_offset(node, graph) != 0


def stored_weights(node: Node, graph: Graph) -> Array:
    """Return a node's weights as stored, with their offset, if any, subtracted."""
    weights, offset = graph.constants[node.inputs[1]], weight_offset(node, graph)
    if not offset:
        return weights
    stored = np.empty(weights.shape, np.int8)
    np.subtract(weights, np.int16(offset), out=stored, casting="unsafe")  # without one of int16 in between
    return stored
