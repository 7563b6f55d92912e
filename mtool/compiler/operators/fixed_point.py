"""Quotients, norms, logarithms and products of integers in fixed point, as LiteRT's reference kernels compute them.

They are mtool's own, and one C template each: FixedQuotient of two operands that broadcast, FixedL2Norm and
FixedLogSoftmax of the rows of the last dimension, FixedProduct of the rows of a matrix.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtool.compiler.ir import Attributes, Node, TensorType
from mtool.compiler.kernels.template import Values
from mtool.compiler.operators.lowering import Lowering, Operator
from mtool.compiler.operators.own_domains import OwnOperator
from mtool.compiler.operators.templates import template_node

_HEADERS = ("mt_fixed.h", "mt_fixed_functions.h")


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedQuotient(Attributes):
    """zero_points: of dividend, divisor and quotient. The scale is multiplier / 2^31 * 2^exponent."""

    zero_points: tuple[int, ...]
    multiplier: int
    exponent: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedL2Norm(Attributes):
    """zero_point: of the input."""

    zero_point: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedLogSoftmax(Attributes):
    """The scale of the input, as an argument of exp: multiplier / 2^31 * 2^exponent.

    back, back_exponent: the inverse of that; least: the difference whose exponential is not 0 yet.
    """

    multiplier: int
    exponent: int
    back: int
    back_exponent: int
    least: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedProduct(Attributes):
    """zero_points: of input and output. A factor's scale is multiplier / 2^shift."""

    zero_points: tuple[int, ...]
    multiplier: int
    shift: int


@dataclass(frozen=True, slots=True)
class QuotientValues(Values):
    """sizes: of the result's dimensions; a, b: how far apart elements are along each, 0 where one is repeated."""

    sizes: tuple[int, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]
    attrs: FixedQuotient


@dataclass(frozen=True, slots=True)
class RowValues(Values):
    """So many rows of `count` numbers, and what the operator says."""

    rows: int
    count: int
    attrs: FixedL2Norm | FixedLogSoftmax | FixedProduct
    low: int
    high: int


def _strides(shape: Sequence[int], result: Sequence[int]) -> tuple[int, ...]:
    padded = (*(1 for _ in range(len(result) - len(shape))), *shape)
    return tuple(math.prod(padded[axis + 1 :]) if size > 1 else 0 for axis, size in enumerate(padded))


def _quotient(ctx: Lowering, node: Node) -> None:
    a, b = node.inputs
    shape = ctx.types[node.outputs[0]].shape
    values = QuotientValues(
        shape, _strides(ctx.types[a].shape, shape), _strides(ctx.types[b].shape, shape), FixedQuotient.of(node)
    )
    template_node(ctx, node, "fixed_quotient", {"a": a, "b": b}, {"y": node.outputs[0]}, values, headers=_HEADERS)


def _row_values(ctx: Lowering, node: Node, attrs: FixedL2Norm | FixedLogSoftmax | FixedProduct) -> RowValues:
    *rows, count = ctx.types[node.inputs[0]].shape
    low, high = ctx.types[node.outputs[0]].dtype.limits
    return RowValues(math.prod(rows), count, attrs, int(low), int(high))


def _l2_norm(ctx: Lowering, node: Node) -> None:
    values = _row_values(ctx, node, FixedL2Norm.of(node))
    template_node(ctx, node, "fixed_l2_norm", {"x": node.inputs[0]}, {"y": node.outputs[0]}, values, headers=_HEADERS)


def _log_softmax(ctx: Lowering, node: Node) -> None:
    x, powers = node.inputs
    values = _row_values(ctx, node, FixedLogSoftmax.of(node))
    inputs = {"x": x, "exponential": powers}
    template_node(ctx, node, "fixed_log_softmax", inputs, {"y": node.outputs[0]}, values, headers=_HEADERS)


def _product(ctx: Lowering, node: Node) -> None:
    values = _row_values(ctx, node, FixedProduct.of(node))
    template_node(ctx, node, "fixed_product", {"x": node.inputs[0]}, {"y": node.outputs[0]}, values)


def _broadcast(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    return [TensorType(inputs[0].dtype, np.broadcast_shapes(*(kind.shape for kind in inputs)))]


def _same(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    return [inputs[0]]


def _first(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    return [TensorType(inputs[0].dtype, inputs[0].shape[:1])]


OWN: dict[str, OwnOperator] = {
    "FixedQuotient": OwnOperator(Operator(_quotient, FixedQuotient), _broadcast),
    "FixedL2Norm": OwnOperator(Operator(_l2_norm, FixedL2Norm), _same),
    "FixedLogSoftmax": OwnOperator(Operator(_log_softmax, FixedLogSoftmax), _same),
    "FixedProduct": OwnOperator(Operator(_product, FixedProduct), _first),
}
