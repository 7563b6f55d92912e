"""LSTM and RNN, one direction or both, of real numbers or of integers, over a sequence or for one step.

Source: tensorflow/lite/kernels/lstm_eval.cc, basic_rnn.cc. A clipped cell, a projection and a normalised gate are not
ONNX's LSTM: a step is written out, and a Scan repeats it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import tflite
from onnx import helper, numpy_helper

from mtool.compiler.frontend.tflite.fixed_point import multipliers
from mtool.compiler.frontend.tflite.products import weights
from mtool.compiler.frontend.tflite.rescaling import centred_of, clamped, divided, plain, rescale_to, unscaled, widened
from mtool.compiler.frontend.tflite.schema import VARIABLE, Tensor
from mtool.compiler.frontend.tflite.translation import Translation
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.problems import OWN, Unsupported

_NAMES = ("input", "forget", "cell", "output")


@dataclass(frozen=True, slots=True)
class Gates:
    """The inputs of an operator that are a tensor of each gate.

    Where the input gate has no weights, it is 1 less the forget gate.
    """

    input: int
    forget: int
    cell: int
    output: int

    @classmethod
    def at(cls, first: int) -> "Gates":
        """Four inputs in a row."""
        return cls(first, first + 1, first + 2, first + 3)

    def names(self, t: Translation) -> list[str]:
        """Return the gates that have such a tensor."""
        return [name for name in _NAMES if t.has(getattr(self, name))]

    def present(self, t: Translation) -> list[int]:
        """Return their inputs of the operator."""
        return [getattr(self, name) for name in self.names(t)]


@dataclass(frozen=True, slots=True)
class Operands:
    """The inputs of an operator that are the tensors of an LSTM.

    A projection's bias is behind its weights. A cell has no peephole: -1.
    """

    weights: Gates
    recurrent: Gates
    peepholes: Gates
    biases: Gates
    projection: int
    state: int
    cell: int
    norms: Gates | None = None

    def gates(self, t: Translation, sums: str) -> dict[str, str]:
        """Append the split of the sums of all gates; return those of each gate, by its name."""
        names = self.weights.names(t)
        parts = t.several("Split", [sums], len(names), axis=1, num_outputs=len(names))
        return dict(zip(names, parts, strict=True))

    def is_coupled(self, t: Translation) -> bool:
        """Whether the input gate is 1 less the forget gate."""
        return not t.has(self.weights.input)

    def is_normalised(self, t: Translation) -> bool:
        """Whether the sums of its gates are normalised."""
        return self.norms is not None and t.has(self.norms.output)


ONE = Operands(Gates.at(1), Gates.at(5), Gates(9, 10, -1, 11), Gates.at(12), 16, 18, 19, Gates.at(20))
FORWARD = Operands(Gates.at(1), Gates.at(5), Gates(9, 10, -1, 11), Gates.at(12), 16, 35, 36)
BACKWARD = Operands(Gates.at(18), Gates.at(22), Gates(26, 27, -1, 28), Gates.at(29), 33, 37, 38)
Step = Callable[[str, Sequence[str]], Sequence[str]]
"""A step: what is read and the states; it returns the next states, of which the first is the result, too."""


class State:
    """A variable of the operator at work; `name` is its value, which `put` replaces."""

    def __init__(self, t: Translation, index: int, shape: tuple[int, ...], kinds: Sequence[str]) -> None:
        if not t.has(index) or t.tensors[t.op.inputs[index]].problem != VARIABLE:
            raise Unsupported(f"its input {index} is not a variable, which keeps its state")
        self.key = t.op.inputs[index]
        found = t.tensors[self.key]
        if found.dtype.name not in kinds or found.shape[1:] != shape[1:]:
            wanted = f"{' or '.join(kinds)}{list(shape)}"
            raise Unsupported(f"its state {found.name!r} is {found.dtype}{list(found.shape)} instead of {wanted}")
        self.tensor = replace(found, problem="", shape=shape)
        self.name = t.variables.read(self.key, self.tensor, lambda: t.names[self.key])
        self._t = t

    def put(self, value: str) -> None:
        """Give the variable its next value."""
        self._t.variables.write(self.key, self.tensor, value)


def sizes(t: Translation) -> tuple[int, int, int]:
    """Return how many steps, images and numbers the input has."""
    shape = t.shape(0)
    if len(shape) not in (2, 3):
        raise Unsupported(f"its input has {len(shape)} dimensions instead of 2 or 3")
    if len(shape) == 2:
        return 1, *shape
    first, second, count = shape
    return (first, second, count) if t.op.option("TimeMajor") else (second, first, count)


def over_time(t: Translation, value: str, states: Sequence[State], step: Step, *, backward: bool = False) -> str:
    """Append the steps over the input's rows, and give the states their last values; return the results.

    Args:
        t: the operator at work.
        value: its input [steps, images, numbers] or [images, steps, numbers], or of one step.
        states: its variables.
        step: appends the nodes of a step.
        backward: from the last row to the first.
    """
    steps, images, count = sizes(t)
    if steps == 1:
        last = step(_shaped(t, value, (images, count)), [state.name for state in states])
        for state, new in zip(states, last, strict=True):
            state.put(new)
        width = states[0].tensor.shape[-1]
        whole = (1, images, width) if t.op.option("TimeMajor") else (images, 1, width)
        if len(t.shape(0)) == 2:
            return t.node("Identity", [last[0]])  # the state keeps its own name
        return _shaped(t, last[0], whole)
    turned = not t.op.option("TimeMajor")
    body = _body(t, states, step, count)
    inputs = [*(state.name for state in states), _turned(t, value, t.shape(0)) if turned else value]
    outputs = [t.unique(f"{t.names[t.op.outputs[0]]}/{stem}") for stem in (*("last" for _ in states), "rows")]
    attrs = {"scan_input_directions": [1], "scan_output_directions": [1]} if backward else {}
    t.nodes.append(helper.make_node("Scan", inputs, outputs, name=t.op.name, body=body, num_scan_inputs=1, **attrs))
    for state, new in zip(states, outputs, strict=False):
        state.put(new)
    made = outputs[-1]
    return _turned(t, made, (steps, images, states[0].tensor.shape[-1])) if turned else made


def _body(t: Translation, states: Sequence[State], step: Step, count: int) -> onnx.GraphProto:
    """Return a step as a graph, whose constants are its own."""
    stem = t.names[t.op.outputs[0]]
    inside = [t.unique(f"{stem}/state") for _ in states]
    row = t.unique(f"{stem}/row")
    around, t.nodes = t.nodes, []
    try:
        last = [*step(row, inside)]
        last = [t.node("Identity", [value]) for value in (*last, last[0])]
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
    made = [info(name, tensor) for name, tensor in zip(last, tensors, strict=True)]
    held = [numpy_helper.from_array(t.constants[name], name) for name in read]
    return helper.make_graph(nodes, "step", inputs, made, held)


def _shaped(t: Translation, value: str, shape: Sequence[int]) -> str:
    return t.node("Reshape", [value, t.whole("shape", shape)])


def _turned(t: Translation, value: str, shape: Sequence[int]) -> str:
    """Exchange the first two dimensions."""
    first, second, width = shape
    if 1 in (first, second):
        return _shaped(t, value, (second, first, width))
    return t.node("Transpose", [value], perm=[1, 0, 2])


def real_activation(t: Translation, value: str) -> str:
    """Apply the fused activation, which may be a hyperbolic tangent here."""
    code = t.op.option("FusedActivationFunction")
    return t.node("Tanh", [value]) if code == tflite.ActivationFunctionType.TANH else t.activated(value, code)


def finish(t: Translation, value: str, shape: Sequence[int], index: int = 0) -> None:
    """Make a value the output, whose shape follows from the input's where the file leaves it open."""
    tensor = t.result(index)
    if tensor.allows(tuple(shape)):
        t.tensors[t.op.outputs[index]] = replace(tensor, shape=tuple(shape))
    t.put(value, index)


def _stacked(t: Translation, operands: Sequence[int], role: str) -> str:
    """Return the weights of several gates as one matrix of real numbers; a vector is a diagonal matrix."""
    tensors = [t.weights(index) for index in operands]
    if all(one.is_quantised and one.data is not None and one.data.ndim == 2 for one in tensors):
        kinds = {one.dtype for one in tensors}
        if len(kinds) == 1 and all(one.scale.size == 1 for one in tensors):
            data = np.concatenate([one.data for one in tensors if one.data is not None])
            rows = [one.shape[0] for one in tensors]
            scales, points = (np.repeat([getattr(one, field)[0] for one in tensors], rows) for field in _GRID)
            return t.dequantise(t.constant(role, data), data.dtype, scales.astype(np.float32), points, 0)
    found = []
    for index in operands:
        data = t.known(index, role)
        tensor = t.tensor(index)
        if data.dtype.kind != "f":
            if not tensor.is_quantised or tensor.scale.size != 1:
                raise Unsupported(f"its {role} are {data.dtype} with {tensor.scale.size} scales")
            data = ((data.astype(np.int64) - tensor.zero_point) * tensor.scale).astype(np.float32)
        found.append(np.diag(data) if data.ndim == 1 else data)
    return t.constant(role, np.concatenate(found), np.float32)


_GRID = ("scale", "zero_point")


@dataclass(frozen=True, slots=True)
class _Cell:
    """An LSTM of real numbers whose tensors are these inputs."""

    t: Translation
    at: Operands
    hidden: int

    def step(self, row: str, states: Sequence[str]) -> list[str]:
        """Append a step."""
        t, at = self.t, self.at
        state, cell = states
        inputs = [row, _stacked(t, at.weights.present(t), "weights")]
        if not at.is_normalised(t):
            inputs.append(t.constant("bias", self._vectors(at.biases.present(t)), np.float32))
        sums = t.node("Gemm", inputs, transB=1)
        own = t.node("Gemm", [state, _stacked(t, at.recurrent.present(t), "recurrent weights")], transB=1)
        gates = at.gates(t, t.node("Add", [sums, own]))
        forget = t.node("Sigmoid", [self._gate("forget", gates, cell)])
        candidate = real_activation(t, self._gate("cell", gates, ""))
        if "input" in gates:
            let_in = t.node("Sigmoid", [self._gate("input", gates, cell)])
        else:
            let_in = t.node("Sub", [t.constant("one", 1, np.float32), forget])
        kept = t.node("Mul", [forget, cell])
        after = self._clipped(t.node("Add", [kept, t.node("Mul", [let_in, candidate])]), "CellClip")
        opened = t.node("Sigmoid", [self._gate("output", gates, after)])
        made = t.node("Mul", [opened, real_activation(t, after)])
        if t.has(at.projection):
            inputs = [made, _stacked(t, [at.projection], "projection")]
            if t.has(at.projection + 1):
                inputs.append(t.constant("bias", t.known(at.projection + 1, "projection bias"), np.float32))
            made = self._clipped(t.node("Gemm", inputs, transB=1), "ProjClip")
        return [made, after]

    def _vectors(self, operands: Sequence[int]) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
        return np.concatenate([np.asarray(self.t.known(index, "bias"), np.float32).reshape(-1) for index in operands])

    def _gate(self, gate: str, gates: dict[str, str], cell: str) -> str:
        """Return the argument of a gate's activation; `cell` is what it looks at through a peephole."""
        t, at, value = self.t, self.at, gates[gate]
        peephole = getattr(at.peepholes, gate, -1) if at.peepholes and cell else -1
        if peephole >= 0 and t.has(peephole):
            value = t.node("Add", [value, t.node("Mul", [cell, self._row(peephole, "peephole")])])
        if not at.is_normalised(t):
            return value
        assert at.norms is not None
        mean = t.node("ReduceMean", [value, t.whole("axes", [1])], keepdims=1)
        off = t.node("Sub", [value, mean])
        variance = t.node("ReduceMean", [t.node("Mul", [off, off]), t.whole("axes", [1])], keepdims=1)
        spread = t.node("Sqrt", [t.node("Add", [variance, t.constant("least", 1e-8, np.float32)])])
        scaled = t.node("Mul", [t.node("Div", [off, spread]), self._row(getattr(at.norms, gate), "normalisation")])
        bias = self._vectors([getattr(at.biases, gate)])
        return t.node("Add", [scaled, t.constant("bias", bias, np.float32)])

    def _row(self, index: int, role: str) -> str:
        t, tensor = self.t, self.t.tensor(index)
        data = t.known(index, role)
        if data.dtype.kind != "f":
            data = (data.astype(np.int64) - tensor.zero_point) * tensor.scale
        return t.constant(role, data.reshape(-1), np.float32)

    def _clipped(self, value: str, option: str) -> str:
        limit = float(self.t.op.option(option, 0.0))
        return self.t.clip(value, -limit, limit) if limit > 0 else value


def _checked(t: Translation, at: Operands) -> tuple[int, int]:
    """Return how many numbers the cell and the output have.

    Raises:
        Unsupported: the weights do not fit together.
    """
    _, _, count = sizes(t)
    cells = t.shape(at.weights.output, 2)[0]
    recurrent = t.shape(at.recurrent.output)
    width = recurrent[-1]
    for gate in at.weights.names(t):
        found = t.shape(getattr(at.weights, gate)), t.shape(getattr(at.recurrent, gate))
        biases = t.shape(getattr(at.biases, gate))
        if found != ((cells, count), recurrent) or int(np.prod(biases)) != cells:
            raise Unsupported(f"the weights of its {gate} gate are {list(found[0])} and {list(found[1])}")
    projected = t.shape(at.projection) if t.has(at.projection) else (cells, cells)
    if recurrent not in ((cells, width), (cells,)) or projected != (width, cells):
        raise Unsupported(f"its recurrent weights are {list(recurrent)}, for {cells} cells")
    return cells, width


def _direction(t: Translation, at: Operands, *, backward: bool = False) -> str:
    """Append one direction; return its results."""
    cells, width = _checked(t, at)
    _, images, _ = sizes(t)
    if t.tensor(0).is_quantised:
        return direction(t, at, cells, width)
    states = [State(t, at.state, (images, width), ("float32",)), State(t, at.cell, (images, cells), ("float32",))]
    return over_time(t, t.real(0), states, _Cell(t, at, width).step, backward=backward)


def lstm(t: Translation) -> None:
    """Append LSTM, UNIDIRECTIONAL_SEQUENCE_LSTM."""
    if t.op.option("KernelType"):
        raise Unsupported("it is of the basic kind of kernel, which TFLite Micro does not have either")
    if t.op.option("DiagonalRecurrentTensors"):
        raise Unsupported("its recurrent weights are vectors by an option that LiteRT does not read")
    at = ONE
    width = t.shape(at.recurrent.output)[-1]
    finish(t, _direction(t, at), (*t.shape(0)[:-1], width))


def bidirectional_lstm(t: Translation) -> None:
    """Append BIDIRECTIONAL_SEQUENCE_LSTM."""
    if t.tensor(0).is_quantised:
        raise Unsupported("LiteRT has it of real numbers only")
    if any(t.has(index) for index in range(39, len(t.op.inputs))):
        raise Unsupported("it has a second input")
    made = [_direction(t, FORWARD), _direction(t, BACKWARD, backward=True)]
    _put_both(t, made, [t.shape(at.recurrent.output)[-1] for at in (FORWARD, BACKWARD)])


def _put_both(t: Translation, made: Sequence[str], widths: Sequence[int]) -> None:
    if t.op.option("MergeOutputs"):
        finish(t, t.node("Concat", list(made), axis=len(t.shape(0)) - 1), (*t.shape(0)[:-1], sum(widths)))
        return
    for index, (value, width) in enumerate(zip(made, widths, strict=True)):
        finish(t, value, (*t.shape(0)[:-1], width), index)


def _simple(t: Translation, first: int, kept: int, *, backward: bool = False) -> tuple[str, int]:
    """Append an RNN whose weights, recurrent weights and bias begin at an input; return its results and their width."""
    _, images, count = sizes(t)
    width = t.shape(first, 2)[0]
    if t.shape(first) != (width, count) or t.shape(first + 1) != (width, width) or t.shape(first + 2) != (width,):
        raise Unsupported(f"its weights are {list(t.shape(first))} and {list(t.shape(first + 1))}")

    def step(row: str, states: Sequence[str]) -> list[str]:
        bias = t.constant("bias", t.known(first + 2, "bias"), np.float32)
        sums = t.node("Gemm", [row, _stacked(t, [first], "weights"), bias], transB=1)
        own = t.node("Gemm", [states[0], _stacked(t, [first + 1], "recurrent weights")], transB=1)
        return [real_activation(t, t.node("Add", [sums, own]))]

    if t.tensor(0).is_quantised:
        raise Unsupported("LiteRT has it of real numbers only")
    state = State(t, kept, (images, width), ("float32",))
    return over_time(t, t.real(0), [state], step, backward=backward), width


def rnn(t: Translation) -> None:
    """Append RNN, UNIDIRECTIONAL_SEQUENCE_RNN."""
    made, width = _simple(t, 1, 4)
    finish(t, made, (*t.shape(0)[:-1], width))


def bidirectional_rnn(t: Translation) -> None:
    """Append BIDIRECTIONAL_SEQUENCE_RNN."""
    if any(t.has(index) for index in range(9, len(t.op.inputs))):
        raise Unsupported("it has a second input")
    made = [_simple(t, 1, 4), _simple(t, 5, 8, backward=True)]
    _put_both(t, [value for value, _ in made], [width for _, width in made])


DType = np.dtype[Any]
INT8, INT16, INT32 = np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32)
WHOLE = 3  # bits of a gate's sum before the point
UNIT = np.float32(2.0**-12)  # a step of such a sum
MOST_WHOLE = 6  # that LiteRT's hyperbolic tangent has


@dataclass(frozen=True, slots=True)
class _IntegerCell:
    """An LSTM of integers: `point` are the bits of its cell before the point, `inner` the grid before a projection."""

    t: Translation
    at: Operands
    state: Tensor
    inner: Tensor
    point: int
    clip: int

    def step(self, row: str, states: Sequence[str]) -> list[str]:
        """Append a step."""
        t, at = self.t, self.at
        state, cell = states
        sums = self._sums(row, t.tensor(0), at.weights.present(t), INT16, at.biases.present(t))
        own = self._sums(state, self.state, at.recurrent.present(t), INT32, ())
        gates = at.gates(t, self._narrow(t.node("Add", [widened(t, sums), own])))
        forget = self._logistic(gates["forget"])
        if "input" in gates:
            let_in = self._logistic(gates["input"])
        else:
            let_in = t.node("Sub", [t.constant("one", 2**15 - 1, np.int32), forget])
        kept = divided(t, t.node("Mul", [forget, widened(t, cell)]), 2**15)
        new = t.node("Mul", [let_in, self._tanh(gates["cell"], WHOLE)])
        summed = t.node("Add", [kept, divided(t, new, 2 ** (15 + self.point))])
        low, high = (-self.clip, self.clip) if self.clip else (-(2**15), 2**15 - 1)
        after = t.node("Cast", [clamped(t, summed, low, high)], to=_code(INT16))
        opened = self._logistic(gates["output"])
        product = t.node("Mul", [opened, self._tanh(after, self.point)])
        return [self._result(product), after]

    def _sums(self, value: str, kind: Tensor, operands: Sequence[int], to: DType, biases: Sequence[int]) -> str:
        """Append the products of several gates' weights, as steps of the gates' sums."""
        t = self.t
        data = np.concatenate([_weights(t, index) for index in operands])
        scales = [np.float32(t.tensor(index).scale[0] * kind.scale[0]) / UNIT for index in operands]
        rows = [t.shape(index)[0] for index in operands]
        inputs = [unscaled(t, value, kind), plain(t, t.constant("weights", data), data.dtype)]
        if biases:
            inputs.append(plain(t, t.constant("bias", np.concatenate([_bias(t, index) for index in biases])), INT32))
        sums = t.node("Gemm", inputs, transB=1)
        by, shift = multipliers(np.repeat(np.asarray(scales, np.float64), rows))
        return rescale_to(t, sums, by, shift, to, axis=1)

    def _result(self, product: str) -> str:
        t, at = self.t, self.at
        scale = np.float32(2.0**-15 / float(self.inner.scale[0]) * 2.0**-15)
        by, shift = multipliers(np.asarray([scale], np.float64))
        if not t.has(at.projection):
            return rescale_to(t, product, by, shift, INT8, self.inner.zero)
        made = rescale_to(t, product, by, shift, INT8, -self.inner.zero)
        data = _weights(t, at.projection)
        centred = t.dequantise(made, INT8, np.ones(1, np.float32), np.asarray([-self.inner.zero]))
        inputs = [centred, plain(t, t.constant("weights", data), data.dtype)]
        if t.has(at.projection + 1):
            inputs.append(plain(t, t.constant("bias", _bias(t, at.projection + 1)), INT32))
        sums = t.node("Gemm", inputs, transB=1)
        scale = np.float32(t.tensor(at.projection).scale[0] * self.inner.scale[0]) / self.state.scale[0]
        by, shift = multipliers(np.asarray([scale], np.float64))
        limit = _steps(t.op.option("ProjClip", 0.0), t.result(), INT8)
        bounds = (-limit, limit) if limit > 0 else None
        return rescale_to(t, sums, by, shift, INT8, self.state.zero, bounds)

    def _narrow(self, value: str) -> str:
        t = self.t
        return t.node("Cast", [clamped(t, value, -(2**15), 2**15 - 1)], to=_code(INT16))

    def _logistic(self, value: str) -> str:
        t = self.t
        return widened(t, t.node("FixedLogistic", [value], domain=OWN, whole=WHOLE, to=_code(INT16)))

    def _tanh(self, value: str, whole: int) -> str:
        t = self.t
        return widened(t, t.node("FixedTanh", [value], domain=OWN, whole=whole, to=_code(INT16)))


def _code(dtype: DType) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype))


def _weights(t: Translation, index: int) -> Array:
    data, tensor = t.known(index, "weights"), t.tensor(index)
    if data.dtype != np.int8 or data.ndim != 2 or tensor.scale.size != 1 or tensor.zero_point.any():
        raise Unsupported(f"its weights {tensor.name!r} are {data.dtype} with {tensor.scale.size} scales")
    return data


def _bias(t: Translation, index: int) -> Array:
    data = t.known(index, "bias").reshape(-1)
    if data.dtype != np.int32:
        raise Unsupported(f"its bias is {data.dtype}")
    return data


def _steps(limit: float, tensor: Tensor, dtype: DType) -> int:
    """Return a limit in steps of a grid, towards zero; 0: there is none."""
    if not limit > 0:
        return 0
    bounds = np.iinfo(dtype)
    return int(np.clip(np.float32(limit) / tensor.scale[0], bounds.min, bounds.max))


def direction(t: Translation, at: Operands, cells: int, width: int) -> str:
    """Append an LSTM of integers; return its results.

    Raises:
        Unsupported: it has what LiteRT's kernel has, and mtool has not, or its grids are others.
    """
    _, images, _ = sizes(t)
    if at.is_normalised(t) or any(t.has(index) for index in (9, 10, 11)):
        raise Unsupported("it has peepholes or normalised gates, which mtool has of real numbers only")
    x, out = t.tensor(0), t.result()
    state = State(t, at.state, (images, width), ("int8",))
    cell = State(t, at.cell, (images, cells), ("int16",))
    if x.dtype != INT8 or out.dtype != INT8:
        raise Unsupported(f"its input is {x.dtype}, its output {out.dtype}, where LiteRT has int8")
    inner = state.tensor
    if len(t.op.intermediates) == 5 and t.op.intermediates[4] >= 0:
        inner = t.tensors[t.op.intermediates[4]]
    for tensor in (x, out, state.tensor, cell.tensor, inner):
        if tensor.scale.size != 1:
            raise Unsupported(f"{tensor.name!r} has {tensor.scale.size} scales")
    exponent = math.log2(float(cell.tensor.scale[0]))
    point = 15 + round(exponent)
    if abs(exponent - round(exponent)) > 1e-3 or not 0 <= point <= MOST_WHOLE or cell.tensor.zero:
        raise Unsupported(f"the scale of its cell, {cell.tensor.scale[0]:.3g}, is not a power of 2 from 2^-15 to 2^-9")
    if not -128 <= -inner.zero <= 127:
        raise Unsupported(f"the zero point of its inner numbers is {inner.zero}")
    clip = _steps(t.op.option("CellClip", 0.0), cell.tensor, INT16)
    if t.at_once and not at.is_coupled(t) and not t.has(at.projection):
        return _as_one(t, at, (state, cell), inner, point, clip)
    made = _IntegerCell(t, at, state.tensor, inner, point, clip)
    return over_time(t, t.stored(0), [state, cell], made.step)


def _as_one(t: Translation, at: Operands, states: tuple[State, State], inner: Tensor, point: int, clip: int) -> str:
    """Append it as one node; return its results."""
    steps, images, _ = sizes(t)
    inputs = [t.stored(0), *(state.name for state in states)]
    for gate in ("input", "forget", "cell", "output"):
        places = (getattr(operands, gate) for operands in (at.weights, at.recurrent, at.biases))
        inputs += [t.stored(place) if t.has(place) else "" for place in places]
    major, width = int(bool(t.op.option("TimeMajor"))), states[0].tensor.shape[-1]
    made = t.several(
        "IntegerLstm",
        inputs,
        2 if steps == 1 else 3,
        domain=OWN,
        steps=steps,
        time_major=major,
        point=point,
        clip=clip,
        inner_scale=float(inner.scale[0]),
        inner_zero=inner.zero,
    )
    for state, new in zip(states, made[-2:], strict=True):
        state.put(new)
    if steps > 1:
        return made[0]
    if len(t.shape(0)) == 2:
        return t.node("Identity", [made[0]])
    shape = (1, images, width) if major else (images, 1, width)
    return t.node("Reshape", [made[0], t.whole("shape", shape)])


def svdf(t: Translation) -> None:
    """Append SVDF."""
    images, count = t.shape(0, 2)
    filters, width = t.shape(1, 2)
    rank, memory = int(t.op.option("Rank")), t.shape(2, 2)[1]
    if rank < 1 or filters % rank or width != count or t.shape(2)[0] != filters or not memory:
        raise Unsupported(f"its weights {list(t.shape(1))} and {list(t.shape(2))} do not fit together")
    integer = t.tensor(0).is_quantised
    kinds = (t.tensor(2).dtype.name,) if integer else ("float32",)
    state = State(t, 4, (images, memory * filters), kinds)
    if t.at_once and integer:
        inputs = [t.stored(0), state.name, t.stored(1), t.stored(2), t.stored(3) if t.has(3) else ""]
        made, kept = t.several("IntegerSvdf", inputs, 2, domain=OWN, rank=rank)
        state.put(kept)
        finish(t, made, (images, filters // rank))
        return
    old = t.node("Reshape", [state.name, t.whole("shape", (images, filters, memory))])
    kept = t.node("Slice", [old, t.whole("start", [1]), t.whole("end", [memory]), t.whole("axes", [2])])
    latest = _integer_features(t, state) if integer else _features(t)
    latest = t.node("Reshape", [latest, t.whole("shape", (images, filters, 1))])
    seen = t.node("Concat", [kept, latest], axis=2)
    state.put(t.node("Reshape", [seen, t.whole("shape", (images, memory * filters))]))
    made = _integer_result(t, state, seen, rank) if integer else _svdf_result(t, seen, rank)
    finish(t, made, (images, filters // rank))


def _features(t: Translation) -> str:
    name = weights(t, 1, lambda data: data, 0)
    return t.node("Gemm", [t.real(0), name], transB=1)


def _svdf_result(t: Translation, seen: str, rank: int) -> str:
    """Sum over time, over the filters of a unit, and add the bias."""
    images, (filters, memory) = t.shape(0)[0], t.shape(2)
    units = filters // rank
    data = t.known(2, "weights over time")
    weights = t.constant("time", data, np.float32)
    if t.tensor(2).is_quantised:
        name = t.constant("time", data)
        weights = t.dequantise(name, data.dtype, t.tensor(2).scale, t.tensor(2).zero_point, 0)
    grouped = t.node("Reshape", [t.node("Mul", [seen, weights]), t.whole("shape", (images, units, rank * memory))])
    total = t.node("ReduceSum", [grouped, t.whole("axes", [2])], keepdims=0)
    if t.has(3):
        total = t.node("Add", [total, t.constant("bias", t.known(3, "bias"), np.float32)])
    return real_activation(t, total)


def _integer_features(t: Translation, state: State) -> str:
    x, w, kept = t.tensor(0), t.tensor(1), state.tensor
    data = t.known(1, "weights")
    if x.dtype != np.int8 or data.dtype != np.int8 or w.scale.size != 1 or w.zero_point.any() or kept.scale.size != 1:
        raise Unsupported(f"its input is {x.dtype}, its weights are {data.dtype} with {w.scale.size} scales")
    weights = plain(t, t.constant("weights", data), data.dtype)
    sums = t.node("Gemm", [unscaled(t, t.stored(0), x), weights], transB=1)
    factor = float(x.scale[0] * w.scale[0] / kept.scale[0])  # of float32
    if not kept.zero:
        return rescale_to(t, sums, *multipliers(np.asarray([factor])), kept.dtype)
    bounds = np.iinfo(kept.dtype)  # the result is clamped before the zero point is added, which may wrap around
    wide = rescale_to(t, sums, *multipliers(np.asarray([factor])), np.dtype(np.int32))
    inside = clamped(t, wide, int(bounds.min), int(bounds.max))
    moved = t.node("Add", [inside, t.constant("zero_point", kept.zero, np.int32)])
    return t.node("Cast", [moved], to=onnx.helper.np_dtype_to_tensor_dtype(kept.dtype))


def _integer_result(t: Translation, state: State, seen: str, rank: int) -> str:
    images, (filters, memory) = t.shape(0)[0], t.shape(2)
    units = filters // rank
    w, out = t.tensor(2), t.result()
    data = t.known(2, "weights over time")
    if out.dtype != np.int8 or out.scale.size != 1 or w.scale.size != 1 or w.zero_point.any():
        raise Unsupported(f"its output is {out.dtype}, its weights over time are {w.dtype} with {w.scale.size} scales")
    terms = t.node("Mul", [centred_of(t, seen, state.tensor), widened(t, t.constant("time", data))])
    grouped = t.node("Reshape", [terms, t.whole("shape", (images, units, rank * memory))])
    total = t.node("ReduceSum", [grouped, t.whole("axes", [2])], keepdims=0)
    if t.has(3):
        total = t.node("Add", [total, t.constant("bias", t.known(3, "bias"), np.int32)])
    factor = float(state.tensor.scale[0] * w.scale[0] / out.scale[0])  # of float32
    return rescale_to(t, total, *multipliers(np.asarray([factor])), out.dtype, out.zero)
