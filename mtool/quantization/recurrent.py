"""LSTM, GRU and RNN in integers: each becomes a Scan, whose body has a step in QDQ form.

onnxruntime's quantizer leaves these operators in float. The scheme, for activations of 8 bits:

  input, state   8 bits: the operands of the two matrix products, whose weights have a scale per row
  sums           8 bits: the arguments of the activations. Their range is the one with the least error after the
                 activation, which is flat at its ends: the whole range would cost 3 to 9 dB more
  gates          8 bits: results of the activations, so that each activation is a table of 256 elements
  cell           16 bits: an LSTM's cell and a GRU's state are sums over all steps, so that their errors add up

With activations of 16 bits only the operands of the products are integers; all else stays float.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mtool.base.tensors import Array, Sample
from mtool.compiler.frontend.inference import attributes
from mtool.quantization.rounding import drop_unread
from mtool.verification import reference

OPSET = 21  # QuantizeLinear to int16
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_ACTIVATIONS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_CURVES: Mapping[str, Callable[[Array], Array]] = {"Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Tanh": np.tanh}
"""The activations that are flat at both ends."""
_PLAIN = {*_CURVES, "Relu", "Softplus", "Softsign"}
_INPUTS = {"x": 0, "w": 1, "r": 2, "bias": 3, "lengths": 4, "initial_h": 5, "initial_c": 6, "peephole": 7}
_CANDIDATES = 48  # ranges that are tried
_AT_ONCE = 8  # samples whose values in all steps are held in memory
_MOST_VALUES = 2**16  # of a tensor, over all samples
_HEADROOM = 2.0  # of a 16-bit range, which can afford it: saturation of a cell lasts


@dataclass(frozen=True, slots=True)
class Grid:
    """Integers of type `kind` that represent `(value - zero) * scale`."""

    scale: np.float32
    zero: int
    kind: np.dtype[Any]

    @classmethod
    def of(cls, low: float, high: float, kind: str, *, symmetric: bool) -> "Grid":
        """Return the grid over a range, which is extended to contain 0."""
        dtype = np.dtype(kind)
        info = np.iinfo(dtype)
        low, high = min(low, 0.0), max(high, 0.0)
        if symmetric or dtype.itemsize > 1:
            middle = 0 if info.min < 0 else 128
            return cls(_positive(max(-low, high) / (info.max - middle)), middle, dtype)
        scale = _positive((high - low) / (info.max - info.min))
        return cls(scale, int(np.clip(np.rint(info.min - low / scale), info.min, info.max)), dtype)

    @property
    def parameters(self) -> tuple[Array, Array]:
        """The scale and the zero point, as QuantizeLinear reads them."""
        return np.asarray(self.scale), np.asarray(self.zero, self.kind)

    def codes(self, values: Array) -> Array:
        """Return the integers for values."""
        info = np.iinfo(self.kind)
        codes: Array = np.clip(np.rint(values / self.scale) + self.zero, info.min, info.max).astype(self.kind)
        return codes

    def rounded(self, values: Array) -> Array:
        """Return the nearest values on the grid."""
        return (self.codes(values).astype(np.float64) - self.zero) * self.scale


def _positive(scale: float) -> np.float32:
    return np.float32(scale) if np.float32(scale) > np.finfo(np.float32).tiny else np.float32(1)


@dataclass(slots=True)
class _Statistics:
    """The values of one tensor over the calibration data: their range, some of them, and the activation behind it."""

    curve: str
    low: float = 0.0
    high: float = 0.0
    samples: list[Array] = field(default_factory=list)

    def add(self, values: Array, most: int) -> None:
        """Note the values of a sample, and keep at most `most` of them."""
        flat = values.reshape(-1)
        if flat.size:
            self.low, self.high = min(self.low, float(flat.min())), max(self.high, float(flat.max()))
            self.samples.append(flat[:: -(-flat.size // most)].astype(np.float64))

    def wide_grid(self) -> Grid:
        """Return the grid of 16 bits."""
        return Grid.of(_HEADROOM * self.low, _HEADROOM * self.high, "int16", symmetric=True)

    def grid(self, kind: str, *, symmetric: bool) -> Grid:
        """Return the grid of 8 bits with the least mean square error of the values after the activation."""
        after = _CURVES.get(self.curve, np.asarray)
        values = np.concatenate([*self.samples, np.zeros(1)])
        expected = after(values)
        furthest = max(-self.low, self.high)
        limits = [furthest * part / _CANDIDATES for part in range(_CANDIDATES, _CANDIDATES // 12 - 1, -1)]
        ranges = ((max(self.low, -limit), min(self.high, limit)) for limit in limits)
        grids = [Grid.of(*ends, kind, symmetric=symmetric) for ends in ranges]
        return min(grids, key=lambda grid: float(np.square(after(grid.rounded(values)) - expected).mean()))


def _reason_for_float(node: onnx.NodeProto, shape: Sequence[int], constants: Mapping[str, onnx.TensorProto]) -> str:
    """Return why a recurrent operator can't be quantized; "": it can."""
    attrs, inputs = attributes(node), dict(zip(_INPUTS, node.input, strict=False))
    held = [constants.get(name) for name in filter(None, (inputs.get(role) for role in ("w", "r", "bias")))]
    kinds = {constants[name].data_type for name in node.input if name in constants}
    names, default = attrs.get("activations", ()), _ACTIVATIONS[node.op_type]
    ways = 2 if attrs.get("direction") == "bidirectional" else 1
    unknown = sorted({*names} - _PLAIN)
    reasons = {
        "it has sequence lengths": inputs.get("lengths"),
        "it has peepholes": inputs.get("peephole"),
        "its weights are not constant": None in held,
        "its weights are not float32": kinds - {TensorProto.FLOAT},
        "it has clipped sums": attrs.get("clip"),
        "it has coupled gates": attrs.get("input_forget"),
        "it has the batch first": attrs.get("layout"),
        f"it has the activation {', '.join(unknown[:1])}": unknown,
        "its directions have different activations": names[: len(default)] * ways != names,
        "its input's shape is unknown": not shape or 0 in shape,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


# A step.


@dataclass(slots=True)
class Body:
    """The body of a Scan under construction: float, with its tensors noted in `seen`; or, with grids, in QDQ form.

    Attributes:
        stem: the start of all names.
        grids: the grid of each role; none: the body is float.
        nodes, constants: the body's.
        seen: the tensor of each role, with the activation that reads it.
        joined: values side by side.
    """

    stem: str
    grids: Mapping[str, Grid]
    per_channel: bool = True
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    seen: dict[str, tuple[str, str]] = field(default_factory=dict)
    joined: dict[tuple[str, ...], str] = field(default_factory=dict)

    def __call__(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        """Append a node and return its output, or the list of its outputs."""
        names = [f"{self.stem}/{op} {len(self.nodes)}" + f".{n}" * (outputs > 1) for n in range(outputs)]
        self.nodes.append(helper.make_node(op, [*inputs], names, name=f"{self.stem}/{op} {len(self.nodes)}", **attrs))
        return names if outputs > 1 else names[0]

    def constant(self, data: Array) -> str:
        """Append a constant."""
        name = f"{self.stem}/constant {len(self.constants)}"
        self.constants.append(numpy_helper.from_array(data, name))
        return name

    def stored(self, role: str, value: str, curve: str = "") -> str:
        """Return a value as it is stored."""
        self.seen[role] = value, curve
        return self._converted("QuantizeLinear", role, value)

    def used(self, role: str, value: str) -> str:
        """Return the float of a stored value."""
        return self._converted("DequantizeLinear", role, value)

    def point(self, role: str, value: str, curve: str = "") -> str:
        """Return a value as it is after it was stored."""
        return self.used(role, self.stored(role, value, curve))

    def _converted(self, op: str, role: str, value: str) -> str:
        if role not in self.grids:
            return value
        return str(self(op, value, *map(self.constant, self.grids[role].parameters)))

    def sums(self, bias: Array, **operands: tuple[str, Array]) -> str:
        """Append sums of products: for each role a stored value and its weights.

        Sums that are rounded to 8 bits are of integers alone: the values side by side. The integers have one scale, the
        row's, so that weights of a much smaller product lose bits. Sums that stay in float are of two products.
        """
        if self.grids and "gates" not in self.grids:
            products = [self.product(value, {role: rows}) for role, (value, rows) in operands.items()]
            return str(functools.reduce(functools.partial(self, "Add"), [*products, self.constant(bias)]))
        values = tuple(value for value, _ in operands.values())
        if len(values) > 1 and values not in self.joined:
            self.joined[values] = self("Concat", *values, axis=1)
        weights = {role: rows for role, (_, rows) in operands.items()}
        return self.product(self.joined.get(values, values[0]), weights, bias)

    def product(self, value: str, weights: Mapping[str, Array], bias: Array | None = None) -> str:
        """Append the product of stored values, side by side, with their weights.

        Weights are in units of a value's step, and the values' zero points are in the bias.
        """
        bias = np.zeros(len(next(iter(weights.values()))), np.float32) if bias is None else bias
        if not self.grids:
            inputs = [value, self.constant(np.concatenate([*weights.values()], 1)), self.constant(bias)]
            return str(self("Gemm", *inputs, transB=1))
        grids = [(self.grids[role], rows) for role, rows in weights.items()]
        rows = np.concatenate([rows.astype(np.float64) * grid.scale for grid, rows in grids], 1)
        largest = np.abs(rows).max(axis=1 if self.per_channel else None, keepdims=True)
        scale = np.where(largest > 0, largest / 127, 1).astype(np.float32)
        codes = np.clip(np.rint(rows / scale), -127, 127).astype(np.int8)
        zeros = codes @ np.concatenate([np.full(part.shape[1], grid.zero) for grid, part in grids])
        scale = scale.reshape(-1)
        steps, wide = np.rint(bias / scale.astype(np.float64)) - zeros, (bias - zeros * scale).astype(np.float32)
        is_whole = np.abs(steps).max(initial=0) < 2**31
        added = self._constant(steps.astype(np.int32), scale) if is_whole else self.constant(wide)
        one = [self.constant(np.ones((), np.float32)), self.constant(np.zeros((), grids[0][0].kind))]
        return str(self("Gemm", self("DequantizeLinear", value, *one), self._constant(codes, scale), added, transB=1))

    def _constant(self, codes: Array, scale: Array) -> str:
        by_row = scale.size > 1
        scales = self.constant(scale if by_row else scale.reshape(()))
        zeros = self.constant(np.zeros(scale.shape if by_row else (), codes.dtype))
        return str(self("DequantizeLinear", self.constant(codes), scales, zeros, **({"axis": 0} if by_row else {})))

    def activated(self, role: str, name: str, value: str) -> str:
        """Append an activation between two grids."""
        return self.point(f"{role} out", self(name, self.point(role, value, name)))


@dataclass(frozen=True, slots=True)
class _Weights:
    """Those of one direction: w [rows, size], r [rows, hidden], and the biases of both products, [rows]."""

    w: Array
    r: Array
    of_input: Array
    of_state: Array
    activations: Sequence[str]
    linear_before_reset: bool

    @property
    def hidden(self) -> int:
        """The number of hidden values."""
        return int(self.r.shape[1])


def _lstm(body: Body, row: str, states: Sequence[str], at: _Weights) -> list[str]:
    hidden, cell = states
    bias, three = at.of_input + at.of_state, 3 * at.hidden
    gates, candidate = (
        body.activated(role, activation, body.sums(bias[rows], x=(row, at.w[rows]), h=(hidden, at.r[rows])))
        for role, activation, rows in (
            ("gates", at.activations[0], slice(three)), ("candidate", at.activations[1], slice(three, None))
        )
    )  # fmt: skip
    let_in, opened, forget = body("Split", gates, outputs=3, axis=1, num_outputs=3)
    retained = body("Mul", forget, body.used("cell", cell))
    after = body.stored("cell", body("Add", retained, body("Mul", let_in, candidate)))
    seen = body.activated("squashed", at.activations[2], body.used("cell", after))
    return [body.stored("h", body("Mul", opened, seen)), after]


def _gru(body: Body, row: str, states: Sequence[str], at: _Weights) -> list[str]:
    hidden, state = states
    first, last = slice(2 * at.hidden), slice(2 * at.hidden, None)
    bias = at.of_input + at.of_state
    sums = body.sums(bias[first], x=(row, at.w[first]), h=(hidden, at.r[first]))
    gates = body.activated("gates", at.activations[0], sums)
    update, reset = body("Split", gates, outputs=2, axis=1, num_outputs=2)
    if at.linear_before_reset:
        recurrent = body("Mul", reset, body.sums(at.of_state[last], h=(hidden, at.r[last])))
        sums = body("Add", body.sums(at.of_input[last], x=(row, at.w[last])), recurrent)
    else:
        recurrent = body.stored("reset", body("Mul", reset, body.used("h", hidden)))
        sums = body.sums(bias[last], x=(row, at.w[last]), reset=(recurrent, at.r[last]))
    candidate = body.activated("candidate", at.activations[1], sums)
    remaining = body("Sub", body.constant(np.ones((), np.float32)), update)
    retained = body("Mul", update, body.used("cell", state))
    after = body.stored("cell", body("Add", body("Mul", remaining, candidate), retained))
    return [body.stored("h", body.used("cell", after)), after]


def _rnn(body: Body, row: str, states: Sequence[str], at: _Weights) -> list[str]:
    sums = body.sums(at.of_input + at.of_state, x=(row, at.w), h=(states[0], at.r))
    return [body.stored("h", body(at.activations[0], body.point("gates", sums, at.activations[0])))]


_STEPS = {"LSTM": _lstm, "GRU": _gru, "RNN": _rnn}
_STATES = {"LSTM": ("h", "cell"), "GRU": ("h", "cell"), "RNN": ("h",)}


# The operators of a model.


@dataclass(frozen=True, slots=True)
class Layer:
    """A recurrent operator of a float model that can be quantized.

    Attributes:
        node: the operator.
        operands: its constant inputs, by name.
        steps, batch, size: the dimensions of its input.
    """

    node: onnx.NodeProto
    operands: Mapping[str, Array]
    steps: int
    batch: int
    size: int

    @property
    def ways(self) -> list[bool]:
        """For each direction, whether it begins at the end."""
        ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
        return ways[attributes(self.node).get("direction", "forward")]

    def weights(self, way: int) -> _Weights:
        """Return the weights of a direction."""
        w, r = self.operands["w"][way], self.operands["r"][way]
        bias = self.operands["bias"][way] if "bias" in self.operands else np.zeros(2 * len(w), np.float32)
        attrs, default = attributes(self.node), _ACTIVATIONS[self.node.op_type]
        names = attrs.get("activations", ())[: len(default)] or default
        return _Weights(w, r, bias[: len(w)], bias[len(w) :], names, bool(attrs.get("linear_before_reset")))

    def tensor_of(self, name: str) -> str:
        """Return the tensor of an input; "": it is absent."""
        place = _INPUTS[name]
        return str(self.node.input[place]) if place < len(self.node.input) else ""


def layers(model: onnx.ModelProto) -> tuple[list[Layer], dict[str, str]]:
    """Return the recurrent operators that can be quantized, and the reason for each that stays in float, by name.

    Args:
        model: a float model whose tensors all have fixed shapes.
    """
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    shapes = {value.name: value.type.tensor_type.shape.dim for value in (*graph.input, *graph.value_info)}
    result, refused = [], {}
    for node in graph.node:
        if node.op_type not in GATES or node.domain:
            continue
        shape = [dim.dim_value for dim in shapes.get(node.input[0], ())]
        if reason := _reason_for_float(node, shape, constants):
            refused[node.name] = reason
            continue
        inputs = dict(zip(_INPUTS, node.input, strict=False))
        held = {name: numpy_helper.to_array(constants[value]) for name, value in inputs.items() if value in constants}
        result.append(Layer(node, held, *shape))
    return result, refused


def _written(
    layer: Layer, grids: Mapping[str, Grid], stored: str = "", *, per_channel: bool = True
) -> tuple[Body, list[Body]]:
    """Write a layer out.

    Args:
        layer: the layer.
        grids: the grid of each role; none: all is float, and the Scan of each direction also returns what its body has
            seen, as f"{stem}/{role}".
        stored: the layer's input on its grid; "": there is none.
        per_channel: whether weights have a scale for each row.

    Returns:
        The nodes that replace the layer, and the body of each direction.
    """
    op, name = layer.node.op_type, layer.node.name
    outside = Body(name, grids, per_channel)
    x = stored or outside.stored("x", layer.tensor_of("x"))
    rows, lasts, bodies = [], [], []
    for way, backwards in enumerate(layer.ways):
        body, weights = Body(f"{name}/{way}", grids, per_channel), layer.weights(way)
        shape = (layer.batch, weights.hidden)
        row, inside = f"{body.stem}/row", [f"{body.stem}/{role}" for role in _STATES[op]]
        if not grids:
            body.stored("x", row)
        after = _STEPS[op](body, row, inside, weights)
        seen = {f"{body.stem}/{role}": value for role, (value, _) in body.seen.items()} if not grids else {}
        results = [body("Identity", value) for value in (*after, after[0], *seen.values())]
        ins = [_info(value, role, grids, shape) for value, role in zip(inside, _STATES[op], strict=True)]
        ins.append(_info(row, "x", grids, (layer.batch, layer.size)))
        roles = [*_STATES[op], "h", *([""] * len(seen))]
        outs = [_info(value, role, grids, shape if role else None) for value, role in zip(results, roles, strict=True)]
        graph = helper.make_graph(body.nodes, "step", ins, outs, body.constants)
        turned = {"scan_input_directions": [1], "scan_output_directions": [1] * (1 + len(seen))} if backwards else {}
        first = [_first(layer, outside, role, way, shape) for role in _STATES[op]]
        outputs = outside("Scan", *first, x, outputs=len(results), body=graph, num_scan_inputs=1, **turned)
        outside.nodes[-1].output[len(first) + 1 :] = seen
        lasts.append(outputs[: len(first)])
        rows.append(outputs[len(first)])
        bodies.append(body)
    ends = [[*state] for state in zip(*lasts, strict=True)]
    # A GRU's cell is its state with 16 bits.
    states = {"LSTM": [("h", ends[0]), ("cell", ends[-1])], "GRU": [("cell", ends[-1])], "RNN": [("h", ends[0])]}[op]
    for output, (role, values), axis in zip(layer.node.output, [("h", rows), *states], (1, 0, 0), strict=False):
        if output:
            _put(outside, role, values, axis, output)
    return outside, bodies


def _info(name: str, role: str, grids: Mapping[str, Grid], shape: tuple[int, ...] | None) -> onnx.ValueInfoProto:
    grid = grids.get(role)
    kind = TensorProto.FLOAT if grid is None else helper.np_dtype_to_tensor_dtype(grid.kind)
    return helper.make_tensor_value_info(name, kind, shape)


def _first(layer: Layer, outside: Body, role: str, way: int, shape: tuple[int, ...]) -> str:
    """Return the first state of a direction: one of the layer's inputs, or zeros."""
    initial = "initial_c" if role == "cell" and layer.node.op_type == "LSTM" else "initial_h"
    tensor = layer.tensor_of(initial)
    if tensor and initial not in layer.operands:
        return outside.stored(role, outside("Gather", tensor, outside.constant(np.asarray(way)), axis=0))
    values = layer.operands[initial][way] if tensor else np.zeros(shape, np.float32)
    grid = outside.grids.get(role)
    return outside.constant(values if grid is None else grid.codes(values))


def _put(outside: Body, role: str, values: Sequence[str], axis: int, output: str) -> None:
    """Make the results of all directions an output."""
    along = outside.constant(np.asarray([axis]))
    parts = [outside("Unsqueeze", value, along) for value in values]
    outside.used(role, outside("Concat", *parts, axis=axis) if len(parts) > 1 else parts[0])
    outside.nodes[-1].output[0] = output


def _replace(model: onnx.ModelProto, node: onnx.NodeProto, outside: Body) -> None:
    graph = model.graph
    place = [*graph.node].index(node)
    after = [*graph.node][place + 1 :]
    del graph.node[place:]
    graph.node.extend([*outside.nodes, *after])
    graph.initializer.extend(outside.constants)


def grids_of(
    model: onnx.ModelProto, rnns: Sequence[Layer], samples: Sequence[Sample], kind: str, path: Path, *, symmetric: bool
) -> dict[str, dict[str, Grid]]:
    """Return the grid of each role in each recurrent layer, by the values in all steps of a float model.

    Args:
        model: the model.
        rnns: its recurrent layers.
        samples: calibration data.
        kind: the type of activations.
        path: where a model may be written.
        symmetric: whether the zero points are the middle of their type's range.
    """
    if not rnns:
        return {}
    copy, seen, outputs = onnx.ModelProto(), dict[str, dict[str, _Statistics]](), dict[str, _Statistics]()
    copy.CopyFrom(model)
    for layer in rnns:
        curves = seen.setdefault(layer.node.name, {})
        outside, bodies = _written(layer, {})
        _replace(copy, layer.node, outside)
        for body in bodies:
            for role, (_, curve) in body.seen.items():
                outputs[f"{body.stem}/{role}"] = curves.setdefault(role, _Statistics(curve))
    del copy.graph.output[:]
    copy.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs)
    onnx.save(copy, str(path))
    for first in range(0, len(samples), _AT_ONCE):
        for values in reference.outputs(path, samples[first : first + _AT_ONCE]):
            for name, output in outputs.items():
                output.add(values[name], max(_MOST_VALUES // len(samples), 1))
    return {
        layer: {
            role: seen.wide_grid() if kind == "int16" or role == "cell" else seen.grid(kind, symmetric=symmetric)
            for role, seen in curves.items()
            if kind != "int16" or role in ("x", "h", "reset")
        }
        for layer, curves in seen.items()
    }


def quantized(
    model: onnx.ModelProto, layers: Sequence[Layer], grids: Mapping[str, Mapping[str, Grid]], *, per_channel: bool
) -> None:
    """Replace recurrent operators by Scans in QDQ form.

    Args:
        model: the model, which onnxruntime has quantized apart from these operators.
        layers: the operators.
        grids: for each operator, the grid of each role.
        per_channel: whether weights have a scale for each row.
    """
    for layer in layers:
        graph = model.graph
        node = next(node for node in graph.node if node.name == layer.node.name)
        layer_grids = dict(grids[node.name])
        maker = next((maker for maker in graph.node if node.input[0] in maker.output), None)
        stored = ""
        if maker is not None and maker.op_type == "DequantizeLinear":
            there = {tensor.name: tensor for tensor in graph.initializer}
            scale, zero = (numpy_helper.to_array(there[name]) for name in maker.input[1:])
            if scale.size == 1 and zero.dtype == layer_grids["x"].kind:
                layer_grids["x"], stored = Grid(np.float32(scale.item()), zero.item(), zero.dtype), maker.input[0]
        _replace(model, node, _written(replace(layer, node=node), layer_grids, stored, per_channel=per_channel)[0])
        for output in filter(None, node.output):
            _move_first(graph, output)
    drop_unread(model)


def _move_first(graph: onnx.GraphProto, value: str) -> None:
    """Move the integers of a result, which may be the last row alone, before they become floats."""
    maker = next(node for node in graph.node if value in node.output)
    readers = [node for node in graph.node if value in node.input]
    is_output = any(value == output.name for output in graph.output)
    if maker.op_type != "DequantizeLinear" or is_output or [node.op_type in _MOVES for node in readers] != [True]:
        return
    (move,), after = readers, readers[0].output[0]
    move.input[0], move.output[0] = maker.input[0], f"{after}/integers"
    graph.node.remove(maker)
    maker.input[0], maker.output[0] = move.output[0], after
    graph.node.insert([*graph.node].index(move) + 1, maker)
    _move_first(graph, after)


_MOVES = ("Squeeze", "Unsqueeze", "Reshape", "Flatten", "Transpose", "Slice", "Gather", "Identity")


def same_grid(model: onnx.ModelProto, layers: Sequence[Layer]) -> dict[str, str]:
    """Return the tensors with the results of a layer, possibly moved, and the layer's name.

    A quantizer that gives them the layer's own grid avoids another rounding.
    """
    tensors = {}
    for layer in layers:
        results = layer.node.output[:1] if layer.node.op_type == "GRU" else layer.node.output[:2]
        waiting = [name for name in results if name]
        while waiting:
            value = waiting.pop()
            tensors[value] = layer.node.name
            moves = (node for node in model.graph.node if node.op_type in _MOVES and node.input[0] == value)
            waiting += [node.output[0] for node in moves]
    return tensors
