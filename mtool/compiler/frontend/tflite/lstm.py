"""LSTM and RNN, one direction or both, of real numbers or of integers, over a sequence or for one step.

Source: tensorflow/lite/kernels/lstm_eval.cc, basic_rnn.cc. A clipped cell, a projection and a normalised gate are not
ONNX's LSTM: a step is written out, and a Scan repeats it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.tflite import lstm_integer
from mtool.compiler.frontend.tflite.lstm_operands import BACKWARD, FORWARD, ONE, Operands
from mtool.compiler.frontend.tflite.recurrence import State, finish, over_time, real_activation, sizes
from mtool.compiler.frontend.tflite.translation import Translation


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
        return lstm_integer.direction(t, at, cells, width)
    states = [State(t, at.state, (images, width), ("float32",)), State(t, at.cell, (images, cells), ("float32",))]
    return over_time(t, t.real(0), states, _Cell(t, at, width).step, backward=backward)


def _unidirectional(t: Translation) -> None:
    if t.op.option("KernelType"):
        raise Unsupported("it is of the basic kind of kernel, which TFLite Micro does not have either")
    if t.op.option("DiagonalRecurrentTensors"):
        raise Unsupported("its recurrent weights are vectors by an option that LiteRT does not read")
    at = ONE
    width = t.shape(at.recurrent.output)[-1]
    finish(t, _direction(t, at), (*t.shape(0)[:-1], width))


def _bidirectional(t: Translation) -> None:
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


def _rnn(t: Translation) -> None:
    made, width = _simple(t, 1, 4)
    finish(t, made, (*t.shape(0)[:-1], width))


def _bidirectional_rnn(t: Translation) -> None:
    if any(t.has(index) for index in range(9, len(t.op.inputs))):
        raise Unsupported("it has a second input")
    made = [_simple(t, 1, 4), _simple(t, 5, 8, backward=True)]
    _put_both(t, [value for value, _ in made], [width for _, width in made])


TRANSLATIONS = {
    "LSTM": _unidirectional,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _unidirectional,
    "BIDIRECTIONAL_SEQUENCE_LSTM": _bidirectional,
    "RNN": _rnn,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _rnn,
    "BIDIRECTIONAL_SEQUENCE_RNN": _bidirectional_rnn,
}
