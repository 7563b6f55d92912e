"""Normalisations by mean and variance as loops.

LayerNormalization 17, GroupNormalization 21, InstanceNormalization 22, MeanVarianceNormalization 13. The variance is
the mean square of the deviations: ONNX's own functions take the square of the mean from the mean of the squares, which
leaves nothing of float32 where the mean is some thousand times the deviation.
"""

import math
from dataclasses import dataclass

from mtool.compiler.ir import DType, Expr, Node
from mtool.compiler.ir.expr import (
    Reduction,
    axis,
    broadcast_index,
    call,
    const,
    identity,
    load,
    number,
    over,
    plus,
    times,
)
from mtool.compiler.operators.lowering import Epsilon, Lowering, Operator
from mtool.compiler.operators.sliding_window import accumulator


@dataclass(frozen=True, slots=True)
class Groups:
    """The elements that have one mean and one variance.

    shape: one number a group.
    axes: what runs over a group's elements: axes behind those of `shape`, with their sizes.
    elements: the index of an element of the input, in axes of `shape` and `axes`.
    own: the index of the group of an element of the input, in the input's axes.
    """

    shape: tuple[int, ...]
    axes: tuple[tuple[int, int], ...]
    elements: tuple[Expr, ...]
    own: tuple[Expr, ...]

    @classmethod
    def along(cls, shape: tuple[int, ...], axes: tuple[int, ...]) -> "Groups":
        """Return the groups of all elements along some axes of a tensor."""
        rank = len(shape)
        extra = {dim: rank + n for n, dim in enumerate(axes)}
        return cls(
            tuple(1 if dim in extra else size for dim, size in enumerate(shape)),
            tuple((extra[dim], shape[dim]) for dim in axes),
            tuple(axis(extra.get(dim, dim)) for dim in range(rank)),
            tuple(number(0) if dim in extra else axis(dim) for dim in range(rank)),
        )

    @classmethod
    def of_channels(cls, shape: tuple[int, ...], groups: int) -> "Groups":
        """Return the groups of neighbouring channels, axis 1, with all that lies behind them."""
        members, behind = shape[1] // groups, shape[2:]
        channel = plus(times(axis(1), members), axis(2))
        inner = tuple((3 + n, size) for n, size in enumerate(behind))
        return cls(
            (shape[0], groups),
            ((2, members), *inner),
            (axis(0), channel, *(axis(dim) for dim, _ in inner)),
            (axis(0), over(axis(1), members)),
        )

    @property
    def count(self) -> int:
        """The elements of a group."""
        return math.prod(size for _, size in self.axes)


def _wide(operand: int, dtype: DType, index: tuple[Expr, ...]) -> Expr:
    return call("cast", load(operand, dtype, index), dtype=accumulator(dtype))


def _mean_of(body: Expr, groups: Groups) -> Expr:
    total = Expr("reduce", body.dtype, (body,), Reduction("add", groups.axes))
    return call("div", total, const(groups.count, body.dtype))


def _moments(ctx: Lowering, node: Node, groups: Groups, epsilon: float) -> tuple[str, str]:
    """Append the loops that give each group its mean and its standard deviation.

    The mean is summed as differences from the group's first element, which float32 has more exactly than the sum.
    """
    x, stem = node.inputs[0], node.outputs[0]
    element = _wide(0, ctx.types[x].dtype, groups.elements)
    dtype = element.dtype
    first = element.with_axes({dim: number(0) for dim, _ in groups.axes})
    mean = call("add", first, _mean_of(call("sub", element, first), groups))
    means = ctx.loop(node, mean, [x], ctx.value(f"{stem}.mean", dtype, groups.shape))
    centred = call("sub", element, load(1, dtype, identity(len(groups.shape))))
    variance = _mean_of(call("mul", centred, centred), groups)
    deviation = call("sqrt", call("add", variance, const(epsilon, dtype)))
    return means, ctx.loop(node, deviation, [x, means], ctx.value(f"{stem}.deviation", dtype, groups.shape))


def _standardise(
    ctx: Lowering, node: Node, groups: Groups, epsilon: float, parameters: list[tuple[str, tuple[Expr, ...]]]
) -> tuple[str, str]:
    """Append what takes off the mean and divides by the deviation, times the first parameter, plus the second.

    Args:
        ctx: the graph under construction.
        node: the operator.
        groups: what has one mean.
        epsilon: is added to the variance.
        parameters: scale and bias, as far as there are, each a value and the index of its element.

    Returns:
        The mean and the deviation of each group.
    """
    kind = ctx.types[node.inputs[0]]
    mean, deviation = _moments(ctx, node, groups, epsilon)
    element = _wide(0, kind.dtype, identity(len(kind.shape)))
    centred = call("sub", element, load(1, element.dtype, groups.own))
    result = call("div", centred, load(2, element.dtype, groups.own))
    for n, (value, index) in enumerate(parameters):
        parameter = call("cast", load(3 + n, ctx.types[value].dtype, index), dtype=element.dtype)
        result = call("add" if n else "mul", result, parameter)
    inputs = [node.inputs[0], mean, deviation, *(value for value, _ in parameters)]
    ctx.loop(node, call("cast", result, dtype=kind.dtype), inputs)
    return mean, deviation


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerNormalization(Epsilon):
    """Over the dimensions from `axis` on."""

    axis: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNormalization(Epsilon):
    """Over each of `num_groups` groups of channels."""

    num_groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanVariance(Epsilon):
    """MeanVarianceNormalization, over `axes`."""

    axes: tuple[int, ...]


def _layer_normalization(ctx: Lowering, node: Node) -> None:
    """LayerNormalization: over all dimensions from `axis` on; mean and inverse deviation are outputs, if asked for."""
    shape = ctx.types[node.inputs[0]].shape
    groups = Groups.along(shape, tuple(range(LayerNormalization.of(node).axis, len(shape))))
    parameters = [(value, broadcast_index(ctx.types[value].shape, shape)) for value in node.inputs[1:3] if value]
    mean, deviation = _standardise(ctx, node, groups, LayerNormalization.of(node).epsilon, parameters)
    for source, output, inverse in zip((mean, deviation), node.outputs[1:3], (False, True), strict=False):
        if output:
            element = load(0, ctx.types[source].dtype, identity(len(shape)))
            element = call("div", const(1, element.dtype), element) if inverse else element
            ctx.loop(node, call("cast", element, dtype=ctx.types[output].dtype), [source], output)


def _group_normalization(ctx: Lowering, node: Node) -> None:
    """GroupNormalization: scale and bias a channel from opset 21 on, before that a group."""
    shape, count = ctx.types[node.inputs[0]].shape, GroupNormalization.of(node).num_groups
    groups = Groups.of_channels(shape, count)
    each = groups.own[1] if ctx.types[node.inputs[1]].count == count else axis(1)
    _standardise(
        ctx, node, groups, GroupNormalization.of(node).epsilon, [(value, (each,)) for value in node.inputs[1:3]]
    )


def _instance_normalization(ctx: Lowering, node: Node) -> None:
    """InstanceNormalization: each channel of each image by its own mean and variance."""
    shape = ctx.types[node.inputs[0]].shape
    groups = Groups.along(shape, tuple(range(2, len(shape))))
    _standardise(ctx, node, groups, Epsilon.of(node).epsilon, [(value, (axis(1),)) for value in node.inputs[1:3]])


def _mean_variance_normalization(ctx: Lowering, node: Node) -> None:
    """MeanVarianceNormalization: along some axes, without scale and bias."""
    groups = Groups.along(ctx.types[node.inputs[0]].shape, MeanVariance.of(node).axes)
    _standardise(ctx, node, groups, MeanVariance.of(node).epsilon, [])


LOWERINGS: dict[str, Operator] = {
    "LayerNormalization": Operator(_layer_normalization, LayerNormalization),
    "GroupNormalization": Operator(_group_normalization, GroupNormalization),
    "InstanceNormalization": Operator(_instance_normalization, Epsilon),
    "MeanVarianceNormalization": Operator(_mean_variance_normalization, MeanVariance),
}
