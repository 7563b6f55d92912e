"""The LSTM of int8 with a cell of int16, in the integer arithmetic that LiteRT has for it, whatever the rounding.

Source: tensorflow/lite/kernels/lstm_eval.cc (LstmStepInteger8x8_16), unidirectional_sequence_lstm.cc (the scales, which
are of float32). The gates' sums have 3 bits before the point, the gates none; the cell has as many as its scale says.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper

from mtool.compiler.frontend.problems import OWN, Unsupported
from mtool.compiler.frontend.tflite.description import Tensor
from mtool.compiler.frontend.tflite.fixed_point import multipliers
from mtool.compiler.frontend.tflite.lstm_operands import Operands
from mtool.compiler.frontend.tflite.recurrence import State, over_time, sizes
from mtool.compiler.frontend.tflite.rescaling import clamped, divided, rescale_to, unscaled, widened
from mtool.compiler.frontend.tflite.translation import Translation
from mtool.compiler.ir.types import Array

DType = np.dtype[Any]
INT8, INT16, INT32 = np.dtype(np.int8), np.dtype(np.int16), np.dtype(np.int32)
WHOLE = 3  # bits of a gate's sum before the point
UNIT = np.float32(2.0**-12)  # a step of such a sum
MOST_WHOLE = 6  # that LiteRT's hyperbolic tangent has


@dataclass(frozen=True, slots=True)
class _Cell:
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
        inputs = [unscaled(t, value, kind), _plain(t, "weights", data)]
        if biases:
            inputs.append(_plain(t, "bias", np.concatenate([_bias(t, index) for index in biases])))
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
        inputs = [centred, _plain(t, "weights", data)]
        if t.has(at.projection + 1):
            inputs.append(_plain(t, "bias", _bias(t, at.projection + 1)))
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


def _plain(t: Translation, stem: str, data: Array) -> str:
    """Return integers as real numbers, with a scale of 1."""
    return t.dequantise(t.constant(stem, data), data.dtype, np.ones(1, np.float32), np.zeros(1, np.int64))


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
    made = _Cell(t, at, state.tensor, inner, point, clip)
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
