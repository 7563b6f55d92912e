"""LSTM and SVDF of integers by CMSIS-NN, which changes their states in place.

Source: tflite-micro's kernels/cmsis_nn/unidirectional_sequence_lstm.cc and svdf.cc.
"""

import numpy as np

from mtool.compiler.backends.cmsis_nn import arithmetic
from mtool.compiler.backends.cmsis_nn.call import Call, Field, dims, struct
from mtool.compiler.backends.cmsis_nn.functions import function_of
from mtool.compiler.backends.cmsis_nn.library import Library
from mtool.compiler.backends.cmsis_nn.memory import Memory
from mtool.compiler.backends.interface import Region
from mtool.compiler.backends.operation import Operand, Operation
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.scaling import fixed_multiplier
from mtool.compiler.operators.whole_recurrent import IntegerLstm, IntegerSvdf

_UNIT = np.float32(2.0**-12)  # a step of a gate's sum


def lstm(operation: Operation, library: Library, region: Region) -> Call:
    """IntegerLstm: arm_lstm_unidirectional_s8."""
    attrs = operation.attrs
    assert isinstance(attrs, IntegerLstm)
    x, hidden, cell = (operation.operand(number) for number in range(3))
    *rows, new_hidden, new_cell = operation.outputs
    (images, width), memory = hidden.shape, Memory(region)
    temporary = [memory.take(2 * images * width) for _ in range(2)]
    states = [memory.kept(cell, new_cell, "cell"), memory.kept(hidden, new_hidden, "hidden")]
    # of one step the state alone is read
    made = memory.of(rows[0], "rows") if rows else memory.array("rows", "int8_t", images * width)
    gates, constants, layouts = [], dict[str, Array](), dict[str, str]()
    for number, gate in enumerate(("input", "forget", "cell", "output")):
        weights, recurrent, bias = (operation.operand(3 + 3 * number + part) for part in range(3))
        constants[f"{gate}_weights"], layouts[f"{gate}_weights"] = _data(weights), "output, input"
        constants[f"{gate}_bias"] = _offsets(weights, x) + _data(bias)
        layouts[f"{gate}_bias"] = "one an output, less the weights times the input's zero point"
        constants[f"{gate}_recurrent"], layouts[f"{gate}_recurrent"] = _data(recurrent), "output, input"
        constants[f"{gate}_offsets"] = _offsets(recurrent, hidden)
        layouts[f"{gate}_offsets"] = "the recurrent weights times the state's zero point, less than 0"
        by = [*_gate_multiplier(weights, x), f"{gate}_weights", f"{gate}_bias"]
        by += [*_gate_multiplier(recurrent, hidden), f"{gate}_recurrent", f"{gate}_offsets", "NULL"]
        by.append("ARM_TANH" if gate == "cell" else "ARM_SIGMOID")
        gates.append(f"    .{gate}_gate = {{{', '.join(map(str, by))}}},")
    params = struct("cmsis_nn_lstm_params params", _lstm_fields(operation, attrs))
    lines = [
        *memory.lines,
        *params[:-1],
        *gates,
        params[-1],
        f"cmsis_nn_lstm_context buffers = {{{', '.join((*temporary, *states))}}};",
        f"arm_lstm_unidirectional_s8({memory.names[x.value]}, {made}, &params, &buffers);",
    ]
    return Call(lines, ["arm_lstm_unidirectional_s8"], constants, layouts, memory.size)


def _lstm_fields(operation: Operation, attrs: IntegerLstm) -> dict[str, Field]:
    """Return the parameters of an LSTM but for those of its gates."""
    x, hidden = operation.operand(0), operation.operand(1)
    scale = np.float32(2.0**-15 / attrs.inner_scale * 2.0**-15)
    forget, new, out = (fixed_multiplier(by) for by in (2.0**-15, 2.0 ** (-15 - attrs.point), float(scale)))
    return {
        "time_major": attrs.time_major,
        "batch_size": hidden.shape[0],
        "time_steps": attrs.steps,
        "input_size": x.shape[-1],
        "hidden_size": hidden.shape[1],
        "input_offset": -arithmetic.zero_of(x),
        "forget_to_cell_multiplier": forget[0],
        "forget_to_cell_shift": forget[1],
        "input_to_cell_multiplier": new[0],
        "input_to_cell_shift": new[1],
        "cell_clip": attrs.clip,
        "cell_scale_power": attrs.point - 15,
        "output_multiplier": out[0],
        "output_shift": out[1],
        "output_offset": attrs.inner_zero,
    }


def svdf(operation: Operation, library: Library, region: Region) -> Call:
    """IntegerSvdf: arm_svdf_s8, or arm_svdf_state_s16_s8 with a state of int16."""
    attrs = operation.attrs
    assert isinstance(attrs, IntegerSvdf)
    x, state, features, time = (operation.operand(number) for number in range(4))
    result, last = operation.outputs
    (images, numbers), (filters, steps) = x.shape, time.shape
    units, wide, memory = filters // attrs.rank, state.dtype.label == "int16", Memory(region)
    single = [np.float32(arithmetic.scale_of(one)) for one in (x, features, state, time, result)]
    sums, totals = memory.take(4 * images * filters), memory.take(4 * images * units)
    kept, made = memory.kept(state, last, "kept"), memory.of(result, "made")
    bias = operation.inputs[4] if len(operation.inputs) > 4 else None
    constants = {
        "features": _data(features),
        "time": _data(time),
        "bias": np.zeros(units, np.int32) if bias is None else _data(bias),
    }
    layouts = {"features": "filter, number", "time": "filter, call", "bias": "one a unit"}
    lines, contexts = [*memory.lines], "&of_filters, &of_units"
    if not wide:
        constants["sums"] = _offsets(features, x)
        layouts["sums"] = "the weights of each filter times the input's zero point, less than 0"
        lines.append(f"const cmsis_nn_context context = {{(void *)(uintptr_t)sums, {4 * filters}}};")
        contexts = f"&context, {contexts}"
    function = function_of(operation)
    params: dict[str, Field] = {
        "rank": attrs.rank,
        "input_offset": arithmetic.zero_of(x),
        "output_offset": arithmetic.zero_of(result),
        "input_activation": state.dtype.limits,
        "output_activation": result.dtype.limits,
    }
    lines += [
        f"const cmsis_nn_context of_filters = {{{sums}, {4 * images * filters}}};",
        f"const cmsis_nn_context of_units = {{{totals}, {4 * images * units}}};",
        *struct("cmsis_nn_svdf_params params", params),
        *_by("before", float(single[0] * single[1] / single[2])),
        *_by("behind", float(single[2] * single[3] / single[4])),
        *dims(
            input_dims=(images, numbers, 1, 1),
            state_dims=(images, steps * filters, 1, 1),
            feature_dims=(filters, numbers, 1, 1),
            time_dims=(filters, steps, 1, 1),
            bias_dims=(units, 1, 1, 1),
            output_dims=(images, units, 1, 1),
        ),
        f"{function}({contexts}, &params, &before, &behind, &input_dims, {memory.names[x.value]}, &state_dims,",
        f"    {kept}, &feature_dims, features, &time_dims, time, &bias_dims, bias, &output_dims, {made});",
    ]
    return Call(lines, [function], constants, layouts, memory.size)


def _by(name: str, scale: float) -> list[str]:
    multiplier, shift = fixed_multiplier(scale)
    return struct(f"cmsis_nn_per_tensor_quant_params {name}", {"multiplier": multiplier, "shift": shift})


def _data(operand: Operand) -> Array:
    assert operand.data is not None
    return np.ascontiguousarray(operand.data)


def _offsets(weights: Operand, x: Operand) -> Array:
    """Return the sum of each row of weights times what is added to the numbers that they meet."""
    found: Array = (-arithmetic.zero_of(x) * _data(weights).astype(np.int64).sum(1)).astype(np.int32)
    return found


def _gate_multiplier(weights: Operand, x: Operand) -> tuple[int, int]:
    scales = np.float32(arithmetic.scale_of(weights)) * np.float32(arithmetic.scale_of(x))
    return fixed_multiplier(float(np.float32(scales) / _UNIT))
