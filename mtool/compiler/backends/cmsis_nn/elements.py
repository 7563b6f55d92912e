"""Sums and products of elements, and Softmax, by CMSIS-NN."""

import math

import numpy as np

from mtool.compiler.backends.cmsis_nn import arithmetic
from mtool.compiler.backends.cmsis_nn.call import Call, listed
from mtool.compiler.backends.cmsis_nn.functions import function_of
from mtool.compiler.backends.cmsis_nn.library import Library
from mtool.compiler.backends.interface import Region
from mtool.compiler.backends.operation import Operation
from mtool.compiler.kernels.interpolation import exponentials, reciprocals
from mtool.compiler.kernels.scaling import fixed_multiplier

_SHIFTS = {False: 20, True: 15}
"""By how many bits the operands of a sum are shifted to the left; of int16."""


def softmax(operation: Operation, library: Library, region: Region) -> Call:
    """Softmax over the last dimension: arm_softmax_s8, or arm_softmax_s16 with tables."""
    x = operation.operand(0)
    columns = x.shape[-1]
    rows = math.prod(x.shape) // columns
    if arithmetic.is_wide(operation):
        multiplier, shift = fixed_multiplier(arithmetic.scale_of(x) / (10.0 / 65535.0))
        lines = [
            "const cmsis_nn_softmax_lut_s16 tables = {exponentials, reciprocals};",
            f"arm_softmax_s16(input0, {rows}, {columns}, {multiplier}, {shift}, &tables, output0);",
        ]
        tables = {"exponentials": exponentials().astype(np.int16), "reciprocals": reciprocals().astype(np.int16)}
        layouts = {"exponentials": "of -10 to 0", "reciprocals": "1 / (1 + x), of 0 to 1"}
        return Call(lines, ["arm_softmax_s16"], tables, layouts)
    scale = min(arithmetic.scale_of(x) * (1 << 26), 2.0**31 - 1)
    multiplier, shift = fixed_multiplier(scale)
    least = -math.floor(((1 << 5) - 1) * (1 << 26) / (1 << shift))
    return Call(
        [f"arm_softmax_s8(input0, {rows}, {columns}, {multiplier}, {shift}, {least}, output0);"], ["arm_softmax_s8"]
    )


def add(operation: Operation, library: Library, region: Region) -> Call:
    """Add of two tensors of one shape: arm_elementwise_add_s8, arm_elementwise_add_s16."""
    one, other, output = operation.operand(0), operation.operand(1), operation.output
    wide = arithmetic.is_wide(operation)
    scales = arithmetic.scale_of(one), arithmetic.scale_of(other)
    unit = 2 * max(scales)
    numbers: list[int] = []
    for operand, scale in zip((one, other), scales, strict=True):
        numbers += [-arithmetic.zero_of(operand), *fixed_multiplier(scale / unit)]
    left = _SHIFTS[wide]
    result = fixed_multiplier(unit / float(np.float32(1 << left) * np.float32(arithmetic.scale_of(output))))
    behind = [arithmetic.zero_of(output), *result, *arithmetic.limits(operation), output.type.count]
    function = function_of(operation)
    lines = [
        f"{function}({_operands(operation)}, {listed(numbers)}, {left},",
        f"    output0, {listed(behind)});",
    ]
    return Call(lines, [function])


def multiply(operation: Operation, library: Library, region: Region) -> Call:
    """Mul of two tensors of one shape: arm_elementwise_mul_s8, arm_elementwise_mul_s16."""
    one, other, output = operation.operand(0), operation.operand(1), operation.output
    factor = np.float32(arithmetic.scale_of(one)) * np.float32(arithmetic.scale_of(other))
    by = fixed_multiplier(float(factor / np.float32(arithmetic.scale_of(output))))
    offsets = [-arithmetic.zero_of(one), -arithmetic.zero_of(other)]
    behind = [arithmetic.zero_of(output), *by, *arithmetic.limits(operation), output.type.count]
    function = function_of(operation)
    return Call([f"{function}({_operands(operation)}, {listed(offsets)}, output0, {listed(behind)});"], [function])


def _operands(operation: Operation) -> str:
    return "input0, input1" if operation.operand(0).value != operation.operand(1).value else "input0, input0"
