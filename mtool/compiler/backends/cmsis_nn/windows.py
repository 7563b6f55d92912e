"""Convolutions and pools by CMSIS-NN; those of one dimension are images of one row."""

import numpy as np

from mtool.compiler.backends.cmsis_nn import arithmetic
from mtool.compiler.backends.cmsis_nn.call import Call, Dims, Field, buffer, buffer_bytes, dims, flat, image, struct
from mtool.compiler.backends.cmsis_nn.functions import function_of, is_depthwise
from mtool.compiler.backends.cmsis_nn.library import Library
from mtool.compiler.backends.interface import Region
from mtool.compiler.backends.operation import Operation
from mtool.compiler.operators.sliding_window import Pool
from mtool.compiler.operators.window import Convolution, four_pads, pair


def convolution(operation: Operation, library: Library, region: Region) -> Call:
    """Conv of int8 or int16: arm_convolve_wrapper_s8 and its like, or arm_depthwise_conv_wrapper_s8."""
    attrs, context = operation.attrs, region.context
    assert isinstance(attrs, Convolution)
    x, weights, output = operation.operand(0), operation.operand(1), operation.output
    data = weights.data
    assert data is not None
    data = data[:, :, None, :] if data.ndim == 3 else data
    channels, inner, height, width = data.shape
    source, result = image(x.shape), image(output.shape)
    top, left, _, _ = four_pads(attrs.pads)
    strides, dilations = pair(attrs.strides, 1), pair(attrs.dilations, 1)
    apart, wide = is_depthwise(operation), arithmetic.is_wide(operation)
    low, high = arithmetic.limits(operation)
    by, shifts = arithmetic.multipliers(arithmetic.scales_of(operation, channels))
    params: dict[str, Field] = {
        "input_offset": -arithmetic.zero_of(x),
        "output_offset": arithmetic.zero_of(output),
        **({"ch_mult": channels // source[3]} if apart else {}),
        "stride": (strides[1], strides[0]),
        "padding": (left, top),
        "dilation": (dilations[1], dilations[0]),
        "activation": (low, high),
    }
    kernel: Dims = (1, height, width, channels) if apart else (channels, height, width, inner)
    packed = data.transpose(2, 3, 0, 1)[..., 0] if apart else data.transpose(0, 2, 3, 1)
    kind = "dw_conv" if apart else "conv"
    function = function_of(operation)
    size = buffer_bytes(library, context, function, flat(params), source, kernel, result)
    narrow = wide and not apart and _has_narrow_sums(region)
    bias, offsets = "bias", arithmetic.bias_of(operation, channels)
    lines = [
        *buffer(size),
        *struct(f"cmsis_nn_{kind}_params params", params),
        "const cmsis_nn_per_channel_quant_params by = {",
        "    (int32_t *)(uintptr_t)multipliers, (int32_t *)(uintptr_t)shifts",
        "};",
        *dims(input_dims=source, filter_dims=kernel, bias_dims=(1, 1, 1, channels), output_dims=result),
    ]
    if wide and not apart and library.declares("cmsis_nn_bias_data"):
        lines.append(f"const cmsis_nn_bias_data offsets = {{bias, {'true' if narrow else 'false'}}};")
        bias = "&offsets"
    lines += [
        f"{function}(&context, &params, &by, &input_dims, input0, &filter_dims, weights, &bias_dims, {bias},",
        "    &output_dims, output0);",
    ]
    layout = "height, width, channel" if apart else "output channel, height, width, input channel"
    return Call(
        lines,
        [function],
        {
            "weights": np.ascontiguousarray(packed),
            "bias": offsets.astype(np.int64) if wide and not narrow else offsets,
            "multipliers": by,
            "shifts": shifts,
        },
        {
            "weights": layout,
            "bias": "one an output channel",
            "multipliers": "one an output channel, 31 bits behind the point",
            "shifts": "one an output channel, to the left",
        },
        size,
    )


def _has_narrow_sums(region: Region) -> bool:
    """Whether sums of int16 have 32 bits, since their bias has: they are scaled by multipliers of 31 bits then."""
    nodes = region.body.nodes if region.body is not None else ()
    return any(node.op == "Rescale" for node in nodes)


def pool(operation: Operation, library: Library, region: Region) -> Call:
    """Pool of int8 or int16: arm_avgpool_s8, arm_max_pool_s8 and their like."""
    attrs = operation.attrs
    assert isinstance(attrs, Pool)
    source, result = image(operation.operand(0).shape), image(operation.output.shape)
    top, left, _, _ = four_pads(attrs.pads)
    strides, kernel = pair(attrs.strides, 1), pair(attrs.kernel, 1)
    function, size = function_of(operation), 0
    if attrs.kind == "average":
        size = buffer_bytes(library, region.context, function, result[2], source[3])
    params: dict[str, Field] = {
        "stride": (strides[1], strides[0]),
        "padding": (left, top),
        "activation": arithmetic.limits(operation),
    }
    lines = [
        *buffer(size),
        *struct("cmsis_nn_pool_params params", params),
        *dims(input_dims=source, filter_dims=(1, *kernel, 1), output_dims=result),
        f"{function}(&context, &params, &input_dims, input0, &filter_dims, &output_dims, output0);",
    ]
    return Call(lines, [function], buffer_bytes=size)
