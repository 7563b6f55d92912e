"""LSTM, RNN and SVDF, in one direction or both, on real numbers or integers, over a sequence or for one step.

Source: tensorflow/lite/kernels/lstm_eval.cc, basic_rnn.cc. ONNX's LSTM has no clipped cell, projection or normalized
gates, so a step is a few nodes, and a Scan repeats it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
import onnx
import tflite
from onnx import helper, numpy_helper

from mtool.base import plural
from mtool.base.frozen import frozen
from mtool.compiler.frontend.tflite.elementwise import power_of_2
from mtool.compiler.frontend.tflite.products import weights
from mtool.compiler.frontend.tflite.rescaling import centred_of, mean_of, rescale_to, unscaled, whole
from mtool.compiler.frontend.tflite.schema import VARIABLE, Tensor
from mtool.compiler.frontend.tflite.translation import State, Translation
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.epilogue import real_numbers
from mtool.compiler.operators.problems import Unsupported

Gates = Mapping[str, int]
"""Numbers of the inputs with a tensor for each gate; an input gate without weights is 1 less the forget gate."""


def _gates(first: int) -> Gates:
    """Four inputs in a row."""
    return {name: first + number for number, name in enumerate(("input", "forget", "cell", "output"))}


def _peepholes(first: int) -> Gates:
    """Return the inputs of the peephole weights; the cell gate has none."""
    return {name: first + number for number, name in enumerate(("input", "forget", "output"))}


def _present(t: Translation, gates: Gates) -> list[int]:
    """Return the inputs of the gates that have such a tensor."""
    return [index for index in gates.values() if t.has(index)]


@frozen
class Operands:
    """Numbers of an LSTM's inputs. A projection's bias follows its weights."""

    weights: Gates
    recurrent: Gates
    peepholes: Gates
    biases: Gates
    projection: int
    state: int
    cell: int
    norms: Gates = field(default_factory=dict)

    def gates(self, t: Translation, sums: str) -> dict[str, str]:
        """Split the sums of all gates; return those of each gate, by name."""
        names = [name for name, index in self.weights.items() if t.has(index)]
        return dict(zip(names, t.several("Split", len(names), sums, axis=1, num_outputs=len(names)), strict=True))

    def is_normalised(self, t: Translation) -> bool:
        """Whether the sums of its gates are normalized."""
        return bool(self.norms) and t.has(self.norms["output"])


ONE = Operands(_gates(1), _gates(5), _peepholes(9), _gates(12), 16, 18, 19, _gates(20))
FORWARD = Operands(_gates(1), _gates(5), _peepholes(9), _gates(12), 16, 35, 36)
BACKWARD = Operands(_gates(18), _gates(22), _peepholes(26), _gates(29), 33, 37, 38)
Step = Callable[[str, Sequence[str]], Sequence[str]]
"""A step: from the input and the states to the next states, of which the first is also the result."""


def state_of(t: Translation, index: int, shape: tuple[int, ...], dtype: str) -> State:
    """Return the state at an input of the current operator.

    Raises:
        Unsupported: the input is not a variable, or has the wrong type or shape.
    """
    number = t.op.inputs[index] if t.has(index) else -1
    tensor = t.tensors[number]
    if number < 0 or tensor.problem != VARIABLE:
        raise Unsupported(f"its input {index}, a state, is not a variable")
    if tensor.dtype.name != dtype or tensor.shape[1:] != shape[1:]:
        expected = f"{dtype}{list(shape)}"
        raise Unsupported(f"its state {tensor.name!r} is {tensor.dtype}{list(tensor.shape)}; expected {expected}")
    return State(t, number, replace(tensor, problem="", shape=shape), lambda: t.names[number])


def sizes(t: Translation) -> tuple[int, int, int]:
    """Return the numbers of steps, batches and features of the input."""
    shape = t.shape(0)
    if len(shape) not in (2, 3):
        raise Unsupported(f"its input has {plural.count(len(shape), 'dimension')}; expected 2 or 3")
    if len(shape) == 2:
        return 1, *shape
    first, second, count = shape
    return (first, second, count) if t.op.option("TimeMajor") else (second, first, count)


def over_time(t: Translation, value: str, states: Sequence[State], step: Step, *, backward: bool = False) -> str:
    """Append the steps over the input's rows, and set the states to their last values; return the results.

    Args:
        t: the current operator.
        value: its input [steps, batches, features] or [batches, steps, features], or of one step.
        states: its variables.
        step: appends the nodes of a step.
        backward: from the last row to the first.
    """
    steps, images, count = sizes(t)
    if steps == 1:
        last = step(t("Reshape", value, (images, count)), [state.name for state in states])
        for state, new in zip(states, last, strict=True):
            state.put(new)
        return _one_step(t, last[0], states[0].tensor.shape[-1])
    turned = not t.op.option("TimeMajor")
    body = _body(t, states, step, count)
    inputs = [*(state.name for state in states), _turned(t, value, t.shape(0)) if turned else value]
    outputs = [t.unique(f"{t.names[t.op.outputs[0]]}/{stem}") for stem in (*("last" for _ in states), "rows")]
    attrs = {"scan_input_directions": [1], "scan_output_directions": [1]} if backward else {}
    t.nodes.append(helper.make_node("Scan", inputs, outputs, name=t.op.name, body=body, num_scan_inputs=1, **attrs))
    for state, new in zip(states, outputs, strict=False):
        state.put(new)
    return _turned(t, outputs[-1], (steps, images, states[0].tensor.shape[-1])) if turned else outputs[-1]


def _one_step(t: Translation, value: str, width: int) -> str:
    """Return a single step's results in the output's shape."""
    if len(t.shape(0)) == 2:
        return t("Identity", value)  # the state keeps its own name
    images = sizes(t)[1]
    return t("Reshape", value, (1, images, width) if t.op.option("TimeMajor") else (images, 1, width))


def _body(t: Translation, states: Sequence[State], step: Step, count: int) -> onnx.GraphProto:
    """Return a step as a graph with its own constants."""
    stem = t.names[t.op.outputs[0]]
    inside = [t.unique(f"{stem}/state") for _ in states]
    row = t.unique(f"{stem}/row")
    around, t.nodes = t.nodes, []
    try:
        last = [*step(row, inside)]
        last = [t("Identity", value) for value in (*last, last[0])]
        nodes = t.nodes
    finally:
        t.nodes = around
    read = dict.fromkeys(name for node in nodes for name in node.input if name in t.constants)
    images = states[0].tensor.shape[0]

    def info(name: str, tensor: Tensor, *shape: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(tensor.dtype), shape or tensor.shape)

    inputs = [info(name, state.tensor) for name, state in zip(inside, states, strict=True)]
    inputs.append(info(row, t.tensor(0), images, count))
    tensors = [*(state.tensor for state in states), states[0].tensor]
    outputs = [info(name, tensor) for name, tensor in zip(last, tensors, strict=True)]
    constants = [numpy_helper.from_array(t.constants[name], name) for name in read]
    return helper.make_graph(nodes, "step", inputs, outputs, constants)


def _turned(t: Translation, value: str, shape: Sequence[int]) -> str:
    """Swap the first two dimensions."""
    first, second, width = shape
    if 1 in (first, second):
        return t("Reshape", value, (second, first, width))
    return t("Transpose", value, perm=[1, 0, 2])


def real_activation(t: Translation, value: str) -> str:
    """Apply the fused activation, which may be a hyperbolic tangent here."""
    code = t.op.option("FusedActivationFunction")
    return t("Tanh", value) if code == tflite.ActivationFunctionType.TANH else t.activated(value, code)


def finish(t: Translation, value: str, shape: Sequence[int], index: int = 0) -> None:
    """Set the output to a value, with the given shape where the file leaves it open."""
    tensor = t.result(index)
    if tensor.allows(tuple(shape)):
        t.tensors[t.op.outputs[index]] = replace(tensor, shape=tuple(shape))
    t.put(value, index)


def _stacked(t: Translation, operands: Sequence[int], role: str) -> str:
    """Return the weights of several gates as one matrix of real numbers; a vector becomes a diagonal matrix."""
    tensors = [t.weights(index) for index in operands]
    if all(tensor.is_quantized and tensor.data is not None and tensor.data.ndim == 2 for tensor in tensors):
        kinds = {tensor.dtype for tensor in tensors}
        if len(kinds) == 1 and all(tensor.scale.size == 1 for tensor in tensors):
            data = np.concatenate([tensor.data for tensor in tensors if tensor.data is not None])
            rows = [tensor.shape[0] for tensor in tensors]
            scales, points = (
                np.repeat([getattr(tensor, name)[0] for tensor in tensors], rows) for name in ("scale", "zero_point")
            )
            return t.dequantize(t.constant(role, data), data.dtype, scales.astype(np.float32), points, 0)
    parts = [_real(t, index, role) for index in operands]
    return t.constant(role, np.concatenate([np.diag(data) if data.ndim == 1 else data for data in parts]), np.float32)


def _real(t: Translation, index: int, role: str) -> Array:
    """Return the real numbers of a constant input."""
    data, tensor = t.data(index, role), t.tensor(index)
    if data.dtype.kind != "f":
        if not tensor.is_quantized or tensor.scale.size != 1:
            raise Unsupported(
                f"its {role} are {data.dtype} with {plural.count(tensor.scale.size, 'scale')}; expected one"
            )
        return real_numbers(data, tensor.scale, tensor.zero_point, None)
    return data.astype(np.float32)


@frozen
class _Cell:
    """A step of an LSTM in real numbers."""

    t: Translation
    at: Operands

    def step(self, row: str, states: Sequence[str]) -> list[str]:
        """Append a step."""
        t, (state, cell) = self.t, states
        gates = self.at.gates(t, self.sums(row, state))
        forget = self.sigmoid(self._gate("forget", gates, cell))
        candidate = self.tanh(self._gate("cell", gates, ""))
        let_in = self.sigmoid(self._gate("input", gates, cell)) if "input" in gates else self.without(forget)
        after = self.next_cell(forget, cell, let_in, candidate)
        opened = self.sigmoid(self._gate("output", gates, after))
        return [self.result(opened, after), after]

    def sums(self, row: str, state: str) -> str:
        """Return the arguments of all gates."""
        t, at = self.t, self.at
        inputs = [row, _stacked(t, _present(t, at.weights), "weights")]
        if not at.is_normalised(t):
            inputs.append(self._vector("bias", *_present(t, at.biases)))
        sums = t("Gemm", *inputs, transB=1)
        return t("Add", sums, t("Gemm", state, _stacked(t, _present(t, at.recurrent), "recurrent weights"), transB=1))

    def sigmoid(self, value: str) -> str:
        """Return the activation of a gate."""
        return self.t("Sigmoid", value)

    def tanh(self, value: str) -> str:
        """Return the activation of the candidate."""
        return real_activation(self.t, value)

    def without(self, forget: str) -> str:
        """Return the input gate of an LSTM that couples it to the forget gate."""
        return self.t("Sub", 1.0, forget)

    def next_cell(self, forget: str, cell: str, let_in: str, candidate: str) -> str:
        """Return the next cell."""
        old = self.t("Mul", forget, cell)
        return self._clipped(self.t("Add", old, self.t("Mul", let_in, candidate)), "CellClip")

    def result(self, opened: str, after: str) -> str:
        """Return the next state."""
        t, at = self.t, self.at
        output = t("Mul", opened, real_activation(t, after))
        if not t.has(at.projection):
            return output
        inputs = [output, _stacked(t, [at.projection], "projection")]
        if t.has(at.projection + 1):
            inputs.append(t.constant("bias", t.data(at.projection + 1, "projection bias"), np.float32))
        return self._clipped(t("Gemm", *inputs, transB=1), "ProjClip")

    def _vector(self, role: str, *operands: int) -> str:
        return self.t.constant(role, np.concatenate([_real(self.t, index, role).reshape(-1) for index in operands]))

    def _gate(self, gate: str, gates: dict[str, str], cell: str) -> str:
        """Return the argument of a gate's activation; `cell` is the value at its peephole."""
        t, at, value = self.t, self.at, gates[gate]
        if gate in at.peepholes and t.has(at.peepholes[gate]):
            value = t("Add", value, t("Mul", cell, self._vector("peephole", at.peepholes[gate])))
        if not at.is_normalised(t):
            return value
        off = t("Sub", value, t("ReduceMean", value, [1], keepdims=1))
        variance = t("ReduceMean", t("Mul", off, off), [1], keepdims=1)
        spread = t("Sqrt", t("Add", variance, 1e-8))
        scaled = t("Mul", t("Div", off, spread), self._vector("normalisation", at.norms[gate]))
        return t("Add", scaled, self._vector("bias", at.biases[gate]))

    def _clipped(self, value: str, option: str) -> str:
        limit = float(self.t.op.option(option, 0.0))
        return self.t("Clip", value, -limit, limit) if limit > 0 else value


def _checked(t: Translation, at: Operands) -> tuple[int, int]:
    """Return the sizes of the cell and the output.

    Raises:
        Unsupported: the weights do not match.
    """
    _, _, count = sizes(t)
    cells = t.shape(at.weights["output"], 2)[0]
    recurrent = t.shape(at.recurrent["output"])
    width = recurrent[-1]
    for gate, index in at.weights.items():
        if not t.has(index):
            continue
        shapes = t.shape(index), t.shape(at.recurrent[gate])
        if shapes != ((cells, count), recurrent) or math.prod(t.shape(at.biases[gate])) != cells:
            raise Unsupported(f"the weights of its {gate} gate, {list(shapes[0])} and {list(shapes[1])}, do not match")
    projected = t.shape(at.projection) if t.has(at.projection) else (cells, cells)
    if recurrent not in ((cells, width), (cells,)) or projected != (width, cells):
        raise Unsupported(f"its recurrent weights {list(recurrent)} do not fit {cells} cells")
    return cells, width


def _direction(t: Translation, at: Operands, *, backward: bool = False) -> tuple[str, int]:
    """Append one direction; return its results and their width."""
    cells, width = _checked(t, at)
    _, images, _ = sizes(t)
    integer = t.tensor(0).is_quantized
    state = state_of(t, at.state, (images, width), "int8" if integer else "float32")
    cell = state_of(t, at.cell, (images, cells), "int16" if integer else "float32")
    lstm = _integer_cell(t, at, state.tensor, cell.tensor) if integer else _Cell(t, at)
    if isinstance(lstm, _IntegerCell) and t.at_once and t.has(at.weights["input"]) and not t.has(at.projection):
        return _as_one(lstm, (state, cell)), width
    value = t.stored(0) if integer else t.real(0)
    return over_time(t, value, [state, cell], lstm.step, backward=backward), width


def lstm(t: Translation) -> None:
    """Append LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM."""
    if t.op.option("KernelType"):
        raise Unsupported("its kernel type BASIC is not supported")
    if t.op.option("DiagonalRecurrentTensors"):
        raise Unsupported("its option DiagonalRecurrentTensors is not supported")
    _put(t, _direction(t, ONE))


def bidirectional_lstm(t: Translation) -> None:
    """Append BIDIRECTIONAL_SEQUENCE_LSTM."""
    if t.tensor(0).is_quantized:
        raise Unsupported("only floats are supported, as in LiteRT")
    if any(t.has(index) for index in range(39, len(t.op.inputs))):
        raise Unsupported("an auxiliary input is not supported")
    _put(t, _direction(t, FORWARD), _direction(t, BACKWARD, backward=True))


def _put(t: Translation, *results: tuple[str, int]) -> None:
    """Set the outputs to the results of one or both directions, each with its width."""
    outer = t.shape(0)[:-1]
    if len(results) > 1 and t.op.option("MergeOutputs"):
        values, widths = zip(*results, strict=True)
        results = ((t("Concat", *values, axis=len(outer)), sum(widths)),)
    for index, (value, width) in enumerate(results):
        finish(t, value, (*outer, width), index)


def _simple(t: Translation, first: int, state_input: int, *, backward: bool = False) -> tuple[str, int]:
    """Append an RNN whose weights, recurrent weights and bias start at input `first`; return its results and width."""
    _, images, count = sizes(t)
    width = t.shape(first, 2)[0]
    if t.shape(first) != (width, count) or t.shape(first + 1) != (width, width) or t.shape(first + 2) != (width,):
        raise Unsupported(f"its weights {list(t.shape(first))} and {list(t.shape(first + 1))} do not match")

    def step(row: str, states: Sequence[str]) -> list[str]:
        bias = t.constant("bias", t.data(first + 2, "bias"), np.float32)
        sums = t("Gemm", row, _stacked(t, [first], "weights"), bias, transB=1)
        recurrent = t("Gemm", states[0], _stacked(t, [first + 1], "recurrent weights"), transB=1)
        return [real_activation(t, t("Add", sums, recurrent))]

    if t.tensor(0).is_quantized:
        raise Unsupported("only floats are supported, as in LiteRT")
    state = state_of(t, state_input, (images, width), "float32")
    return over_time(t, t.real(0), [state], step, backward=backward), width


def rnn(t: Translation) -> None:
    """Append RNN, UNIDIRECTIONAL_SEQUENCE_RNN."""
    _put(t, _simple(t, 1, 4))


def bidirectional_rnn(t: Translation) -> None:
    """Append BIDIRECTIONAL_SEQUENCE_RNN."""
    if any(t.has(index) for index in range(9, len(t.op.inputs))):
        raise Unsupported("an auxiliary input is not supported")
    _put(t, _simple(t, 1, 4), _simple(t, 5, 8, backward=True))


DType = np.dtype[Any]
INT8, INT16, INT32 = np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32)
WHOLE = 3  # integer bits of a gate's sum
UNIT = np.float32(2.0**-12)  # the scale of such a sum
MAX_WHOLE = 6  # the most integer bits of LiteRT's hyperbolic tangent


@frozen
class _IntegerCell(_Cell):
    """A step of an LSTM in integers: `point` are the cell's integer bits, `inner` the grid before a projection."""

    state: Tensor
    inner: Tensor
    point: int
    clip: int

    def sums(self, row: str, state: str) -> str:
        """Return the arguments of all gates."""
        t, at = self.t, self.at
        sums = self._sums(row, t.tensor(0), at.weights, INT16, at.biases)
        recurrent = self._sums(state, self.state, at.recurrent, INT32, {})
        return t.cast(t("Clip", t("Add", t.cast(sums, INT32), recurrent), -(2**15), 2**15 - 1), INT16)

    def sigmoid(self, value: str) -> str:
        """Return the activation of a gate."""
        return self._fixed("FixedLogistic", value)

    def tanh(self, value: str) -> str:
        """Return the activation of the candidate."""
        return self._fixed("FixedTanh", value)

    def without(self, forget: str) -> str:
        """Return the input gate of an LSTM that couples it to the forget gate."""
        return self.t("Sub", 2**15 - 1, forget)

    def next_cell(self, forget: str, cell: str, let_in: str, candidate: str) -> str:
        """Return the next cell."""
        t = self.t
        old = mean_of(t, t("Mul", forget, t.cast(cell, INT32)), 2**15)
        summed = t("Add", old, mean_of(t, t("Mul", let_in, candidate), 2 ** (15 + self.point)))
        low, high = (-self.clip, self.clip) if self.clip else (-(2**15), 2**15 - 1)
        return t.cast(t("Clip", summed, low, high), INT16)

    def _sums(self, value: str, kind: Tensor, gates: Gates, to: DType, biases: Gates) -> str:
        """Append the products of several gates' weights, scaled to the gates' sums."""
        t, operands = self.t, _present(self.t, gates)
        scales = [np.float32(t.tensor(index).scale[0] * kind.scale[0]) / UNIT for index in operands]
        rows = [t.shape(index)[0] for index in operands]
        sums = _products(t, unscaled(t, value, kind), operands, _present(t, biases))
        return rescale_to(t, sums, np.repeat(np.asarray(scales, np.float64), rows), to, axis=1)

    def result(self, opened: str, after: str) -> str:
        """Return the next state."""
        t, projection, inner = self.t, self.at.projection, self.inner
        product = t("Mul", opened, self._fixed("FixedTanh", after, self.point))
        scale = float(np.float32(2.0**-15 / float(inner.scale[0]) * 2.0**-15))
        if not t.has(projection):
            return rescale_to(t, product, scale, INT8, inner.zero)
        hidden = rescale_to(t, product, scale, INT8, -inner.zero)
        centred = t.dequantize(hidden, INT8, np.ones(1, np.float32), np.asarray([-inner.zero]))
        sums = _products(t, centred, [projection], [projection + 1] if t.has(projection + 1) else [])
        scale = float(np.float32(t.tensor(projection).scale[0] * inner.scale[0]) / self.state.scale[0])
        limit = _steps(t.op.option("ProjClip", 0.0), t.result(), INT8)
        return rescale_to(t, sums, scale, INT8, self.state.zero, (-limit, limit) if limit > 0 else ())

    def _fixed(self, function: str, value: str, whole: int = WHOLE) -> str:
        return self.t.cast(self.t(function, value, whole=whole, to=INT16), INT32)


def _products(t: Translation, value: str, operands: Sequence[int], biases: Sequence[int]) -> str:
    """Append the products of integers with several stacked matrices, plus their biases."""
    data = np.concatenate([_weights(t, index) for index in operands])
    inputs = [value, whole(t, t.constant("weights", data), data.dtype)]
    if biases:
        inputs.append(whole(t, t.constant("bias", np.concatenate([_bias(t, index) for index in biases])), INT32))
    return t("Gemm", *inputs, transB=1)


def _weights(t: Translation, index: int) -> Array:
    data, tensor = t.data(index, "weights"), t.tensor(index)
    if data.dtype != np.int8 or data.ndim != 2 or tensor.scale.size != 1 or tensor.zero_point.any():
        raise Unsupported(
            f"its weights {tensor.name!r} are {data.dtype} with {plural.count(tensor.scale.size, 'scale')}"
        )
    return data


def _bias(t: Translation, index: int) -> Array:
    data = t.data(index, "bias").reshape(-1)
    if data.dtype != np.int32:
        raise Unsupported(f"its bias is {data.dtype}")
    return data


def _steps(limit: float, tensor: Tensor, dtype: DType) -> int:
    """Return a limit in steps of a grid, rounded towards zero; 0: no limit."""
    if not limit > 0:
        return 0
    bounds = np.iinfo(dtype)
    return int(np.clip(np.float32(limit) / tensor.scale[0], bounds.min, bounds.max))


def _integer_cell(t: Translation, at: Operands, state: Tensor, cell: Tensor) -> _IntegerCell:
    """Return an LSTM in integers.

    Raises:
        Unsupported: mtool has no such integer LSTM, or LiteRT does not allow its quantization.
    """
    if at.is_normalised(t) or _present(t, at.peepholes):
        raise Unsupported("peepholes and normalized gates are supported only for floats")
    x, out, inner = t.tensor(0), t.result(), state
    if x.dtype != INT8 or out.dtype != INT8:
        raise Unsupported(f"its input is {x.dtype} and its output {out.dtype}; expected int8")
    if len(t.op.intermediates) == 5 and t.op.intermediates[4] >= 0:
        inner = t.tensors[t.op.intermediates[4]]
    for tensor in (x, out, state, cell, inner):
        if tensor.scale.size != 1:
            raise Unsupported(f"{tensor.name!r} has {plural.count(tensor.scale.size, 'scale')}; expected one")
    exponent = power_of_2(cell.scale[0])
    if exponent is None or not 0 <= (point := 15 + exponent) <= MAX_WHOLE or cell.zero:
        raise Unsupported(f"the scale of its cell is {cell.scale[0]:.3g}; expected a power of 2 from 2^-15 to 2^-9")
    if not -128 <= -inner.zero <= 127:
        raise Unsupported(f"the zero point of its hidden values, {inner.zero}, is out of range")
    return _IntegerCell(t, at, state, inner, point, _steps(t.op.option("CellClip", 0.0), cell, INT16))


def _as_one(lstm: _IntegerCell, states: tuple[State, State]) -> str:
    """Append an integer LSTM as one node; return its results."""
    t, at, inner = lstm.t, lstm.at, lstm.inner
    steps, inputs = sizes(t)[0], [t.stored(0), *(state.name for state in states)]
    for gate in at.weights:
        places = (operands[gate] for operands in (at.weights, at.recurrent, at.biases))
        inputs += [t.stored(place) if t.has(place) else "" for place in places]
    results = t.several(
        "IntegerLstm", 2 if steps == 1 else 3, *inputs, steps=steps, time_major=int(bool(t.op.option("TimeMajor"))),
        point=lstm.point, clip=lstm.clip, inner_scale=float(inner.scale[0]), inner_zero=inner.zero,
    )  # fmt: skip
    for state, new in zip(states, results[-2:], strict=True):
        state.put(new)
    return results[0] if steps > 1 else _one_step(t, results[0], states[0].tensor.shape[-1])


def svdf(t: Translation) -> None:
    """Append SVDF."""
    images, count = t.shape(0, 2)
    filters, width = t.shape(1, 2)
    rank, memory = int(t.op.option("Rank")), t.shape(2, 2)[1]
    if rank < 1 or filters % rank or width != count or t.shape(2)[0] != filters or not memory:
        raise Unsupported(f"its weights {list(t.shape(1))} and {list(t.shape(2))} do not match")
    integer = t.tensor(0).is_quantized
    state = state_of(t, 4, (images, memory * filters), t.tensor(2).dtype.name if integer else "float32")
    if t.at_once and integer:
        inputs = [t.stored(0), state.name, t.stored(1), t.stored(2), t.stored(3) if t.has(3) else ""]
        result, history = t.several("IntegerSvdf", 2, *inputs, rank=rank)
        state.put(history)
        finish(t, result, (images, filters // rank))
        return
    old = t("Reshape", state.name, (images, filters, memory))
    history = t("Slice", old, [1], [memory], [2])
    latest = _integer_features(t, state) if integer else t("Gemm", t.real(0), weights(t, 1, lambda x: x, 0), transB=1)
    window = t("Concat", history, t("Reshape", latest, (images, filters, 1)), axis=2)
    state.put(t("Reshape", window, (images, memory * filters)))
    terms = _integer_terms(t, state, window) if integer else _terms(t, window)
    total = t("ReduceSum", t("Reshape", terms, (images, filters // rank, rank * memory)), [2], keepdims=0)
    if t.has(3):
        total = t("Add", total, t.constant("bias", t.data(3, "bias"), INT32 if integer else np.float32))
    if integer:
        factor = float(state.tensor.scale[0] * t.tensor(2).scale[0] / t.result().scale[0])  # of float32
        result = rescale_to(t, total, factor, t.result().dtype, t.result().zero)
    else:
        result = real_activation(t, total)
    finish(t, result, (images, filters // rank))


def _terms(t: Translation, window: str) -> str:
    """Return the history times the time weights."""
    data, tensor = t.data(2, "time weights"), t.tensor(2)
    if not tensor.is_quantized:
        return t("Mul", window, t.constant("time", data, np.float32))
    name = t.constant("time", data)
    return t("Mul", window, t.dequantize(name, data.dtype, tensor.scale, tensor.zero_point, 0))


def _integer_features(t: Translation, state: State) -> str:
    x, w, grid = t.tensor(0), t.tensor(1), state.tensor
    data = t.data(1, "weights")
    if x.dtype != np.int8 or data.dtype != np.int8 or w.scale.size != 1 or w.zero_point.any() or grid.scale.size != 1:
        raise Unsupported(
            f"its input is {x.dtype}, its weights are {data.dtype} with {plural.count(w.scale.size, 'scale')}"
        )
    weights = whole(t, t.constant("weights", data), data.dtype)
    sums = t("Gemm", unscaled(t, t.stored(0), x), weights, transB=1)
    factor = float(x.scale[0] * w.scale[0] / grid.scale[0])  # of float32
    if not grid.zero:
        return rescale_to(t, sums, factor, grid.dtype)
    bounds = np.iinfo(grid.dtype)  # the result is clamped before the zero point is added, so it may wrap around
    inside = t("Clip", rescale_to(t, sums, factor), int(bounds.min), int(bounds.max))
    return t.cast(t("Add", inside, grid.zero), grid.dtype)


def _integer_terms(t: Translation, state: State, window: str) -> str:
    """Return the history, less its zero point, times the time weights."""
    w, out, data = t.tensor(2), t.result(), t.data(2, "time weights")
    if out.dtype != np.int8 or out.scale.size != 1 or w.scale.size != 1 or w.zero_point.any():
        raise Unsupported(
            f"its output is {out.dtype}, its time weights are {w.dtype} with {plural.count(w.scale.size, 'scale')}"
        )
    return t("Mul", centred_of(t, window, state.tensor), t.cast(t.constant("time", data), INT32))
