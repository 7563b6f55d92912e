"""Sums of products: constant weights and biases, and the epilogue, which converts an accumulator to a real number.

Products of plain 8-bit integers (MatMulInteger, ConvInteger) return the sums. Their activations less the zero point,
which may be computed at run time, are int16, so that padding is 0.
"""

import math
from collections.abc import Sequence

import numpy as np

from mtool.base.frozen import frozen
from mtool.compiler.ir import DType, Expr, Node
from mtool.compiler.ir.expr import acc, axis, broadcast_index, call, const, identity, load
from mtool.compiler.ir.types import Array, RowSums, row_blocks, row_sums
from mtool.compiler.kernels.conv2d.node import Conv2d
from mtool.compiler.kernels.dense import Dense
from mtool.compiler.kernels.scaling import are_whole, each_is_whole
from mtool.compiler.kernels.weighted_sum import WeightedSum
from mtool.compiler.operators.lowering import EIGHT_BITS, NCHW_OF_NHWC, NHWC_OF_NCHW, Dequantized, Lowering
from mtool.compiler.operators.window import Convolution, four_pads, pair

INTEGER = 1e-5  # the error, in steps, of an int32 times its scale in float64, divided by the scale again


def epilogue_of(
    ctx: Lowering,
    node: Node,
    filters: Array,
    bias: Array | None,
    integer: Dequantized | None,
    w_scale: Array | None,
    axis_number: int,
) -> tuple[WeightedSum, list[str]]:
    """Return the attributes of a kernel of weighted sums, and its constant inputs (weights, bias, scale).

    `filters` has the output channels first. Integer: acc is an int32 (an int64 if sums of 16-bit activations may
    overflow it), and the real value is acc * (x_scale * w_scale[channel]), a float32 product as in onnxruntime. A bias
    that is not a multiple of this step is added as a float, and so is one with which a channel's sums would overflow 32
    bits; `float_bias` is whether it may be rounded to steps where the result is an integer
    (mtool.compiler.passes.fold_constants). If only the weights are quantized, acc is a float32 sum of inputs times
    integers.
    """
    weights = ctx.constant(f"{node.name}/weights", filters)
    if integer is None and w_scale is not None:
        return _of_floats_and_integers(ctx, node, weights, bias, w_scale, axis_number)
    if integer is None or w_scale is None:
        data = np.zeros(filters.shape[0]) if bias is None else bias
        inputs = [weights, ctx.constant(f"{node.name}/bias", data.astype(np.float32))]
        return WeightedSum(expr=acc(DType.FLOAT32)), inputs
    assert bias is not None
    zero_point = int(integer.zero_point.reshape(-1)[0])
    x_scale = integer.scale.reshape(-1)[0].astype(np.float32)
    sums = row_sums(filters)
    kind = ctx.types[integer.value].dtype
    if kind.size > 1:
        w_scale = _without_dead_scales(w_scale, sums)
    low, high = ctx.limits.get(integer.value, kind.limits)
    if kind.size > 1:
        reach = _reach(sums, low - zero_point, high - zero_point)
    else:
        reach = sums.magnitude * max(high - zero_point, zero_point - low)
        if not _fitting(sums, low - zero_point, high - zero_point, _in_steps(bias, x_scale, w_scale)).all():
            w_scale = _without_dead_scales(w_scale, sums)
    scale = (x_scale * w_scale).astype(np.float32)
    exact = _in_steps(bias, x_scale, w_scale)
    steps = np.rint(exact)
    fitting = np.full(steps.shape, True)
    if kind.size == 1:
        fitting = _fitting(sums, low - zero_point, high - zero_point, steps)
    fits = bool(fitting.all())
    # If the sums of all channels fit, all or no channels are integers; otherwise, those that can be.
    whole = np.full(steps.shape, are_whole(exact)) if fits else fitting & each_is_whole(exact)
    apart = not whole.all()
    furthest = reach + np.where(whole | fits, np.abs(steps), 0)
    if kind.size == 1:
        furthest = np.where(fitting, np.minimum(furthest, 2**31), furthest)
    bound = furthest.max(initial=0)
    total = DType.INT64 if kind.size > 1 and bound >= 2**31 else DType.INT32
    least, most = total.limits if total is DType.INT32 else (-(2.0**62), 2.0**62)
    folded = np.where(whole, steps, 0) - zero_point * sums.total
    folded = np.clip(folded, least, most).astype(total.numpy)
    inputs = [weights, ctx.constant(f"{node.name}/bias", folded)]
    real = call("cast", acc(total), dtype=DType.FLOAT32)
    if _is_uniform(scale):
        factor = const(scale[0].item(), DType.FLOAT32)
    else:
        inputs.append(ctx.constant(f"{node.name}/scale", scale))
        factor = load(3, DType.FLOAT32, (axis(axis_number),))
    expr = call("mul", real, factor)
    if apart:
        inputs.append(ctx.constant(f"{node.name}/float_bias", np.where(whole, 0, bias).astype(np.float32)))
        expr = call("add", expr, load(len(inputs), DType.FLOAT32, (axis(axis_number),)))
    return WeightedSum(expr=expr, acc_bound=int(bound), pad_value=zero_point, float_bias=bool(apart and fits)), inputs


def _of_floats_and_integers(
    ctx: Lowering, node: Node, weights: str, bias: Array | None, w_scale: Array, axis_number: int
) -> tuple[WeightedSum, list[str]]:
    """Return the same for float inputs and int8 weights: acc is a float, the real value acc * w_scale + bias."""
    inputs = [weights, ctx.constant(f"{node.name}/bias", np.zeros(w_scale.size, np.float32))]

    def parameter(data: Array, name: str) -> Expr:
        if _is_uniform(data):
            return const(data[0].item(), DType.FLOAT32)
        inputs.append(ctx.constant(f"{node.name}/{name}", data.astype(np.float32)))
        return load(len(inputs), DType.FLOAT32, (axis(axis_number),))

    expr = call("mul", acc(DType.FLOAT32), parameter(w_scale, "scale"))
    if bias is not None and bias.any():
        expr = call("add", expr, parameter(bias.astype(np.float32), "float_bias"))
    return WeightedSum(expr=expr), inputs


def _in_steps(bias: Array, x_scale: Array, w_scale: Array) -> Array:
    """Return biases in steps of the accumulator, float64 [N].

    An int32 bias has the float32 product of the scales, whose error of 2^-24 is a whole step for large biases; such a
    bias stays these integers. Others may have been rounded to steps of the exact product.
    """
    exact: Array = bias / (np.float64(x_scale) * w_scale.astype(np.float64))
    product = (x_scale * w_scale).astype(np.float32).astype(np.float64)
    integers = np.divide(bias, product, out=exact.copy(), where=product > 0)  # the product of tiny scales is 0
    return np.where(np.abs(integers - np.rint(integers)) <= INTEGER, integers, exact)


def _is_uniform(data: Array) -> bool:
    return bool(data.size and (data == data[0]).all())


def _reach(sums: RowSums, low: int, high: int) -> Array:
    """Return the largest magnitude of each row's sum, and of its partial sums, for inputs in [low, high].

    Terms that are not yet added are in the bias as if their inputs were 0, which is a possible input.
    """
    most = sums.positive * high + sums.negative * low
    least = sums.positive * low + sums.negative * high
    reach: Array = np.maximum(most, -least)
    return reach


def _fitting(sums: RowSums, low: int, high: int, steps: Array) -> Array:
    """Return which channels' sums fit in 32 bits, bool [N]: all partial sums, with and without the bias.

    Args:
        sums: the weights' row sums.
        low: the smallest input, 0 or less.
        high: the largest input, 0 or more.
        steps: the biases.
    """
    least = sums.positive * low + sums.negative * high + np.minimum(steps, 0)
    most = sums.positive * high + sums.negative * low + np.maximum(steps, 0)
    fitting: Array = (least >= -(2**31)) & (most < 2**31)
    return fitting


def _without_dead_scales(w_scale: Array, sums: RowSums) -> Array:
    """Return the scales, with those of channels without weights as large as the others'.

    Quantizers give a dead channel a tiny scale, with which its bias overflows 32 bits.
    """
    live = sums.magnitude > 0
    scales: Array = np.where(live, w_scale, w_scale[live].max(initial=0)) if live.any() else w_scale
    return scales


def is_constant(ctx: Lowering, value: str) -> bool:
    """Whether a float value is a constant or a dequantized constant."""
    stored = ctx.dequantized.get(value)
    return value in ctx.constants or (stored is not None and stored.value in ctx.constants)


def constant_value(ctx: Lowering, value: str) -> Array | None:
    """Return a constant float value, dequantized if it is stored as integers."""
    if value in ctx.constants:
        return ctx.constants[value]
    stored = ctx.dequantized.get(value)
    if stored is None or stored.value not in ctx.constants:
        return None
    return real_numbers(ctx.constants[stored.value], stored.scale, stored.zero_point, stored.axis, stored.block)


def real_numbers(data: Array, scale: Array, zero_point: Array, axis: int | None, block: int = 0) -> Array:
    """Dequantize integers to float32; several scales and zero points lie along an axis, one for each `block`."""
    flat = data.reshape(data.shape or 1)
    if block:
        blocks = np.arange(data.shape[axis or 0]) // block
        scales, points = (part.take(blocks, axis) for part in (scale, zero_point))
    else:
        view = [-1 if dim == axis and scale.size > 1 else 1 for dim in range(flat.ndim)]
        scales, points = (np.broadcast_to(part.reshape(view), flat.shape) for part in (scale, zero_point))
    result = np.empty(flat.shape, np.float32)
    for rows in row_blocks(flat):
        result[rows] = (flat[rows].astype(np.int64) - points[rows]) * scales[rows]
    return result.reshape(data.shape)


def integer_weights(ctx: Lowering, value: str, channel_axis: int) -> tuple[Array, Array] | None:
    """Return constant integer weights less their zero point, and a scale per channel.

    None: the weights are not quantized, not along `channel_axis`, or overflow int16 without their zero point.
    """
    stored = ctx.dequantized.get(value)
    if stored is None or stored.value not in ctx.constants or stored.axis not in (None, channel_axis) or stored.block:
        return None
    data = ctx.constants[stored.value]
    if data.dtype.itemsize > 2:
        return None
    view = [1] * data.ndim
    view[channel_axis] = -1
    points = np.broadcast_to(stored.zero_point.astype(np.int32), (data.shape[channel_axis],)).reshape(view)
    scale = np.broadcast_to(stored.scale, (data.shape[channel_axis],)).astype(np.float32)
    if data.dtype == np.int8 and not points.any():
        return data, scale
    others = tuple(n for n in range(data.ndim) if n != channel_axis)
    ends = [end(axis=others, keepdims=True) - points for end in (data.min, data.max)] if data.size else []
    least, most = (int(end) for end in (np.min(ends, initial=0), np.max(ends, initial=0)))
    if least < -(2**15) or most >= 2**15:
        return None
    centred = np.empty(data.shape, np.int8 if least >= -128 and most <= 127 else np.int16)
    np.subtract(data, points, out=centred, dtype=np.int32, casting="unsafe")
    return centred, scale


def float_bias(ctx: Lowering, value: str, channels: int) -> Array | None:
    """Return a constant bias as float64 (exact for dequantized int32), zeros if there is none; None if it varies."""
    if not value:
        return np.zeros(channels, np.float64)
    if value in ctx.constants:
        return ctx.constants[value].astype(np.float64).reshape(-1)
    stored = ctx.dequantized.get(value)
    if stored is None or stored.value not in ctx.constants or stored.block:
        return None
    integers = ctx.constants[stored.value].astype(np.float64).reshape(-1)
    return (integers - stored.zero_point) * stored.scale.astype(np.float64)


@frozen
class Operands:
    """The operands of a kernel of weighted sums: its input, weights and bias.

    source: the float input, or the integers behind it, which `integer` describes.
    data: the weights; None: they are not constant. w_scale: their scale, if they are integers.
    bias: float64; None: it is not constant.
    """

    source: str
    data: Array | None
    integer: Dequantized | None
    w_scale: Array | None
    bias: Array | None


def operands_of(ctx: Lowering, x: str, w: str, b: str, channels: int, channel_axis: int) -> Operands:
    """Return the operands of a product with weights, as integers where possible."""
    integer, weights, bias = (
        ctx.integers(x, wide=True),
        integer_weights(ctx, w, channel_axis),
        float_bias(ctx, b, channels),
    )
    if bias is not None and bias.size != channels:
        bias = np.broadcast_to(bias, (channels,)) if bias.size == 1 else None
    if weights is not None and bias is not None:
        if integer is not None:
            return Operands(integer.value, weights[0], integer, weights[1], bias)
        if not ctx.float_weights and weights[0].dtype == np.int8:
            return Operands(x, weights[0], None, weights[1], bias)
    return Operands(x, constant_value(ctx, w), None, None, bias)


def append_conv2d(ctx: Lowering, node: Node, inputs: Sequence[str], dtype: DType, sums: WeightedSum) -> None:
    """Append a convolution kernel between transpositions; a single spatial dimension has a height of 1."""
    attrs, (source, *constants), result = Convolution.of(node), inputs, ctx.types[node.outputs[0]].shape
    if attrs.rank == 1:
        batch, channels, width = ctx.types[source].shape
        source = ctx.view(node, source, (batch, channels, 1, width))
    nhwc = ctx.transpose(node, source, NHWC_OF_NCHW)
    output = ctx.value(f"{node.outputs[0]}.nhwc", dtype, (result[0], *pair(result[2:], 1), result[1]))
    conv2d = Conv2d(
        kernel=pair(attrs.kernel, 1), strides=pair(attrs.strides, 1), dilations=pair(attrs.dilations, 1),
        pads=four_pads(attrs.pads), group=attrs.group, **vars(sums),
    )  # fmt: skip
    ctx.node("conv2d", [nhwc, *constants], [output], conv2d, like=node)
    back = ctx.transpose(node, output, NCHW_OF_NHWC, node.outputs[0] if attrs.rank == 2 else "")
    if attrs.rank == 1:
        ctx.view(node, back, result, node.outputs[0])


FARTHEST = 255  # the largest distance of 8-bit integers from their zero point


def integer_dense(ctx: Lowering, node: Node) -> bool:
    """Append a dense kernel for a MatMulInteger with a constant matrix as second operand."""
    a = node.inputs[0]
    shape = ctx.types[a].shape
    weights = _weights(ctx, node, 1)
    if weights is None or weights.ndim != 2 or not shape or not _is_scalar(ctx, node, 2):
        return False
    rows, depth = math.prod(shape[:-1]), shape[-1]
    inputs = _operands(ctx, node, weights.T)
    if inputs is None or not rows or not depth:
        return False
    source = ctx.view(node, centred(ctx, node, 0, DType.INT16), (rows, depth))
    output = ctx.value(f"{node.outputs[0]}.rows", DType.INT32, (rows, weights.shape[1]))
    bound = FARTHEST * int(row_sums(ctx.constants[inputs[0]]).magnitude.max(initial=0))
    ctx.node("dense", [source, *inputs], [output], Dense(expr=acc(DType.INT32), acc_bound=bound), like=node)
    ctx.view(node, output, ctx.types[node.outputs[0]].shape, node.outputs[0])
    return True


def integer_conv(ctx: Lowering, node: Node) -> bool:
    """Append a conv2d kernel for a ConvInteger with constant weights and one or two dimensions."""
    weights, conv = _weights(ctx, node, 0), Convolution.of(node)
    if weights is None or conv.rank > 2 or not _is_scalar(ctx, node, 2) or not ctx.types[node.inputs[0]].count:
        return False
    data = weights[:, :, None, :] if weights.ndim == 3 else weights
    inputs = _operands(ctx, node, np.ascontiguousarray(data.transpose(0, 2, 3, 1)))
    if inputs is None:
        return False
    source = centred(ctx, node, 0, DType.INT16)
    bound = FARTHEST * int(row_sums(ctx.constants[inputs[0]]).magnitude.max(initial=0))
    append_conv2d(ctx, node, [source, *inputs], DType.INT32, WeightedSum(expr=acc(DType.INT32), acc_bound=bound))
    return True


def _is_scalar(ctx: Lowering, node: Node, place: int) -> bool:
    """Whether a zero point is one number, or not given."""
    return len(node.inputs) <= place or not node.inputs[place] or ctx.types[node.inputs[place]].count == 1


def _weights(ctx: Lowering, node: Node, channels: int) -> Array | None:
    """Return constant 8-bit weights less their zero point, per tensor or along the axis `channels`."""
    data, zero = ctx.constants.get(node.inputs[1]), node.inputs[3] if len(node.inputs) > 3 else ""
    if data is None or data.dtype.itemsize != 1 or not data.size or ctx.types[node.inputs[0]].dtype not in EIGHT_BITS:
        return None
    point = ctx.constants.get(zero, np.zeros(1, np.int32) if not zero else None)
    if point is None or point.size not in (1, data.shape[channels]) or data.ndim <= channels:
        return None
    view = [-1 if place == channels and point.size > 1 else 1 for place in range(data.ndim)]
    centred: Array = data.astype(np.int16) - point.astype(np.int16).reshape(view)
    return centred.astype(np.int8) if centred.min() >= -128 and centred.max() <= 127 else centred


def _operands(ctx: Lowering, node: Node, filters: Array) -> list[str] | None:
    """Return a kernel's constants, the weights with output channels first; None: the sums may overflow int32."""
    if FARTHEST * int(row_sums(filters).magnitude.max(initial=0)) >= 2**31:
        return None
    weights = ctx.constant(f"{node.name}/weights", np.ascontiguousarray(filters))
    return [weights, ctx.constant(f"{node.name}/bias", np.zeros(len(filters), np.int32))]


def centred(ctx: Lowering, node: Node, operand: int, dtype: DType) -> str:
    """Return an operand less its zero point, as a type."""
    value, kind = node.inputs[operand], ctx.types[node.inputs[operand]]
    rank = len(kind.shape)
    inputs = [value]
    element = call("cast", load(0, kind.dtype, identity(rank)), dtype=DType.INT32)
    if len(node.inputs) > 2 + operand and node.inputs[2 + operand]:
        inputs.append(node.inputs[2 + operand])
        point = ctx.types[inputs[1]]
        if point.count == 1:
            index = tuple(const(0, DType.INT32) for _ in point.shape)
        elif len(point.shape) == 1:
            index = (axis(rank - 2 if operand == 0 else rank - 1),)
        else:
            index = broadcast_index(point.shape, kind.shape)
        zero = call("cast", load(1, point.dtype, index), dtype=DType.INT32)
        element = call("sub", element, zero, value="index")
    result = ctx.value(f"{value}.centred", dtype, kind.shape)
    return ctx.loop(node, call("cast", element, dtype=dtype), inputs, result)
