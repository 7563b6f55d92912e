"""Normalizations: Softmax, LogSoftmax, Hardmax 13; LRN 13, LpNormalization 22; those by mean and variance.

BatchNormalization 15, LayerNormalization 17, GroupNormalization 21, InstanceNormalization 22,
MeanVarianceNormalization 13. The variance is the mean square of the deviations: ONNX's own functions subtract the
square of the mean from the mean of the squares, which cancels in float32 where the mean is several thousand times the
deviation.
"""

import math
from collections.abc import Sequence

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import Attributes, DType, Expr, Node, TensorType
from mtool.compiler.ir.expr import (
    Reduction,
    acc,
    axis,
    broadcast_index,
    call,
    choose,
    const,
    identity,
    inside,
    integer,
    load,
    number,
)
from mtool.compiler.kernels.softmax import SoftmaxOfRows
from mtool.compiler.operators.bounds import Bounded, carry_elements
from mtool.compiler.operators.folding import VECTORIZED
from mtool.compiler.operators.lowering import AlongAxis, Dequantized, Epsilon, Lowering, accumulator
from mtool.compiler.operators.onnx_node import Canonical, OnnxNode, attributes_of, qlinear_unary, spreads, with_axis
from mtool.compiler.operators.operator import BEHIND, CHANNELS, LAST, LIKE, Case, Draw, Operator, Value, case, integers
from mtool.compiler.operators.operator import axis as drawn_axis
from mtool.compiler.operators.problems import MICROSOFT, OWN, Unsupported
from mtool.compiler.operators.window import guarded


def _wide(number_: int, kind_dtype: DType, index: tuple[Expr, ...]) -> Expr:
    return call("cast", load(number_, kind_dtype, index), dtype=accumulator(kind_dtype))


class LRN(Attributes):
    """x / (bias + alpha * sum of squares) ** beta, over `size` channels, `before` of them before the element's."""

    alpha: float
    beta: float
    bias: float
    before: int
    size: int


class LpNormalization(AlongAxis):
    """p: the norm's order, 1 or 2."""

    p: int


class Softmax(AlongAxis):
    """Softmax, or LogSoftmax with `log`."""

    log: bool


@frozen
class Groups:
    """Groups of elements with a common mean and variance.

    shape: the shape of the groups.
    axes: the axes over a group's elements, which follow those of `shape`, with their sizes.
    elements: the index of an input element, in axes of `shape` and `axes`.
    index: the index of an input element's group, in the input's axes.
    """

    shape: tuple[int, ...]
    axes: tuple[tuple[int, int], ...]
    elements: tuple[Expr, ...]
    index: tuple[Expr, ...]

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
        """Return groups of adjacent channels (axis 1), with all dimensions after them."""
        members, behind = shape[1] // groups, shape[2:]
        channel = axis(1) * members + axis(2)
        inner = tuple((3 + n, size) for n, size in enumerate(behind))
        return cls(
            (shape[0], groups),
            ((2, members), *inner),
            (axis(0), channel, *(axis(dim) for dim, _ in inner)),
            (axis(0), axis(1) // members),
        )

    def reduced(self, kind: str, body: Expr) -> Expr:
        """Return the reduction of a group's elements."""
        return Expr("reduce", body.dtype, (body,), Reduction(kind, self.axes))

    @property
    def count(self) -> int:
        """The number of elements of a group."""
        return math.prod(size for _, size in self.axes)


def _lrn(ctx: Lowering, node: Node) -> None:
    """LRN: x / (bias + alpha / size * sum of squares of the channels around) ** beta."""
    kind, attrs = ctx.types[node.inputs[0]], LRN.of(node)
    rank, size = len(kind.shape), attrs.size
    index = identity(rank)
    channel = axis(1) + axis(rank) - attrs.before
    near = _wide(0, kind.dtype, (index[0], channel, *index[2:]))
    dtype = near.dtype
    body = guarded(inside(channel, kind.shape[1]), call("mul", near, near), const(0, dtype))
    total = Expr("reduce", dtype, (body,), Reduction("add", ((rank, size),)))
    base = call("add", const(attrs.bias, dtype), call("mul", const(attrs.alpha, dtype), total))
    result = call("div", _wide(0, kind.dtype, index), call("pow", base, const(attrs.beta, dtype)))
    ctx.loop(node, call("cast", result, dtype=kind.dtype), node.inputs)


def _lp_normalization(ctx: Lowering, node: Node) -> None:
    """LpNormalization: x / norm, and 0 where the norm is 0."""
    kind, attrs = ctx.types[node.inputs[0]], LpNormalization.of(node)
    groups = Groups.along(kind.shape, (attrs.axis,))
    element = _wide(0, kind.dtype, groups.elements)
    dtype = element.dtype
    total = groups.reduced("add", call("abs", element) if attrs.p == 1 else call("mul", element, element))
    norm = ctx.value(f"{node.outputs[0]}.norm", dtype, groups.shape)
    ctx.loop(node, total if attrs.p == 1 else call("sqrt", total), node.inputs, norm)
    size, zero = load(1, dtype, groups.index), const(0, dtype)
    quotient = call("div", _wide(0, kind.dtype, identity(len(kind.shape))), size)
    result = choose(call("equal", size, zero, dtype=DType.BOOL), zero, quotient)
    ctx.loop(node, call("cast", result, dtype=kind.dtype), [node.inputs[0], norm])


def _hardmax(ctx: Lowering, node: Node) -> None:
    """Hardmax: 1 at the first maximum along the axis, 0 elsewhere."""
    kind, dim = ctx.types[node.inputs[0]], AlongAxis.of(node).axis
    groups = Groups.along(kind.shape, (dim,))
    element = load(0, kind.dtype, groups.elements)
    top = ctx.value(f"{node.outputs[0]}.max", kind.dtype, groups.shape)
    ctx.loop(node, groups.reduced("maximum", element), node.inputs, top)
    first = ctx.value(f"{node.outputs[0]}.first", DType.INT32, groups.shape)
    lower = call("less", element, load(1, kind.dtype, groups.index), dtype=DType.BOOL)
    candidate = choose(lower, number(kind.shape[dim]), axis(len(kind.shape)))
    ctx.loop(node, groups.reduced("minimum", candidate), [node.inputs[0], top], first)
    hit = call("equal", integer(load(0, DType.INT32, groups.index)), axis(dim), dtype=DType.BOOL)
    ctx.loop(node, choose(hit, const(1, kind.dtype), const(0, kind.dtype)), [first])


def _softmax_by_loops(ctx: Lowering, node: Node) -> None:
    """Softmax and LogSoftmax along one axis, for element types and shapes without a kernel."""
    kind, attrs = ctx.types[node.inputs[0]], Softmax.of(node)
    groups, dtype = Groups.along(kind.shape, (attrs.axis,)), accumulator(kind.dtype)
    element, x = _wide(0, kind.dtype, groups.elements), _wide(0, kind.dtype, identity(len(kind.shape)))
    top, sums = (ctx.value(f"{node.outputs[0]}.{name}", dtype, groups.shape) for name in ("max", "sum"))
    ctx.loop(node, groups.reduced("maximum", element), node.inputs, top)
    power = call("exp", call("sub", element, load(1, dtype, groups.index)))
    ctx.loop(node, groups.reduced("add", power), [node.inputs[0], top], sums)
    centred, total = call("sub", x, load(1, dtype, groups.index)), load(2, dtype, groups.index)
    result = call("sub", centred, call("log", total)) if attrs.log else call("div", call("exp", centred), total)
    ctx.loop(node, call("cast", result, dtype=kind.dtype), [node.inputs[0], top, sums])


def carry_beside_axis(bounded: Bounded) -> int | None:
    """Carry a bound through operators that work along one axis and keep the shape."""
    return bounded.axis if bounded.axis != AlongAxis.of(bounded).axis else None


def emit_flattened(node: OnnxNode, op: str, axis: int, attrs: AlongAxis) -> None:
    """Emit `op` along the second of two dimensions, those before `axis` and those from it on."""
    kind = node.kind(0)
    flat = TensorType(kind.dtype, (int(np.prod(kind.shape[:axis])), int(np.prod(kind.shape[axis:]))))
    before, after = node.value("flat", flat), node.value(op.lower(), flat)
    node.emit(op="Reshape", inputs=node.inputs[:1], outputs=[before])
    node.emit(attrs, op=op, inputs=[before], outputs=[after])
    node.emit(op="Reshape", inputs=[after])


def _hardmax_form(node: OnnxNode) -> None:
    """Hardmax: before opset 13 it flattens to two dimensions at `axis` (default 1)."""
    rank = len(node.shape)
    axis = node.attrs.get("axis", -1 if node.version >= 13 else 1) % rank
    if node.version >= 13 or axis == rank - 1:
        node.emit(AlongAxis(axis=axis))
        return
    emit_flattened(node, "Hardmax", axis, AlongAxis(axis=1))


def _lrn_form(node: OnnxNode) -> None:
    """LRN: the window is clipped to the channels; those outside count as 0."""
    size = node.attrs["size"]
    if len(node.shape) < 2 or size < 1:
        raise Unsupported(f"its size {size} does not fit its input {node.kind(0)}")
    before, behind = (min(reach, node.shape[1]) for reach in ((size - 1) // 2, size // 2))
    attrs = LRN(
        alpha=node.attrs.get("alpha", 1e-4) / size, beta=node.attrs.get("beta", 0.75), bias=node.attrs.get("bias", 1.0),
        before=before, size=before + 1 + behind,
    )  # fmt: skip
    node.emit(attrs)


def _lp_form(node: OnnxNode) -> None:
    p = node.attrs.get("p", 2)
    if p not in (1, 2) or not node.shape:
        raise Unsupported(f"p = {p} is not supported for its input {node.kind(0)}")
    node.emit(LpNormalization(axis=node.axis(-1), p=p))


def _softmax(ctx: Lowering, node: Node) -> None:
    source, output = node.inputs[0], node.outputs[0]
    attrs = Softmax.of(node)
    axis, log = attrs.axis, attrs.log
    kind = ctx.types[output]
    rank = len(kind.shape)
    if kind.dtype is not DType.FLOAT32:
        _softmax_by_loops(ctx, node)
        return
    inputs = []
    quantized = ctx.integers(source) if not log else None
    if quantized is not None:
        source = quantized.value
        steps = np.arange(-255, 1, dtype=np.float64) * np.float64(quantized.scale.reshape(-1)[0])
        inputs.append(ctx.constant(f"{node.name}/exponentials", np.exp(steps).astype(np.float32)))
    perm = tuple(dim for dim in range(rank) if dim != axis) + ((axis,) if rank else ())
    back = tuple(perm.index(dim) for dim in range(rank))
    is_last = perm == tuple(range(rank))
    moved = source if is_last else ctx.transpose(node, source, perm)
    length = kind.shape[axis] if rank else 1
    flat = (math.prod(kind.shape) // max(length, 1), length)
    moved_shape = ctx.types[moved].shape
    moved = moved if moved_shape == flat else ctx.view(node, moved, flat)
    result = ctx.value(f"{output}.rows", kind.dtype, flat)
    rows = SoftmaxOfRows(log=log, has_table=quantized is not None, expr=acc(DType.FLOAT32))
    ctx.node("softmax", [moved, *inputs], [result], rows, like=node)
    if is_last:
        ctx.view(node, result, (), output)
    else:
        shaped = ctx.view(node, result, moved_shape)
        ctx.transpose(node, shaped, back, output)


def _fixed_softmax(ctx: Lowering, node: Node) -> None:
    """FixedSoftmax, mtool's own: along the last axis, with a scale of 1/256 and the smallest integer as zero point.

    16-bit results have a scale of 1/65536.
    Inputs: 8-bit integers, and exp(-d) for differences d = 255 … 0 as int32 with 31 fractional bits.
    """
    source, powers = node.inputs
    kind = ctx.types[node.outputs[0]]
    flat = (math.prod(kind.shape[:-1]), kind.shape[-1])
    low, high = kind.dtype.limits
    steps = call("add", acc(DType.INT32), const(low, DType.INT32), value="index")
    for op, bound in (("maximum", low), ("minimum", high)):
        steps = call(op, steps, const(bound, DType.INT32))
    attrs = SoftmaxOfRows(
        has_table=True, fixed=True, bits=8 * kind.dtype.size, expr=call("cast", steps, dtype=kind.dtype)
    )
    if kind.shape == flat:
        ctx.node("softmax", [source, powers], node.outputs, attrs, like=node)
        return
    result = ctx.value(f"{node.outputs[0]}.rows", kind.dtype, flat)
    ctx.node("softmax", [ctx.view(node, source, flat), powers], [result], attrs, like=node)
    ctx.view(node, result, (), node.outputs[0])


def _softmax_form(node: OnnxNode) -> None:
    """Softmax, LogSoftmax: before opset 13 they flatten to two dimensions at `axis` (default 1)."""
    rank, log = len(node.shape), node.op == "LogSoftmax"
    if node.version >= 13:
        node.emit(Softmax(axis=node.axis(-1), log=log), op="Softmax")
        return
    axis = node.attrs.get("axis", 1)
    emit_flattened(node, "Softmax", axis + rank if axis < 0 else axis, Softmax(axis=1, log=log))


def _mean_of(body: Expr, groups: Groups) -> Expr:
    return call("div", groups.reduced("add", body), const(groups.count, body.dtype))


def _moments(ctx: Lowering, node: Node, groups: Groups, epsilon: float) -> tuple[str, str]:
    """Append the loops that compute each group's mean and standard deviation.

    The mean is summed as differences from the group's first element, which is more precise in float32.
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


def _integer_moments(
    ctx: Lowering, node: Node, groups: Groups, epsilon: float, quantized: Dequantized
) -> tuple[str, str, np.float32]:
    """Append the loops that sum up each group's integers and their squares, exactly, for groups of less than 2^15.

    Returns:
        Each group's sum, the inverse of its deviation times the last one, and the scale divided by the count: what
        a step of count * integer - sum is worth.
    """
    kind, stem, count, index = ctx.types[quantized.value], node.outputs[0], groups.count, identity(len(groups.shape))
    step = np.float32(quantized.scale.reshape(-1)[0]) / np.float32(count)
    element = integer(load(0, kind.dtype, groups.elements))
    sums = ctx.value(f"{stem}.sum", DType.INT32, groups.shape)
    ctx.loop(node, groups.reduced("add", element), [quantized.value], sums)
    largest = max(map(abs, kind.dtype.limits))
    wide = DType.INT32 if (count * largest) ** 2 < 2**31 else DType.INT64
    squares, total = (
        call("cast", s, dtype=wide) for s in (groups.reduced("add", element * element), load(1, DType.INT32, index))
    )
    spread = call("sub", call("mul", squares, const(count, wide)), call("mul", total, total))
    variance = call("mul", call("cast", spread, dtype=DType.FLOAT32), const(float(step * step), DType.FLOAT32))
    deviation = call("sqrt", call("add", variance, const(epsilon, DType.FLOAT32)))
    inverse = ctx.value(f"{stem}.inverse", DType.FLOAT32, groups.shape)
    result = call("div", const(float(step), DType.FLOAT32), deviation)
    return sums, ctx.loop(node, result, [quantized.value, sums], inverse), step


def _standardize(
    ctx: Lowering, node: Node, groups: Groups, epsilon: float, parameters: list[tuple[str, tuple[Expr, ...]]]
) -> list[tuple[str, Expr]]:
    """Append the loops that subtract the mean, divide by the deviation, and apply scale and bias.

    Args:
        ctx: the graph under construction.
        node: the operator.
        groups: the groups with a common mean.
        epsilon: added to the variance.
        parameters: scale and bias, both optional, each a value and the index of its element.

    Returns:
        The mean of each group and the inverse of its deviation: a value with the shape of the groups, and the number
        as an expression of its element.
    """
    kind, group_index = ctx.types[node.inputs[0]], identity(len(groups.shape))
    quantized = ctx.integers(node.inputs[0]) if kind.dtype is DType.FLOAT32 and 0 < groups.count < 2**15 else None
    if quantized is not None and 2.0**-30 < quantized.scale.reshape(-1)[0] < 2.0**30:
        x, dtype, count = quantized.value, DType.FLOAT32, groups.count
        first, second, step = _integer_moments(ctx, node, groups, epsilon, quantized)
        element = integer(load(0, ctx.types[x].dtype, identity(len(kind.shape))))
        centred = call("cast", element * count - load(1, DType.INT32, groups.index), dtype=dtype)
        result = call("mul", centred, load(2, dtype, groups.index))
        shift, unit = count * int(quantized.zero_point.reshape(-1)[0]), const(float(step), dtype)
        mean = call("mul", call("cast", load(0, DType.INT32, group_index) - shift, dtype=dtype), unit)
        inverse = call("div", load(0, dtype, group_index), unit)
    else:
        x, (first, second) = node.inputs[0], _moments(ctx, node, groups, epsilon)
        element = _wide(0, kind.dtype, identity(len(kind.shape)))
        dtype = element.dtype
        result = call("div", call("sub", element, load(1, dtype, groups.index)), load(2, dtype, groups.index))
        mean = load(0, dtype, group_index)
        inverse = call("div", const(1, dtype), mean)
    for n, (value, index) in enumerate(parameters):
        parameter = call("cast", load(3 + n, ctx.types[value].dtype, index), dtype=dtype)
        result = call("add" if n else "mul", result, parameter)
    ctx.loop(node, call("cast", result, dtype=kind.dtype), [x, first, second, *(value for value, _ in parameters)])
    return [(first, mean), (second, inverse)]


class LayerNormalization(Epsilon):
    """Over the dimensions from `axis` on."""

    axis: int


class GroupNormalization(Epsilon):
    """Over each of `num_groups` groups of channels."""

    num_groups: int


class MeanVariance(Epsilon):
    """MeanVarianceNormalization, over `axes`."""

    axes: tuple[int, ...]


def _layer_normalization(ctx: Lowering, node: Node) -> None:
    """LayerNormalization: over all dimensions from `axis` on; mean and inverse deviation are optional outputs."""
    shape = ctx.types[node.inputs[0]].shape
    groups = Groups.along(shape, tuple(range(LayerNormalization.of(node).axis, len(shape))))
    parameters = [(value, broadcast_index(ctx.types[value].shape, shape)) for value in node.inputs[1:3] if value]
    moments = _standardize(ctx, node, groups, LayerNormalization.of(node).epsilon, parameters)
    for (source, element), output in zip(moments, node.outputs[1:3], strict=False):
        if output:
            ctx.loop(node, call("cast", element, dtype=ctx.types[output].dtype), [source], output)


def _group_normalization(ctx: Lowering, node: Node) -> None:
    """GroupNormalization: scale and bias are per channel from opset 21 on, before that per group."""
    shape, count = ctx.types[node.inputs[0]].shape, GroupNormalization.of(node).num_groups
    groups = Groups.of_channels(shape, count)
    channel = groups.index[1] if ctx.types[node.inputs[1]].count == count else axis(1)
    _standardize(
        ctx, node, groups, GroupNormalization.of(node).epsilon, [(value, (channel,)) for value in node.inputs[1:3]]
    )


def _instance_normalization(ctx: Lowering, node: Node) -> None:
    """InstanceNormalization: each channel of each image by its own mean and variance."""
    shape = ctx.types[node.inputs[0]].shape
    groups = Groups.along(shape, tuple(range(2, len(shape))))
    _standardize(ctx, node, groups, Epsilon.of(node).epsilon, [(value, (axis(1),)) for value in node.inputs[1:3]])


def _mean_variance_normalization(ctx: Lowering, node: Node) -> None:
    """MeanVarianceNormalization: along some axes, without scale and bias."""
    groups = Groups.along(ctx.types[node.inputs[0]].shape, MeanVariance.of(node).axes)
    _standardize(ctx, node, groups, MeanVariance.of(node).epsilon, [])


def _scales_spread(node: OnnxNode) -> bool:
    return spreads(node.ins[1], node.ins[0]) and spreads(node.ins[2], node.ins[0])


def _a_number_each_channel(node: OnnxNode) -> bool:
    channels = node.ins[0][1]
    return node.ins[1] == (channels,) and node.ins[2] == (channels,)


def _like_input(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    return inputs[:1]


def _batch_normalization_form(node: OnnxNode) -> None:
    if node.attrs.get("training_mode") or any(node.outputs[1:]):
        raise Unsupported("training mode is not supported")
    x = node.shape
    if len(x) < 2 or any(node.kind(value).shape != x[1:2] for value in node.inputs[1:5]):
        raise Unsupported("its scale, bias, mean and variance do not have one number per channel")
    node.emit(attributes_of(Epsilon, node.attrs), outputs=node.outputs[:1])


def _batch_normalization(ctx: Lowering, node: Node) -> None:
    """BatchNormalization 15 at inference: scale and shift of axis 1."""
    kind = ctx.types[node.outputs[0]]
    channel = (axis(1),)
    x = ctx.operands(node.inputs[:1], kind.shape)[0]
    dtype = DType.FLOAT32 if kind.dtype.is_half else kind.dtype
    x, scale, bias, mean, variance = (
        call("cast", value, dtype=dtype)
        for value in (x, *(load(n, ctx.types[node.inputs[n]].dtype, channel) for n in range(1, 5)))
    )
    deviation = call("sqrt", call("add", variance, const(Epsilon.of(node).epsilon, dtype)))
    centred = call("div", call("sub", x, mean), deviation)
    result = call("add", call("mul", centred, scale), bias)
    ctx.loop(node, call("cast", result, dtype=kind.dtype), node.inputs)


def _group_normalization_form(node: OnnxNode) -> None:
    """GroupNormalization: scale and bias are per group, or per channel."""
    shape, groups = node.shape, node.attrs["num_groups"]
    if len(shape) < 2 or groups < 1 or shape[1] % groups:
        raise Unsupported(f"its {groups} groups do not fit its input {node.kind(0)}")
    sizes = [node.kind(value).shape for value in node.inputs[1:3]]
    if sizes not in ([(groups,)] * 2, [shape[1:2]] * 2):
        raise Unsupported("its scale and bias do not have one number per channel or group")
    node.emit(attributes_of(GroupNormalization, node.attrs))


def _mean_variance_form(node: OnnxNode) -> None:
    """MeanVarianceNormalization: onnx adds a tiny epsilon to the deviation, outside the square root."""
    rank, stated = len(node.shape), node.attrs.get("axes", (0, 2, 3))
    if not all(-rank <= dim < rank for dim in stated):
        raise Unsupported(f"its axes are {list(stated)}; its input has {rank} dimensions")
    node.emit(MeanVariance(axes=tuple(sorted({dim % rank for dim in stated})), epsilon=1e-9))


def _simplified(write: OnnxNode) -> None:
    """SimplifiedLayerNormalization, which onnxruntime's optimizer writes into ONNX's domain."""
    write.refuse(**{"second output": "".join(write.outputs[1:])})
    attrs = {"axis": write.attrs.get("axis", -1), "epsilon": write.attrs.get("epsilon", 1e-5)}
    write.set_output(write("RMSNormalization", write.input(0), write.input(1), **attrs))


def _skip(simplified: bool) -> Canonical:
    """SkipLayerNormalization(input, skip, gamma, beta, bias); the simplified one has no beta."""

    def written(write: OnnxNode) -> None:
        write.refuse(**{"mean and deviation": "".join(write.outputs[1:3])})
        total = write("Add", write.input(0), write.input(1))
        bias = write.input(3 if simplified else 4)
        if bias:
            total = write("Add", total, bias)
        gamma, epsilon = write.input(2), write.attrs.get("epsilon", 1e-5 if simplified else 1e-12)
        if simplified:
            result = write("RMSNormalization", total, gamma, axis=-1, epsilon=epsilon)
        else:
            beta = write.input(3)
            result = write("LayerNormalization", total, gamma, *[beta] * bool(beta), axis=-1, epsilon=epsilon)
        write.set_output(result)
        write.set_output(total, 3)

    return written


def _scaled_cases(draw: Draw, op: Operator) -> Case:
    """Draw a scale, and sometimes a bias, of the dimensions from an axis on."""
    value = draw.pick()
    axis = draw.axis(value)
    count = 1 if op.name == "RMSNormalization" else draw.rng.choice((1, 2))
    return Case([value.name, *(draw.normal(value.shape[axis:]) for _ in range(count))], {"axis": axis})


def _variances(draw: Draw, value: Value) -> str:
    return draw.constant(abs(draw.numbers().normal(1, 0.2, value.shape[1:2])), np.float32)


OPERATORS = (
    Operator(
        "LRN", cases=case(rank=4, size=(1, 3, 5)), attributes=LRN, canonical=_lrn_form, folding=VECTORIZED, lower=_lrn,
    ),
    Operator(
        "LpNormalization", cases=case(axis=drawn_axis, p=(1, 2)), attributes=LpNormalization, canonical=_lp_form,
        carry=carry_beside_axis, folding=VECTORIZED, lower=_lp_normalization,
    ),
    Operator(
        "Hardmax", attributes=AlongAxis, canonical=_hardmax_form, axis_ends=BEHIND, carry=carry_beside_axis,
        folding=VECTORIZED, lower=_hardmax,
    ),
    Operator(
        "Softmax", attributes=Softmax, canonical=_softmax_form, axis_ends=BEHIND, carry=carry_beside_axis,
        folding=VECTORIZED, lower=_softmax,
    ),
    Operator("LogSoftmax", canonical=_softmax_form, axis_ends=BEHIND, folding=VECTORIZED),
    Operator(
        "QLinearSoftmax", domain=MICROSOFT, cases=integers(case(axis=(-1,), opset=(13,)), "0y"),
        expand=qlinear_unary("Softmax", "opset"),
    ),
    Operator("FixedSoftmax", domain=OWN, lower=_fixed_softmax),
    Operator(
        "LayerNormalization", cases=_scaled_cases, attributes=LayerNormalization,
        canonical=with_axis(LayerNormalization, -1), check_shapes=_scales_spread, folding=VECTORIZED,
        lower=_layer_normalization,
    ),
    Operator("RMSNormalization", cases=_scaled_cases, check_shapes=_scales_spread),
    Operator(
        "GroupNormalization",
        cases=case(
            CHANNELS, CHANNELS, rank=(3, 4),
            num_groups=lambda draw, x: draw.rng.choice([n for n in range(1, x.shape[1] + 1) if x.shape[1] % n == 0]),
        ),
        attributes=GroupNormalization, canonical=_group_normalization_form, infer=_like_input,
        lower=_group_normalization,
    ),
    Operator(
        "InstanceNormalization", cases=case(CHANNELS, CHANNELS, rank=(3, 4)), attributes=Epsilon,
        check_shapes=_a_number_each_channel, folding=VECTORIZED, lower=_instance_normalization,
    ),
    Operator(
        "MeanVarianceNormalization", cases=case(rank=4), attributes=MeanVariance, canonical=_mean_variance_form,
        infer=_like_input, lower=_mean_variance_normalization,
    ),
    Operator(
        "BatchNormalization", cases=case(CHANNELS, CHANNELS, CHANNELS, _variances, rank=(2, 3, 4)), attributes=Epsilon,
        canonical=_batch_normalization_form, carry=carry_elements, lower=_batch_normalization,
    ),
    Operator("SimplifiedLayerNormalization", cases=case(LAST, axis=(-1,)), expand=_simplified),
    Operator("SimplifiedLayerNormalization", domain=MICROSOFT, cases=None, expand=_simplified),
    Operator(
        "SkipLayerNormalization", domain=MICROSOFT, cases=case(LIKE, LAST, LAST, LAST, rank=3),
        expand=_skip(simplified=False),
    ),
    Operator(
        "SkipSimplifiedLayerNormalization", domain=MICROSOFT, cases=case(LIKE, LAST, LAST, rank=3),
        expand=_skip(simplified=True),
    ),
)  # fmt: skip
