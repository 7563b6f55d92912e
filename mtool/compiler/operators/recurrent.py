"""RNN, GRU and LSTM (ai.onnx 7, 14, 22): every direction, initial state, sequence lengths, peepholes, both layouts.

Constant weights that are quantised to 8 bits stay so: a sum of products of floats and integers is scaled once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mtool.base.errors import ModelError
from mtool.compiler.ir import Attributes, DType, Node
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.template import Values
from mtool.compiler.operators.lowering import Lowering, Operator
from mtool.compiler.operators.templates import narrowed, template_node, wide_output, widened


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent(Attributes):
    """RNN, GRU, LSTM.

    functions: for each gate of each direction, an activation's name in lower case, its alpha and its beta.
    clip: what the gates' sums are clamped to, above and below 0; None: they are not.
    batch_first: the first dimension of input and output is the batch, not time.
    direction: "forward", "reverse" or "bidirectional".
    input_forget: an LSTM's input gate is 1 less its forget gate.
    linear_before_reset: a GRU multiplies by the reset gate after the product with the state.
    weights: the scale and zero point of weights that are integers, by the name of the operand ("w", "r").
    dynamic_state: the state is quantised in each step.
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
"""Vectors of the hidden size that a step works in."""

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


@dataclass(frozen=True, slots=True)
class Weights:
    """Integer weights: each is `(value - zero) * scale`, with a scale a row, or one."""

    value: str
    scale: Array
    zero: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentValues(Values):
    """Sizes, and what the template needs of Recurrent.

    activation: the C of each activation, with {x} for its argument; given: the C names of the inputs.
    quantised: the zero point and the scale (in C; None: one a row) of integer weights, by operand.
    """

    steps: int
    batch: int
    size: int
    hidden: int
    directions: int
    gates: int
    kind: str
    reverse: bool
    batch_first: bool
    clip: float | None
    input_forget: bool
    linear_before_reset: bool
    activation: tuple[str, ...]
    operands: tuple[str, ...]
    dynamic_state: bool
    quantised: Mapping[str, Mapping[str, int | str | None]]


def _quantised(ctx: Lowering, node: Node, name: str, value: str) -> Weights | None:
    """Return the integers behind constant weights [directions, rows, columns]; None: there are none, or not simple."""
    kept = Recurrent.of(node).weights
    if name in kept:
        return Weights(value, *kept[name])
    found = ctx.dequantised.get(value)
    if (
        found is None
        or found.value not in ctx.constants
        or ctx.types[found.value].dtype not in (DType.INT8, DType.UINT8)
    ):
        return None
    directions, rows, _ = ctx.types[value].shape
    if not (found.zero_point == found.zero_point[0]).all() or found.axis not in (None, 0, 1):
        return None
    scale = found.scale
    if found.axis is not None:
        scale = np.repeat(scale, rows) if found.axis == 0 else np.tile(scale, directions)
    return Weights(found.value, scale.astype(np.float32), int(found.zero_point[0]))


def _lower(ctx: Lowering, node: Node) -> None:
    operands = dict(zip(INPUTS[node.op], node.inputs, strict=False))
    quantised = {name: kept for name in ("w", "r") if (kept := _quantised(ctx, node, name, operands[name]))}
    shape_of_r = ctx.types[operands["r"]].shape
    operands |= {name: weights.value for name, weights in quantised.items()}
    inputs = {
        name: value if name == "lengths" else widened(ctx, node, value) for name, value in operands.items() if value
    }
    if ctx.types[inputs["x"]].dtype is not DType.FLOAT32:
        raise ModelError(f"{node.op} {node.name!r} has elements of type {ctx.types[inputs['x']].dtype.label}")
    attrs = Recurrent.of(node)
    first, second, size = ctx.types[operands["x"]].shape
    steps, batch = (second, first) if attrs.batch_first else (first, second)
    directions, _, hidden = shape_of_r
    for name, weights in quantised.items():
        if weights.scale.size > 1:
            inputs[f"{name}_scale"] = ctx.constant(f"{node.name}/{name}_scale", weights.scale)
    shapes = [(steps, directions, batch, hidden), (directions, batch, hidden), (directions, batch, hidden)]
    if attrs.batch_first:
        shapes = [(batch, steps, directions, hidden), *[(batch, directions, hidden)] * 2]
    wanted = [*node.outputs, "", "", ""][:3]
    names = ("y", "h", "c")[: 3 if node.op == "LSTM" else 2]
    outputs = {
        name: wide_output(ctx, value) if value else ctx.value(f"{node.name}/{name}", DType.FLOAT32, shape)
        for name, value, shape in zip(names, wanted, shapes, strict=False)
    }
    unknown = [name for name, _, _ in attrs.functions if name not in FORMULAS]
    if unknown:
        raise ModelError(f"{node.op} {node.name!r} has the unknown activation {unknown[0]}")
    values = RecurrentValues(
        steps=steps, batch=batch, size=size, hidden=hidden, directions=directions, gates=GATES[node.op], kind=node.op,
        reverse=attrs.direction == "reverse", batch_first=attrs.batch_first, clip=attrs.clip,
        input_forget=attrs.input_forget, linear_before_reset=attrs.linear_before_reset,
        activation=_activations(attrs.functions), operands=tuple(inputs), dynamic_state=attrs.dynamic_state,
        quantised={
            name: {"zero": weights.zero, "scale": None if weights.scale.size > 1 else repr(weights.scale.item())}
            for name, weights in quantised.items()
        },
    )  # fmt: skip
    macs = steps * batch * directions * GATES[node.op] * hidden * (size + hidden)
    scratch = 4 * (SCRATCH[node.op] + attrs.dynamic_state) * hidden
    over = {name: f"initial_{name}" for name in outputs if f"initial_{name}" in inputs}
    template_node(
        ctx, node, "recurrent", inputs, outputs, values, scratch=scratch, scratch_type="float", math=True, macs=macs,
        overwrites=over,
    )  # fmt: skip
    narrowed(ctx, node, [(outputs[name], value) for name, value in zip(names, wanted, strict=False) if value])


def _activations(functions: tuple[tuple[str, float | None, float | None], ...]) -> tuple[str, ...]:
    return tuple(
        FORMULAS[name].replace("{a}", f"{float(alpha or 0)!r}f").replace("{b}", f"{float(beta or 0)!r}f")
        for name, alpha, beta in functions
    )


LOWERINGS: dict[str, Operator] = dict.fromkeys(("RNN", "GRU", "LSTM"), Operator(_lower, Recurrent))
