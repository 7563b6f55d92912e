"""Sums of products: constant weights and biases, and the epilogue, which turns an accumulator into a real number."""

import numpy as np

from mtool.compiler.ir import DType, Expr, Node
from mtool.compiler.ir.expr import acc, axis, call, const, load
from mtool.compiler.ir.types import Array, RowSums, row_blocks, row_sums
from mtool.compiler.kernels.scaling import are_whole, each_is_whole
from mtool.compiler.kernels.weighted_sum import WeightedSum
from mtool.compiler.operators.lowering import Dequantised, Lowering

INTEGER = 1e-5  # steps: what float64 leaves of an int32 times its scale, divided by it


def epilogue_of(
    ctx: Lowering,
    node: Node,
    filters: Array,
    bias: Array | None,
    integer: Dequantised | None,
    w_scale: Array | None,
    axis_number: int,
) -> tuple[WeightedSum, list[str]]:
    """Return what a kernel of weighted sums says of them, and its constant inputs (weights, bias, scale).

    `filters` has the output channels first. Integer: acc is an int32 (an int64 if sums of 16-bit activations may leave
    that), the real value is acc * (x_scale * w_scale[channel]), a float32 product as in onnxruntime. A bias that is
    no whole number of these steps is added to it as a float, and so is one with which a channel's sums would leave 32
    bits; `float_bias` says whether it may be rounded to steps where the result is an integer
    (mtool.compiler.passes.fold_constants). Without integers behind the input but with a scale of the weights, acc is a
    float32 sum of inputs times integers.
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
    # Integers in all channels, or in none, of a layer whose sums all fit; otherwise in each channel that lets it.
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
    made = call("mul", real, factor)
    if apart:
        inputs.append(ctx.constant(f"{node.name}/float_bias", np.where(whole, 0, bias).astype(np.float32)))
        made = call("add", made, load(len(inputs), DType.FLOAT32, (axis(axis_number),)))
    return WeightedSum(expr=made, acc_bound=int(bound), pad_value=zero_point, float_bias=bool(apart and fits)), inputs


def _of_floats_and_integers(
    ctx: Lowering, node: Node, weights: str, bias: Array | None, w_scale: Array, axis_number: int
) -> tuple[WeightedSum, list[str]]:
    """Return the same of float inputs and int8 weights: acc is a float, the real value acc * w_scale + bias."""
    inputs = [weights, ctx.constant(f"{node.name}/bias", np.zeros(w_scale.size, np.float32))]

    def each(data: Array, name: str) -> Expr:
        if _is_uniform(data):
            return const(data[0].item(), DType.FLOAT32)
        inputs.append(ctx.constant(f"{node.name}/{name}", data.astype(np.float32)))
        return load(len(inputs), DType.FLOAT32, (axis(axis_number),))

    made = call("mul", acc(DType.FLOAT32), each(w_scale, "scale"))
    if bias is not None and bias.any():
        made = call("add", made, each(bias.astype(np.float32), "float_bias"))
    return WeightedSum(expr=made), inputs


def _in_steps(bias: Array, x_scale: Array, w_scale: Array) -> Array:
    """Return biases in steps of the accumulator, float64 [N].

    An int32 bias has the scales' product in float32, which is up to 2^-24 off: that is a step where there are 2^24. It
    is those integers. Another may have been rounded to steps of the exact product.
    """
    exact: Array = bias / (np.float64(x_scale) * w_scale.astype(np.float64))
    product = (x_scale * w_scale).astype(np.float32).astype(np.float64)
    own = np.divide(bias, product, out=exact.copy(), where=product > 0)  # 0: of scales beyond float32
    return np.where(np.abs(own - np.rint(own)) <= INTEGER, own, exact)


def _is_uniform(data: Array) -> bool:
    return bool(data.size and (data == data[0]).all())


def _reach(sums: RowSums, low: int, high: int) -> Array:
    """Return how far from 0 the sum of each row's products with numbers in [low, high] may be, of each part of it too.

    What is not yet summed stands in the bias as if its inputs were 0, which is a number that they may be.
    """
    most = sums.positive * high + sums.negative * low
    least = sums.positive * low + sums.negative * high
    reach: Array = np.maximum(most, -least)
    return reach


def _fitting(sums: RowSums, low: int, high: int, steps: Array) -> Array:
    """Return which channels' sums stay in 32 bits, bool [N]: all parts of them, with their bias and before it is added.

    Args:
        sums: of the weights.
        low: the least input, 0 or less.
        high: the greatest, 0 or more.
        steps: the biases.
    """
    least = sums.positive * low + sums.negative * high + np.minimum(steps, 0)
    most = sums.positive * high + sums.negative * low + np.maximum(steps, 0)
    fitting: Array = (least >= -(2**31)) & (most < 2**31)
    return fitting


def _without_dead_scales(w_scale: Array, sums: RowSums) -> Array:
    """Return the scales with those of channels without weights as large as the others'.

    Quantisers give a dead channel a tiny scale, with which its bias is more steps than 32 bits have.
    """
    live = sums.magnitude > 0
    scales: Array = np.where(live, w_scale, w_scale[live].max(initial=0)) if live.any() else w_scale
    return scales


def is_constant(ctx: Lowering, value: str) -> bool:
    """Whether a float value is constant, as it is or dequantised."""
    found = ctx.dequantised.get(value)
    return value in ctx.constants or (found is not None and found.value in ctx.constants)


def constant_value(ctx: Lowering, value: str) -> Array | None:
    """Return a constant float value, dequantised if it is stored as integers."""
    if value in ctx.constants:
        return ctx.constants[value]
    found = ctx.dequantised.get(value)
    if found is None or found.value not in ctx.constants:
        return None
    shape = ctx.constants[found.value].shape
    data = ctx.constants[found.value].reshape(shape or 1)
    view = [1] * data.ndim
    if found.axis is not None:
        view[found.axis] = -1
    scale, point = (np.broadcast_to(each.reshape(view), data.shape) for each in (found.scale, found.zero_point))
    made = np.empty(data.shape, np.float32)
    for rows in row_blocks(data):
        made[rows] = (data[rows].astype(np.int32) - point[rows]) * scale[rows]
    return made.reshape(shape)


def integer_weights(ctx: Lowering, value: str, channel_axis: int) -> tuple[Array, Array] | None:
    """Return constant integer weights with their zero point taken out, and their scale a channel.

    None: the weights are not quantised, not along `channel_axis`, or leave int16 without their zero point.
    """
    found = ctx.dequantised.get(value)
    if found is None or found.value not in ctx.constants or found.axis not in (None, channel_axis):
        return None
    data = ctx.constants[found.value]
    if data.dtype.itemsize > 2:
        return None
    view = [1] * data.ndim
    view[channel_axis] = -1
    points = np.broadcast_to(found.zero_point.astype(np.int32), (data.shape[channel_axis],)).reshape(view)
    scale = np.broadcast_to(found.scale, (data.shape[channel_axis],)).astype(np.float32)
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
    """Return a constant bias as float64 (exact for dequantised int32), zeros if there is none; None: not constant."""
    if not value:
        return np.zeros(channels, np.float64)
    if value in ctx.constants:
        return ctx.constants[value].astype(np.float64).reshape(-1)
    found = ctx.dequantised.get(value)
    if found is None or found.value not in ctx.constants:
        return None
    integers = ctx.constants[found.value].astype(np.float64).reshape(-1)
    return (integers - found.zero_point) * found.scale.astype(np.float64)
