"""RNN, GRU and LSTM (ai.onnx 7, 14, 22): every direction, initial state, sequence lengths, peepholes, both layouts.

Constant weights that are quantized to 8 bits stay so: a sum of products of floats and integers is scaled once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np
import onnx

from mtool.base import plural
from mtool.base.errors import ModelError
from mtool.base.frozen import frozen
from mtool.compiler.ir import Attributes, DType, Node, TensorType
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.folding import SLOW
from mtool.compiler.operators.lowering import Lowering, narrowed, template_node, wide_output, widened
from mtool.compiler.operators.onnx_node import IndexRange, OnnxNode, length_of
from mtool.compiler.operators.operator import Case, Draw, Operator
from mtool.compiler.operators.problems import MICROSOFT, OWN, Unsupported


class Recurrent(Attributes):
    """RNN, GRU, LSTM.

    functions: for each gate of each direction, the activation's name in lower case, its alpha and its beta.
    clip: the limit of the gates' sums, above and below 0; None: no limit.
    batch_first: the first dimension of input and output is the batch, not time.
    direction: "forward", "reverse" or "bidirectional".
    input_forget: an LSTM's input gate is 1 less its forget gate.
    linear_before_reset: a GRU multiplies by the reset gate after the product with the state.
    weights: the scale and zero point of integer weights, by the operand's name ("w", "r").
    dynamic_state: the state is quantized in each step.
    """

    functions: tuple[tuple[str, float | None, float | None], ...]
    clip: float | None
    batch_first: bool
    direction: str
    input_forget: bool
    linear_before_reset: bool
    weights: Mapping[str, tuple[Array, int]] = field(default_factory=dict)
    dynamic_state: bool = False


INPUTS = {
    "RNN": ("x", "w", "r", "bias", "lengths", "initial_h"),
    "GRU": ("x", "w", "r", "bias", "lengths", "initial_h"),
    "LSTM": ("x", "w", "r", "bias", "lengths", "initial_h", "initial_c", "peephole"),
}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
SCRATCH = {"RNN": 1, "GRU": 4, "LSTM": 4}
"""The number of temporary vectors of the hidden size in a step."""

FORMULAS = {
    "tanh": "tanhf({x})",
    "sigmoid": "mt_sigmoid_f32({x})",
    "relu": "mt_max_f32({x}, 0.0f)",
    "affine": "{a} * ({x}) + {b}",
    "leakyrelu": "({x} < 0.0f ? {a} * ({x}) : {x})",
    "thresholdedrelu": "({x} > {a} ? {x} : 0.0f)",
    "scaledtanh": "{a} * tanhf({b} * ({x}))",
    "hardsigmoid": "mt_max_f32(mt_min_f32({a} * ({x}) + {b}, 1.0f), 0.0f)",
    "elu": "({x} < 0.0f ? {a} * expm1f({x}) : {x})",
    "softsign": "({x}) / (1.0f + fabsf({x}))",
    "softplus": "mt_softplus_f32({x})",
}


@frozen
class Weights:
    """Integer weights: each is `(value - zero) * scale`, with one scale, or one per row."""

    value: str
    scale: Array
    zero: int


def _quantized(ctx: Lowering, node: Node, name: str, value: str) -> Weights | None:
    """Return the integers behind constant weights [directions, rows, columns]; None if there are none."""
    weights = Recurrent.of(node).weights
    if name in weights:
        return Weights(value, *weights[name])
    stored = ctx.dequantized.get(value)
    if (
        stored is None
        or stored.block
        or stored.value not in ctx.constants
        or ctx.types[stored.value].dtype not in (DType.INT8, DType.UINT8)
    ):
        return None
    directions, rows, _ = ctx.types[value].shape
    if not (stored.zero_point == stored.zero_point[0]).all() or stored.axis not in (None, 0, 1):
        return None
    scale = stored.scale
    if stored.axis is not None:
        scale = np.repeat(scale, rows) if stored.axis == 0 else np.tile(scale, directions)
    return Weights(stored.value, scale.astype(np.float32), int(stored.zero_point[0]))


def _lower(ctx: Lowering, node: Node) -> None:
    operands = dict(zip(INPUTS[node.op], node.inputs, strict=False))
    quantized = {name: w for name in ("w", "r") if (w := _quantized(ctx, node, name, operands[name]))}
    shape_of_r = ctx.types[operands["r"]].shape
    operands |= {name: weights.value for name, weights in quantized.items()}
    inputs = {
        name: value if name == "lengths" else widened(ctx, node, value) for name, value in operands.items() if value
    }
    if ctx.types[inputs["x"]].dtype is not DType.FLOAT32:
        raise ModelError(f"{node.op} {node.name!r} has elements of type {ctx.types[inputs['x']].dtype.label}")
    attrs = Recurrent.of(node)
    first, second, size = ctx.types[operands["x"]].shape
    steps, batch = (second, first) if attrs.batch_first else (first, second)
    directions, _, hidden = shape_of_r
    for name, weights in quantized.items():
        if weights.scale.size > 1:
            inputs[f"{name}_scale"] = ctx.constant(f"{node.name}/{name}_scale", weights.scale)
    shapes = [(steps, directions, batch, hidden), (directions, batch, hidden), (directions, batch, hidden)]
    if attrs.batch_first:
        shapes = [(batch, steps, directions, hidden), *[(batch, directions, hidden)] * 2]
    results = [*node.outputs, "", "", ""][:3]
    names = ("y", "h", "c")[: 3 if node.op == "LSTM" else 2]
    outputs = {
        name: wide_output(ctx, value) if value else ctx.value(f"{node.name}/{name}", DType.FLOAT32, shape)
        for name, value, shape in zip(names, results, shapes, strict=False)
    }
    unknown = [name for name, _, _ in attrs.functions if name not in FORMULAS]
    if unknown:
        raise ModelError(f"{node.op} {node.name!r} has the unknown activation {unknown[0]}")
    values = {
        "steps": steps, "batch": batch, "size": size, "hidden": hidden, "directions": directions,
        "gates": GATES[node.op], "kind": node.op, "reverse": attrs.direction == "reverse",
        "batch_first": attrs.batch_first, "clip": attrs.clip, "input_forget": attrs.input_forget,
        "linear_before_reset": attrs.linear_before_reset, "activation": _activations(attrs.functions),
        "operands": tuple(inputs), "dynamic_state": attrs.dynamic_state,
        # The zero point and the scale (in C; None: one per row) of integer weights, by operand.
        "quantized": {
            name: {"zero": weights.zero, "scale": None if weights.scale.size > 1 else repr(weights.scale.item())}
            for name, weights in quantized.items()
        },
    }  # fmt: skip
    macs = steps * batch * directions * GATES[node.op] * hidden * (size + hidden)
    scratch = 4 * (SCRATCH[node.op] + attrs.dynamic_state) * hidden
    over = {name: f"initial_{name}" for name in outputs if f"initial_{name}" in inputs}
    template_node(
        ctx, node, "recurrent", inputs, outputs, values, scratch=scratch, scratch_type="float", math=True, macs=macs,
        overwrites=over,
    )  # fmt: skip
    narrowed(ctx, node, [(outputs[name], value) for name, value in zip(names, results, strict=False) if value])


def _activations(functions: tuple[tuple[str, float | None, float | None], ...]) -> tuple[str, ...]:
    return tuple(
        FORMULAS[name].replace("{a}", f"{float(alpha or 0)!r}f").replace("{b}", f"{float(beta or 0)!r}f")
        for name, alpha, beta in functions
    )


PARAMETERS: dict[str, tuple[float | None, float | None]] = {
    "affine": (1.0, 0.0), "leakyrelu": (0.01, None), "thresholdedrelu": (1.0, None), "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5), "elu": (1.0, None),
}  # fmt: skip
"""Default alpha and beta of the activations that have them."""


def _form(node: OnnxNode) -> None:
    """RNN, GRU, LSTM: make each activation its name, alpha and beta."""
    default = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}[node.op]
    directions, attrs = node.kind(1).shape[0], node.attrs
    names = list(attrs.get("activations") or ()) or list(default) * directions
    if len(names) != len(default) * directions:
        raise Unsupported(f"it has {plural.count(len(names), 'activation')}; expected {len(default) * directions}")
    alphas, betas = list(attrs.get("activation_alpha") or ()), list(attrs.get("activation_beta") or ())
    functions = []
    for name in names:
        alpha, beta = PARAMETERS.get(name.lower(), (None, None))
        alpha = alphas.pop(0) if alpha is not None and alphas else alpha
        beta = betas.pop(0) if beta is not None and betas else beta
        functions.append((name.lower(), alpha, beta))
    recurrent = Recurrent(
        functions=tuple(functions), clip=attrs.get("clip"), batch_first=bool(attrs.get("layout")),
        direction=attrs.get("direction", "forward"), input_forget=bool(attrs.get("input_forget")),
        linear_before_reset=bool(attrs.get("linear_before_reset")),
        weights=attrs.get("weights", {}), dynamic_state=attrs.get("dynamic_state", False),  # of DynamicQuantizeLSTM
    )  # fmt: skip
    node.emit(recurrent)


def _fits_weights(node: OnnxNode) -> bool:
    (first, second, features), (directions, rows, width) = node.ins[0], node.ins[1]
    gates = GATES[node.op]
    batch, size = (first if node.attrs.get("layout") else second), rows // gates
    state = (batch, directions, size) if node.attrs.get("layout") else (directions, batch, size)
    return (
        rows == gates * size and width == features and node.attrs.get("hidden_size", size) == size
        and directions == (2 if node.attrs.get("direction") == "bidirectional" else 1)
        and node.ins[2] == (directions, rows, size) and node.is_absent_or(3, (directions, 2 * rows))
        and node.is_absent_or(4, (batch,)) and node.is_absent_or(5, state) and node.is_absent_or(6, state)
        and node.is_absent_or(7, (directions, 3 * size))
    )  # fmt: skip


def _lengths(node: OnnxNode) -> IndexRange:
    return length_of(4, node.shapes[0][1 if node.attrs.get("layout") else 0])


def _dynamic_lstm(write: OnnxNode) -> None:
    """DynamicQuantizeLSTM: an LSTM with 8-bit weights [directions, columns, rows], W and R.

    The input is quantized to uint8 by its range over all steps, the state by its range at each step.
    """
    state, proto = write.state, onnx.NodeProto()
    proto.CopyFrom(write.proto)
    proto.op_type, proto.domain = "LSTM", ""
    codes, scale, point = write.several("DynamicQuantizeLinear", 3, write.input(0))
    del proto.input[:]
    proto.input.extend([write("DequantizeLinear", codes, scale, point), "", "", *write.inputs[3:8]])
    weights = {}
    for name, index, first in (("w", 1, 8), ("r", 2, 10)):
        data = state.value_of(write.input(index), name.upper())
        scales, zeros = (state.value_of(write.input(first + n), role) for n, role in ((0, "scale"), (1, "zero point")))
        if not (zeros == zeros.reshape(-1)[0]).all():
            raise Unsupported("its weights have more than one zero point")
        directions, _, rows = data.shape
        proto.input[index] = write.constant(data.transpose(0, 2, 1), data.dtype)
        per_row = scales.reshape(directions, -1) if scales.size > 1 else scales.reshape(1, 1)
        full = np.broadcast_to(per_row, (directions, rows)) if scales.size > 1 else per_row
        weights[name] = full.reshape(-1).astype(np.float32), int(zeros.reshape(-1)[0])
    (steps, batch, _), (directions, hidden, _) = write.shape, write.kind(2).shape
    shapes = [(steps, directions, batch, hidden), (directions, batch, hidden), (directions, batch, hidden)]
    for output, shape in zip(write.outputs, shapes, strict=False):
        state.types[output] = TensorType(DType.FLOAT32, shape)
    attrs = {**write.attrs, "weights": weights, "dynamic_state": True}
    _form(OnnxNode(state, proto, write.origin, attrs, 14))


# Recurrent integer operators as one node each, for backends to recognise; compiled models have them written out.
#
# Sources: mtool/compiler/frontend/tflite/lstm_integer.py and svdf.py, which have their arithmetic.


class IntegerLstm(Attributes):
    """An LSTM of int8 with a cell of int16.

    Inputs are x, the hidden state, the cell, then for each of the gates input, forget, cell and output its weights, its
    recurrent weights and its bias. Outputs are the results, unless there is only one step, and both states.

    steps: the number of steps of the sequence.
    time_major: x is [steps, batches, features] (1), or [batches, steps, features] (0).
    point: the cell's integer bits.
    clip: the cell's limit, in its quantized steps; 0: no limit.
    inner_scale, inner_zero: the quantization of the results.
    """

    steps: int
    time_major: int
    point: int
    clip: int
    inner_scale: float
    inner_zero: int


class IntegerSvdf(Attributes):
    """An SVDF of int8: inputs are x, the state, the feature weights, the time weights and the bias.

    Outputs are the results and the state.

    rank: filters per unit.
    """

    rank: int


def _never(ctx: Lowering, node: Node) -> None:
    raise AssertionError(f"{node.op} {node.name} is for backends to recognise")


def _of_lstm(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    assert isinstance(attrs, IntegerLstm)
    x, hidden, cell = inputs[:3]
    rows = TensorType(hidden.dtype, (*x.shape[:-1], hidden.shape[-1]))
    return (hidden, cell) if attrs.steps == 1 else (rows, hidden, cell)


def _of_svdf(attrs: Attributes, inputs: Sequence[TensorType]) -> Sequence[TensorType]:
    assert isinstance(attrs, IntegerSvdf)
    x, state, features = inputs[:3]
    return TensorType(x.dtype, (x.shape[0], features.shape[0] // attrs.rank)), state


def _cases(draw: Draw, op: Operator) -> Case:
    rng, value = draw.rng, draw.pick(rank=3)
    if not value.size:
        raise ValueError("onnxruntime crashes on it")
    hidden, ways, rows = rng.randint(1, 4), 2 if rng.random() < 0.3 else 1, GATES[op.name]
    inputs = [value.name, *(draw.normal((ways, rows * hidden, size)) for size in (value.shape[2], hidden))]
    if rng.random() < 0.6:
        inputs.append(draw.normal((ways, 2 * rows * hidden)))
    way = "bidirectional" if ways == 2 else rng.choice(("forward", "reverse"))
    attrs = {"linear_before_reset": rng.randint(0, 1)} if op.name == "GRU" else {}
    return Case(inputs, {"hidden_size": hidden, "direction": way, **attrs}, 3 if op.name == "LSTM" else 2)


def _dynamic_cases(draw: Draw, op: Operator) -> Case:
    value = draw.pick(rank=3)
    codes = [draw.constant(draw.numbers().integers(-64, 64, (1, size, 8)), np.int8) for size in (value.shape[2], 2)]
    scale, zero = draw.constant([0.01], np.float32), draw.constant([0], np.int8)
    inputs = [value.name, *codes, draw.normal((1, 16)), "", "", "", "", scale, zero, scale, zero]
    return Case(inputs, {"hidden_size": 2, "direction": "forward"}, 3)


OPERATORS = (
    *(
        Operator(
            op, cases=_cases, attributes=Recurrent, canonical=_form, index_ranges=_lengths, lower=_lower,
            words={"direction": ("forward", "reverse", "bidirectional")}, folding=replace(SLOW, of_nothing=False),
            check_shapes=_fits_weights,
        )
        for op in GATES
    ),
    Operator("DynamicQuantizeLSTM", domain=MICROSOFT, cases=_dynamic_cases, expand=_dynamic_lstm),
    Operator("IntegerLstm", domain=OWN, attributes=IntegerLstm, infer=_of_lstm, lower=_never),
    Operator("IntegerSvdf", domain=OWN, attributes=IntegerSvdf, infer=_of_svdf, lower=_never),
)  # fmt: skip
