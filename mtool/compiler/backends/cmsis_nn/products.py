"""Matrix products by CMSIS-NN: by constants, and of two variables."""

import math

import numpy as np

from mtool.compiler.backends.cmsis_nn import arithmetic
from mtool.compiler.backends.cmsis_nn.call import Call, Dims, Field, dims, has_helium, struct
from mtool.compiler.backends.cmsis_nn.functions import function_of
from mtool.compiler.backends.cmsis_nn.library import Library
from mtool.compiler.backends.interface import Region
from mtool.compiler.backends.operation import Operation
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.scaling import fixed_multiplier


def product(operation: Operation, library: Library, region: Region) -> Call:
    """Gemm and MatMul."""
    return (_dense if operation.operand(1).is_constant else _batched)(operation, region)


def rows_of(operation: Operation) -> Array:
    """Return the weights of a matrix product as one row an output."""
    data = operation.operand(1).data
    assert data is not None
    is_transposed = bool(getattr(operation.attrs, "transB", 0))
    return np.ascontiguousarray(data if is_transposed else data.T)


def _dense(operation: Operation, region: Region) -> Call:
    """By constants: arm_fully_connected_s8, arm_fully_connected_per_channel_s8 or arm_fully_connected_s16."""
    x, output = operation.operand(0), operation.output
    packed = rows_of(operation)
    count, columns = packed.shape
    batch, offset = math.prod(x.shape) // columns, -arithmetic.zero_of(x)
    wide, several = arithmetic.is_wide(operation), not operation.operand(1).is_per_tensor
    bias = arithmetic.bias_of(operation, count)
    params: dict[str, Field] = {
        "input_offset": offset,
        "filter_offset": 0,
        "output_offset": arithmetic.zero_of(output),
        "activation": arithmetic.limits(operation),
    }
    constants = {"weights": packed, "bias": bias.astype(np.int64) if wide else bias}
    layouts = {"weights": "output, input", "bias": "one an output"}
    where = "{NULL, 0}"
    if has_helium(region.context) and not wide:
        constants["sums"] = (packed.astype(np.int64).sum(1) * offset + bias).astype(np.int32)
        layouts["sums"] = "the bias, and the sum of each row times the input's offset"
        where = f"{{(void *)(uintptr_t)sums, {4 * count}}}"
    scales = arithmetic.product_scales(operation)
    lines = [f"const cmsis_nn_context context = {where};", *struct("cmsis_nn_fc_params params", params)]
    if several:
        constants["multipliers"], constants["shifts"] = arithmetic.multipliers(scales)
        layouts |= {"multipliers": "one an output, 31 bits behind the point", "shifts": "one an output, to the left"}
        lines += [
            "const cmsis_nn_per_channel_quant_params by = {",
            "    (int32_t *)(uintptr_t)multipliers, (int32_t *)(uintptr_t)shifts",
            "};",
        ]
    else:
        multiplier, shift = fixed_multiplier(scales[0])
        lines += struct("cmsis_nn_per_tensor_quant_params by", {"multiplier": multiplier, "shift": shift})
    function = function_of(operation)
    lines += [
        *dims(
            input_dims=(batch, 1, 1, columns),
            filter_dims=(columns, 1, 1, count),
            bias_dims=(1, 1, 1, count),
            output_dims=(batch, 1, 1, count),
        ),
        f"{function}(&context, &params, &by, &input_dims, input0, &filter_dims, weights, &bias_dims, bias,",
        "    &output_dims, output0);",
    ]
    return Call(lines, [function], constants, layouts)


def _batched(operation: Operation, region: Region) -> Call:
    """Of two variables: arm_batch_matmul_s8, which reads the second transposed."""
    one, other, output = operation.operand(0), operation.operand(1), operation.output
    *batch, rows, columns = one.shape
    count, parts = other.shape[-1], math.prod(batch)
    multiplier, shift = fixed_multiplier(arithmetic.product_scales(operation)[0])
    low, high = arithmetic.limits(operation)
    offsets = -arithmetic.zero_of(one), -arithmetic.zero_of(other), arithmetic.zero_of(output)
    sums = -(-4 * count // 16) * 16 if has_helium(region.context) else 0
    left: Dims = (1, parts, rows, columns)
    source = "input1" if one.value != other.value else "input0"
    lines = [
        f"const cmsis_nn_context context = {{{'scratch' if sums else 'NULL'}, {sums}}};",
        "const cmsis_nn_bmm_params params = {",
        f"    false, true, {{{', '.join(map(str, offsets))}, {{{low}, {high}}}}}",
        "};",
        *struct("cmsis_nn_per_tensor_quant_params by", {"multiplier": multiplier, "shift": shift}),
        *dims(left_dims=left, right_dims=(1, parts, count, columns), output_dims=(1, parts, rows, count)),
        f"int8_t *turned = (int8_t *)(scratch + {sums});",
        f"for (int32_t part = 0; part < {parts}; ++part) {{",
        f"    for (int32_t row = 0; row < {columns}; ++row) {{",
        f"        for (int32_t column = 0; column < {count}; ++column) {{",
        f"            turned[(part * {count} + column) * {columns} + row] =",
        f"                {source}[(part * {columns} + row) * {count} + column];",
        "        }",
        "    }",
        "}",
        "arm_batch_matmul_s8(&context, &params, &by, &left_dims, input0, &right_dims, turned, &output_dims, output0);",
    ]
    return Call(lines, ["arm_batch_matmul_s8"], buffer_bytes=sums + other.type.count)
