"""Convolution (ai.onnx Conv 1, 11, 22), one and two dimensions, grouped, float and integer.

Internal form `conv2d`: inputs x[N,H,W,C], w[O,KH,KW,C/group] (constant), bias[O] (float32 or int32,
the input zero point folded in), then whatever the epilogue reads. The output is [N,OH,OW,O].
"""

import numpy as np

from mtool.ir import DType, Expr, Graph, Node
from mtool.ir.expr import acc, axis, call, const, load
from mtool.ir.types import Array
from mtool.ops import window
from mtool.ops.conv2d import (
    dsp16_columns,
    dsp16_taps,
    dsp_columns,
    dsp_plane,
    dsp_taps,
    f32_columns,
    f32_plane,
    int_columns,
    int_plane,
    mve16_columns,
    mve16_taps,
    mve_columns,
    mve_f32_columns,
    mve_f32_taps,
    mve_ring,
    mve_taps,
)
from mtool.ops.conv2d.schedules import SCHEDULES as PORTABLE
from mtool.ops.conv2d.schedules import Conv
from mtool.ops.lowering import NCHW_OF_NHWC, NHWC_OF_NCHW, Dequantised, Lower, Lowering
from mtool.ops.scaling import are_whole
from mtool.ops.schedule import KernelOp, Schedule


def _label(node: Node, graph: Graph) -> str:
    conv = Conv.of(node, graph)
    kind = "depthwise" if conv.is_depthwise else "conv2d"
    stride = f" s{conv.stride[0]}" if conv.stride != (1, 1) else ""
    return f"{kind} {conv.kernel[0]}x{conv.kernel[1]}{stride}"


def _macs(node: Node, graph: Graph) -> int:
    if "macs" in node.attrs:  # channels were removed: those of the model as given
        return int(node.attrs["macs"])
    conv = Conv.of(node, graph)
    return conv.batch * conv.pixels * conv.out_channels * conv.depth


SCHEDULES: tuple[Schedule, ...] = (
    *PORTABLE,
    int_columns.Columns(),
    int_plane.Plane(),
    dsp_columns.Pointwise(),
    dsp_columns.Patch(),
    dsp_plane.Plane(),
    dsp_taps.Taps(),
    dsp16_columns.Pointwise(),
    dsp16_columns.Patch(),
    dsp16_taps.Taps(),
    mve_columns.Pointwise(),
    mve_columns.Patch(),
    mve_ring.Ring(),
    mve_taps.Taps(),
    mve16_columns.Pointwise(),
    mve16_columns.Patch(),
    mve16_taps.Taps(),
    f32_columns.Columns(),
    f32_plane.Plane(),
    mve_f32_columns.Columns(),
    mve_f32_taps.Taps(),
)
KERNEL = KernelOp(_label, _macs, SCHEDULES)


def _lower(ctx: Lowering, node: Node) -> None:
    x, w = node.inputs[0], node.inputs[1]
    given = node.inputs[2] if len(node.inputs) > 2 else ""
    constant = all(not value or constant_value(ctx, value) is not None for value in (w, given))
    is_float = ctx.types[x].dtype is DType.FLOAT32
    if not constant or len(node.attrs["kernel"]) > 2 or not is_float or not ctx.types[x].count:
        window.conv(ctx, node, x, w, given, node.outputs[0])
        return
    group = node.attrs["group"]
    result = ctx.types[node.outputs[0]]
    integer = ctx.integers(x, wide=True)
    weights = integer_weights(ctx, w, 0)
    bias = float_bias(ctx, given, result.shape[1])
    if integer is not None and weights is not None and bias is not None:
        data, w_scale = weights
        source = integer.value
    else:
        found, integer = constant_value(ctx, w), None
        assert found is not None and bias is not None
        data, w_scale = found, None
        source = x
    if data.ndim == 3:  # one spatial dimension: a height of 1
        data = data[:, :, None, :]
    kernel, strides, pads, dilations = _two_dimensions(node)
    shape = ctx.types[source].shape
    if len(shape) == 3:
        source = ctx.view(node, source, (shape[0], shape[1], 1, shape[2]))
    nhwc = ctx.transpose(node, source, NHWC_OF_NCHW)
    four = (result.shape[0], *result.shape[1:]) if len(result.shape) == 4 else (*result.shape[:2], 1, result.shape[2])
    out_shape = (four[0], four[2], four[3], four[1])
    filters = np.ascontiguousarray(data.transpose(0, 2, 3, 1))
    attrs = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations, "group": group}
    epilogue, inputs, extra = epilogue_of(ctx, node, filters, bias, integer, w_scale, axis_number=3)
    output = ctx.value(f"{node.outputs[0]}.nhwc", DType.FLOAT32, out_shape)
    ctx.node("conv2d", [nhwc, *inputs], [output], {**attrs, **extra, "epilogue": epilogue}, like=node)
    if len(result.shape) == 4:
        ctx.transpose(node, output, NCHW_OF_NHWC, node.outputs[0])
    else:
        ctx.view(node, ctx.transpose(node, output, NCHW_OF_NHWC), result.shape, node.outputs[0])


def _two_dimensions(node: Node) -> tuple[tuple[int, ...], ...]:
    kernel, strides, pads, dilations = (node.attrs[key] for key in ("kernel", "strides", "pads", "dilations"))
    if len(kernel) == 1:
        return (1, *kernel), (1, *strides), (0, pads[0], 0, pads[1]), (1, *dilations)
    return kernel, strides, pads, dilations


def constant_value(ctx: Lowering, value: str) -> Array | None:
    """Return a constant float value, dequantised if it is stored as integers."""
    if value in ctx.constants:
        return ctx.constants[value]
    found = ctx.dequantised.get(value)
    if found is None or found.value not in ctx.constants:
        return None
    data = ctx.constants[found.value]
    view = [1] * data.ndim
    if found.axis is not None:
        view[found.axis] = -1
    scale, point = found.scale.reshape(view or -1), found.zero_point.reshape(view or -1)
    return ((data.astype(np.int32) - point) * scale).astype(np.float32).reshape(data.shape)


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
    points = np.broadcast_to(found.zero_point, (data.shape[channel_axis],)).reshape(view)
    centred = data.astype(np.int32) - points
    if centred.min(initial=0) < -(2**15) or centred.max(initial=0) >= 2**15:
        return None
    fits = centred.min(initial=0) >= -128 and centred.max(initial=0) <= 127
    scale = np.broadcast_to(found.scale, (data.shape[channel_axis],)).astype(np.float32)
    return centred.astype(np.int8 if fits else np.int16), scale


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


def epilogue_of(
    ctx: Lowering,
    node: Node,
    filters: Array,
    bias: Array | None,
    integer: Dequantised | None,
    w_scale: Array | None,
    axis_number: int,
) -> tuple[Expr, list[str], dict[str, object]]:
    """Return the epilogue, the constant inputs (weights, bias, scale) and further attributes of a kernel.

    `filters` has the output channels first. Integer: acc is an int32 (an int64 if sums of 16-bit activations may leave
    that), the real value is acc * (x_scale * w_scale[channel]), a float32 product as in onnxruntime. A bias that is
    no whole number of these steps is added to it as a float; "float_bias" says whether it may be rounded to them
    where the result is an integer (mtool.passes.fold_bias).
    """
    weights = ctx.constant(f"{node.name}/weights", filters)
    if integer is None or w_scale is None:
        data = np.zeros(filters.shape[0]) if bias is None else bias
        inputs = [weights, ctx.constant(f"{node.name}/bias", data.astype(np.float32))]
        return acc(DType.FLOAT32), inputs, {"pad_value": 0}
    assert bias is not None
    zero_point = int(integer.zero_point.reshape(-1)[0])
    x_scale = integer.scale.reshape(-1)[0].astype(np.float32)
    wide = filters.astype(np.int64).reshape(filters.shape[0], -1)
    kind = ctx.types[integer.value].dtype
    if kind.size > 1:
        w_scale = _settled(w_scale, wide)
    low, high = kind.limits
    if kind.size > 1:
        reach = _reach(wide, low - zero_point, high - zero_point)
    else:
        reach = np.abs(wide).sum(axis=1) * max(high - zero_point, zero_point - low)
    exact = np.abs(bias) / (np.float64(x_scale) * w_scale.astype(np.float64))
    if kind.size == 1 and (reach + exact).max(initial=0) > 2**31:
        w_scale = _settled(w_scale, wide)
    scale = (x_scale * w_scale).astype(np.float32)
    exact = bias / (np.float64(x_scale) * w_scale.astype(np.float64))
    steps = np.rint(exact)
    fits = kind.size > 1 or (reach + np.abs(steps)).max(initial=0) <= 2**31
    apart = not (fits and are_whole(exact))
    bound = (reach + (np.abs(steps) if fits else 0)).max(initial=0)
    total = DType.INT64 if kind.size > 1 and bound >= 2**31 else DType.INT32
    least, most = total.limits if total is DType.INT32 else (-(2.0**62), 2.0**62)
    folded = (0 if apart else steps) - zero_point * wide.sum(axis=1)
    folded = np.clip(folded, least, most).astype(total.numpy)
    inputs = [weights, ctx.constant(f"{node.name}/bias", folded)]
    real = call("cast", acc(total), dtype=DType.FLOAT32)
    if np.unique(scale).size == 1:
        factor = const(scale[0].item(), DType.FLOAT32)
    else:
        inputs.append(ctx.constant(f"{node.name}/scale", scale))
        factor = load(3, DType.FLOAT32, (axis(axis_number),))
    made = call("mul", real, factor)
    attrs: dict[str, object] = {"pad_value": zero_point, "acc_bound": int(bound)}
    if apart:
        inputs.append(ctx.constant(f"{node.name}/float_bias", bias.astype(np.float32)))
        made = call("add", made, load(len(inputs), DType.FLOAT32, (axis(axis_number),)))
        attrs["float_bias"] = fits
    return made, inputs, attrs


def _reach(wide: Array, low: int, high: int) -> Array:
    """Return how far from 0 the sum of each row's products with numbers in [low, high] may be, of each part of it too.

    What is not yet summed stands in the bias as if its inputs were 0, which is a number that they may be.
    """
    most = np.maximum(wide * low, wide * high).sum(axis=1)
    least = np.minimum(wide * low, wide * high).sum(axis=1)
    reach: Array = np.maximum(most, -least)
    return reach


def _settled(w_scale: Array, wide: Array) -> Array:
    """Return the scales with those of channels without weights as large as the others'.

    Quantisers give a dead channel a tiny scale, with which its bias is more steps than 32 bits have.
    """
    live = wide.any(axis=1)
    settled: Array = np.where(live, w_scale, w_scale[live].max(initial=0)) if live.any() else w_scale
    return settled


LOWERINGS: dict[str, Lower] = {"Conv": _lower}
