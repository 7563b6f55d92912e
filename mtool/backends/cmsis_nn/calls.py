"""The C of CMSIS-NN's calls, one function a kind of operator."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mtool.backends.cmsis_nn import arithmetic
from mtool.backends.cmsis_nn.library import FOLDER, Library
from mtool.backends.interface import Context, Product
from mtool.backends.operation import Operation
from mtool.ir.types import Array
from mtool.kernels.multipliers import fixed_multiplier
from mtool.lowerings.sliding_window import Pool
from mtool.lowerings.window import Convolution, four_pads, pair

Dims = tuple[int, int, int, int]
Field = int | tuple[int, int]
_SHIFT = 20  # of the operands of a sum


@dataclass(frozen=True)
class Call:
    """A call: its statements, the functions that it calls, the constants and the buffer that it needs."""

    lines: Sequence[str]
    functions: Sequence[str]
    constants: Mapping[str, Array] = field(default_factory=dict)
    layouts: Mapping[str, str] = field(default_factory=dict)
    buffer_bytes: int = 0

    def product(self, library: Library) -> Product:
        """Return it as what a backend makes of a region."""
        return Product(
            body="\n".join(f"    {line}" for line in self.lines),
            headers=(f"{FOLDER}/arm_nnfunctions.h",),
            files=library.files(self.functions),
            constants=self.constants,
            layouts=self.layouts,
            scratch_bytes=self.buffer_bytes,
            alignment=16 if self.buffer_bytes else 4,
        )


def convolution(operation: Operation, library: Library, context: Context) -> Call:
    """Conv of int8: arm_convolve_wrapper_s8, or arm_depthwise_conv_wrapper_s8 if each channel is by itself."""
    attrs = operation.attrs
    assert isinstance(attrs, Convolution)
    x, weights, output = operation.operand(0), operation.operand(1), operation.output
    data = weights.data
    assert data is not None
    data = data[:, :, None, :] if data.ndim == 3 else data
    channels, inner, height, width = data.shape
    image, result = _image(x.shape), _image(output.shape)
    top, left, _, _ = four_pads(attrs.pads)
    strides, dilations = pair(attrs.strides, 1), pair(attrs.dilations, 1)
    is_depthwise = attrs.group == image[3] > 1 and inner == 1
    low, high = arithmetic.limits(operation)
    by, shifts = arithmetic.multipliers(_scales(operation, channels))
    params: dict[str, Field] = {
        "input_offset": -arithmetic.zero_of(x),
        "output_offset": arithmetic.zero_of(output),
        **({"ch_mult": channels // image[3]} if is_depthwise else {}),
        "stride": (strides[1], strides[0]),
        "padding": (left, top),
        "dilation": (dilations[1], dilations[0]),
        "activation": (low, high),
    }
    kernel: Dims = (1, height, width, channels) if is_depthwise else (channels, height, width, inner)
    packed = data.transpose(2, 3, 0, 1)[..., 0] if is_depthwise else data.transpose(0, 2, 3, 1)
    kind = "dw_conv" if is_depthwise else "conv"
    function = "arm_depthwise_conv_wrapper_s8" if is_depthwise else "arm_convolve_wrapper_s8"
    size = library.buffer_bytes(f"{function}_get_buffer_size{_suffix(context)}", _flat(params), image, kernel, result)
    lines = [
        *_context(size),
        *_struct(f"cmsis_nn_{kind}_params params", params),
        "const cmsis_nn_per_channel_quant_params by = {",
        "    (int32_t *)(uintptr_t)multipliers, (int32_t *)(uintptr_t)shifts",
        "};",
        *_dims(input_dims=image, filter_dims=kernel, bias_dims=(1, 1, 1, channels), output_dims=result),
        f"{function}(&context, &params, &by, &input_dims, input0, &filter_dims, weights, &bias_dims, bias,",
        "    &output_dims, output0);",
    ]
    layout = "height, width, channel" if is_depthwise else "output channel, height, width, input channel"
    return Call(
        lines,
        [function],
        {
            "weights": np.ascontiguousarray(packed),
            "bias": _bias(operation, channels),
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


def dense(operation: Operation, library: Library, context: Context) -> Call:
    """Gemm and MatMul of int8 by constant weights: arm_fully_connected_s8."""
    x, weights, output = operation.operand(0), operation.operand(1), operation.output
    packed = rows_of(operation)
    columns = packed.shape[1]
    low, high = arithmetic.limits(operation)
    multiplier, shift = fixed_multiplier(product_scale(operation))
    bias = _bias(operation, len(packed))
    batch = math.prod(x.shape) // columns
    offset = -arithmetic.zero_of(x)
    params: dict[str, Field] = {
        "input_offset": offset,
        "filter_offset": -arithmetic.zero_of(weights),
        "output_offset": arithmetic.zero_of(output),
        "activation": (low, high),
    }
    constants = {"weights": packed, "bias": bias}
    layouts = {"weights": "output, input", "bias": "one an output"}
    if context.target.has_mve:
        constants["sums"] = (packed.astype(np.int64).sum(1) * offset + bias).astype(np.int32)
        layouts["sums"] = "the bias, and the sum of each row times the input's offset"
        where = f"{{(void *)(uintptr_t)sums, {4 * len(packed)}}}"
    else:
        where = "{NULL, 0}"
    lines = [
        f"const cmsis_nn_context context = {where};",
        *_struct("cmsis_nn_fc_params params", params),
        *_struct("cmsis_nn_per_tensor_quant_params by", {"multiplier": multiplier, "shift": shift}),
        *_dims(
            input_dims=(batch, 1, 1, columns),
            filter_dims=(columns, 1, 1, len(packed)),
            bias_dims=(1, 1, 1, len(packed)),
            output_dims=(batch, 1, 1, len(packed)),
        ),
        "arm_fully_connected_s8(&context, &params, &by, &input_dims, input0, &filter_dims, weights, &bias_dims, bias,",
        "    &output_dims, output0);",
    ]
    return Call(lines, ["arm_fully_connected_s8"], constants, layouts)


def pool(operation: Operation, library: Library, context: Context) -> Call:
    """Pool of int8: arm_avgpool_s8 or arm_max_pool_s8."""
    attrs = operation.attrs
    assert isinstance(attrs, Pool)
    image, result = _image(operation.operand(0).shape), _image(operation.output.shape)
    top, left, _, _ = four_pads(attrs.pads)
    strides, kernel = pair(attrs.strides, 1), pair(attrs.kernel, 1)
    low, high = arithmetic.limits(operation)
    is_mean = attrs.kind == "average"
    size = 0
    if is_mean:
        size = library.buffer_bytes(f"arm_avgpool_s8_get_buffer_size{_suffix(context)}", result[2], image[3])
    params: dict[str, Field] = {
        "stride": (strides[1], strides[0]),
        "padding": (left, top),
        "activation": (low, high),
    }
    function = "arm_avgpool_s8" if is_mean else "arm_max_pool_s8"
    lines = [
        *_context(size),
        *_struct("cmsis_nn_pool_params params", params),
        *_dims(input_dims=image, filter_dims=(1, *kernel, 1), output_dims=result),
        f"{function}(&context, &params, &input_dims, input0, &filter_dims, &output_dims, output0);",
    ]
    return Call(lines, [function], buffer_bytes=size)


def softmax(operation: Operation, library: Library, context: Context) -> Call:
    """Softmax of int8 over the last dimension: arm_softmax_s8."""
    x = operation.operand(0)
    columns = x.shape[-1]
    scale = min(arithmetic.scale_of(x) * (1 << 26), 2.0**31 - 1)
    multiplier, shift = fixed_multiplier(scale)
    least = -math.floor(((1 << 5) - 1) * (1 << 26) / (1 << shift))
    arguments = f"input0, {math.prod(x.shape) // columns}, {columns}, {multiplier}, {shift}, {least}, output0"
    return Call([f"arm_softmax_s8({arguments});"], ["arm_softmax_s8"])


def add(operation: Operation, library: Library, context: Context) -> Call:
    """Add of two int8 tensors of one shape: arm_elementwise_add_s8."""
    one, other, output = operation.operand(0), operation.operand(1), operation.output
    scales = arithmetic.scale_of(one), arithmetic.scale_of(other)
    unit = 2 * max(scales)
    low, high = arithmetic.limits(operation)
    numbers: list[int] = []
    for operand, scale in zip((one, other), scales, strict=True):
        numbers += [-arithmetic.zero_of(operand), *fixed_multiplier(scale / unit)]
    result = fixed_multiplier(unit / float(np.float32(1 << _SHIFT) * np.float32(arithmetic.scale_of(output))))
    behind = [arithmetic.zero_of(output), *result, low, high, math.prod(output.shape)]
    names = "input0, input1" if one.value != other.value else "input0, input0"
    lines = [
        f"arm_elementwise_add_s8({names}, {_listed(numbers)}, {_SHIFT},",
        f"    output0, {_listed(behind)});",
    ]
    return Call(lines, ["arm_elementwise_add_s8"])


def multiply(operation: Operation, library: Library, context: Context) -> Call:
    """Mul of two int8 tensors of one shape: arm_elementwise_mul_s8."""
    one, other, output = operation.operand(0), operation.operand(1), operation.output
    factor = np.float32(arithmetic.scale_of(one)) * np.float32(arithmetic.scale_of(other))
    by = fixed_multiplier(float(factor / np.float32(arithmetic.scale_of(output))))
    low, high = arithmetic.limits(operation)
    names = "input0, input1" if one.value != other.value else "input0, input0"
    offsets = [-arithmetic.zero_of(one), -arithmetic.zero_of(other)]
    behind = [arithmetic.zero_of(output), *by, low, high, math.prod(output.shape)]
    return Call(
        [f"arm_elementwise_mul_s8({names}, {_listed(offsets)}, output0, {_listed(behind)});"],
        ["arm_elementwise_mul_s8"],
    )


CALLS: Mapping[str, Callable[[Operation, Library, Context], Call]] = {
    "Conv": convolution, "Gemm": dense, "MatMul": dense, "Pool": pool, "Softmax": softmax, "Add": add, "Mul": multiply,
}  # fmt: skip
"""By the operator's name in ONNX."""


def rows_of(operation: Operation) -> Array:
    """Return the weights of a matrix product as one row an output."""
    data = operation.operand(1).data
    assert data is not None
    is_transposed = bool(getattr(operation.attrs, "transB", 0))
    return np.ascontiguousarray(data if is_transposed else data.T)


def product_scale(operation: Operation) -> float:
    """Return the scale of a matrix product's sums over its result's; TFLite multiplies the first two in float32."""
    x, weights = operation.operand(0), operation.operand(1)
    product = np.float32(arithmetic.scale_of(x)) * np.float32(arithmetic.scale_of(weights))
    return float(product) / arithmetic.scale_of(operation.output)


def _scales(operation: Operation, channels: int) -> list[float]:
    quant = operation.operand(1).quant
    assert quant is not None
    own = quant.scale if len(quant.scale) > 1 else quant.scale * channels
    x, output = arithmetic.scale_of(operation.operand(0)), arithmetic.scale_of(operation.output)
    return [x * one / output for one in own]


def _bias(operation: Operation, count: int) -> Array:
    if len(operation.inputs) < 3 or operation.inputs[2] is None:
        return np.zeros(count, np.int32)
    data = operation.operand(2).data
    assert data is not None
    return np.ascontiguousarray(np.broadcast_to(data.reshape(-1), (count,)).astype(np.int32))


def _image(shape: Sequence[int]) -> Dims:
    """Return batch, height, width, channels of an image, or of a sequence."""
    if len(shape) == 3:
        return shape[0], 1, shape[1], shape[2]
    batch, height, width, channels = shape
    return batch, height, width, channels


def _suffix(context: Context) -> str:
    return "_mve" if context.target.has_mve else "_dsp" if context.target.has_dsp else ""


def _context(size: int) -> list[str]:
    return [f"const cmsis_nn_context context = {{{'scratch' if size else 'NULL'}, {size}}};"]


def _dims(**dims: Dims) -> list[str]:
    return [
        f"const cmsis_nn_dims {name} = {{.n = {n}, .h = {h}, .w = {w}, .c = {c}}};"
        for name, (n, h, w, c) in dims.items()
    ]


def _struct(declared: str, fields: Mapping[str, Field]) -> list[str]:
    """Return the lines of a constant struct; a pair is a struct in it."""
    texts = {name: f"{{{_listed(one)}}}" if isinstance(one, tuple) else str(one) for name, one in fields.items()}
    return [f"const {declared} = {{", *(f"    .{name} = {text}," for name, text in texts.items()), "};"]


def _flat(fields: Mapping[str, Field]) -> list[int]:
    """Return the numbers of a struct in order."""
    return [number for one in fields.values() for number in (one if isinstance(one, tuple) else (one,))]


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
