"""Elementwise operators of ai.onnx: each a few words of scalar expression, broadcast by NumPy's rule."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from mtool.compiler.ir import Attributes, DType, Expr, Node
from mtool.compiler.ir.expr import call, const
from mtool.compiler.operators.activations import (
    Elu,
    Gelu,
    HardSigmoid,
    LeakyRelu,
    Selu,
    celu,
    elu,
    gelu,
    hard_sigmoid,
    leaky,
    number_like,
    prelu,
    selu,
)
from mtool.compiler.operators.lowering import Epsilon, Lowering, Operator, moves_integers

Build = Callable[..., Expr]
A = TypeVar("A", bound=Attributes)
MOST = 32  # operands of one expression


@dataclass(frozen=True, slots=True, kw_only=True)
class IsInf(Attributes):
    """The infinities that count (1)."""

    detect_negative: int = 1
    detect_positive: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Mod(Attributes):
    """fmod: the result has the sign of the dividend, as C's fmod (1), or of the divisor (0)."""

    fmod: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BitShift(Attributes):
    """direction: "LEFT" or "RIGHT"."""

    direction: str = "LEFT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast(Attributes):
    """saturate: what is too large for a float of 8 bits becomes its largest number (1) or not (0)."""

    saturate: int = 1


def _compare(op: str) -> Build:
    return lambda a, b: call(op, a, b, dtype=DType.BOOL)


def _function(name: str) -> Build:
    return lambda x: call(name, x)


def _is_infinite(x: Expr, attrs: IsInf) -> Expr:
    signs = []
    if attrs.detect_positive:
        signs.append(call("equal", x, number_like(math.inf, x), dtype=DType.BOOL))
    if attrs.detect_negative:
        signs.append(call("equal", x, number_like(-math.inf, x), dtype=DType.BOOL))
    if not signs:
        return call("and", call("isnan", x, dtype=DType.BOOL), const(False, DType.BOOL))
    return signs[0] if len(signs) == 1 else call("or", *signs)


def _power(a: Expr, b: Expr) -> Expr:
    """Pow 15: the result has the base's type; a float exponent of an integer is not rounded first."""
    if a.dtype.is_integer and b.dtype.is_float:
        wide = call("pow", *(call("cast", x, dtype=DType.FLOAT64) for x in (a, b)))
        return call("cast", wide, dtype=a.dtype)
    return call("pow", a, call("cast", b, dtype=a.dtype))


def _modulo(a: Expr, b: Expr, attrs: Mod) -> Expr:
    return call("fmod" if attrs.fmod else "remainder", a, b)


def _shift(a: Expr, b: Expr, attrs: BitShift) -> Expr:
    return call("shl" if attrs.direction == "LEFT" else "shr", a, b)


UNARY: dict[str, Build] = {
    "Relu": lambda x: call("maximum", x, number_like(0, x)),
    "Sigmoid": lambda x: call("sigmoid", x),
    "Tanh": lambda x: call("tanh", x),
    "HardSwish": lambda x: call("mul", x, hard_sigmoid(x, HardSigmoid(alpha=1 / 6))),
    "Softplus": _function("softplus"),
    "Mish": _function("mish"),
    "Softsign": lambda x: call("div", x, call("add", call("abs", x), number_like(1, x))),
    "Exp": lambda x: call("exp", x),
    "Log": lambda x: call("log", x),
    "Sqrt": lambda x: call("sqrt", x),
    "Reciprocal": lambda x: call("div", number_like(1, x), x),
    "Neg": lambda x: call("neg", x),
    "Abs": lambda x: call("abs", x),
    "Floor": lambda x: call("floor", x),
    "Ceil": lambda x: call("ceil", x),
    "Round": lambda x: call("rint", x),
    "Erf": lambda x: call("erf", x),
    **{
        op: _function(op.lower())
        for op in ("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Sign")
    },
    "Not": lambda x: call("not", x),
    "IsNaN": lambda x: call("isnan", x, dtype=DType.BOOL),
    "BitwiseNot": lambda x: call("bit_not", x),
}

BINARY: dict[str, Build] = {
    "Add": lambda a, b: call("add", a, b),
    "Sub": lambda a, b: call("sub", a, b),
    "Mul": lambda a, b: call("mul", a, b),
    "Div": lambda a, b: call("div", a, b),
    "Pow": _power,
    "BitwiseAnd": lambda a, b: call("bit_and", a, b),
    "BitwiseOr": lambda a, b: call("bit_or", a, b),
    "BitwiseXor": lambda a, b: call("bit_xor", a, b),
    "Or": lambda a, b: call("or", a, b),
    "Xor": lambda a, b: call("xor", a, b),
    "PRelu": prelu,
    "And": lambda a, b: call("and", a, b),
    "Less": _compare("less"),
    "LessOrEqual": _compare("less_equal"),
    "Greater": _compare("greater"),
    "GreaterOrEqual": _compare("greater_equal"),
    "Equal": _compare("equal"),
}

VARIADIC: dict[str, Build] = {
    "Max": lambda a, b: call("maximum", a, b),
    "Min": lambda a, b: call("minimum", a, b),
    "Sum": lambda a, b: call("add", a, b),
}


def _elementwise(build: Build) -> Operator:
    def lower(ctx: Lowering, node: Node) -> None:
        shape = ctx.types[node.outputs[0]].shape
        ctx.loop(node, build(*ctx.operands(node.inputs, shape)), node.inputs)

    return Operator(lower)


def _unary(attributes: type[A], build: Callable[[Expr, A], Expr]) -> Operator:
    """Return an operator of one operand with attributes."""

    def lower(ctx: Lowering, node: Node) -> None:
        (element,) = ctx.operands(node.inputs, ctx.types[node.outputs[0]].shape)
        ctx.loop(node, build(element, attributes.of(node)), node.inputs)

    return Operator(lower, attributes)


def _binary(attributes: type[A], build: Callable[[Expr, Expr, A], Expr]) -> Operator:
    """Return an operator of two operands with attributes."""

    def lower(ctx: Lowering, node: Node) -> None:
        left, right = ctx.operands(node.inputs, ctx.types[node.outputs[0]].shape)
        ctx.loop(node, build(left, right, attributes.of(node)), node.inputs)

    return Operator(lower, attributes)


def _joined(ctx: Lowering, node: Node, build: Build) -> tuple[Expr, list[str]]:
    """Return all inputs joined from the left, and what that reads; of more than `MOST`, loops join those before."""
    kind, left = ctx.types[node.outputs[0]], list(node.inputs)
    while len(left) > MOST:
        part = ctx.value(f"{node.outputs[0]}.part", kind.dtype, kind.shape)
        ctx.loop(node, functools.reduce(build, ctx.operands(left[:MOST], kind.shape)), left[:MOST], part)
        left = [part, *left[MOST:]]
    return functools.reduce(build, ctx.operands(left, kind.shape)), left


def _variadic(build: Build) -> Operator:
    def lower(ctx: Lowering, node: Node) -> None:
        ctx.loop(node, *_joined(ctx, node, build))

    return Operator(lower)


def _clip(ctx: Lowering, node: Node) -> None:
    """Clip 13: an absent bound does not bound."""
    value, low, high = node.inputs
    operands = [name for name in (value, low, high) if name]
    loads = dict(zip(operands, ctx.operands(operands, ctx.types[node.outputs[0]].shape), strict=True))
    result = loads[value]
    if low:
        result = call("maximum", result, loads[low])
    if high:
        result = call("minimum", result, loads[high])
    ctx.loop(node, result, operands)


def _mean(ctx: Lowering, node: Node) -> None:
    total, inputs = _joined(ctx, node, VARIADIC["Sum"])
    ctx.loop(node, call("div", total, number_like(len(node.inputs), total)), inputs)


def saturated(value: Expr, dtype: DType) -> Expr:
    """Bring what is too large for a float of 8 bits or less to its largest number; NaN stays."""
    if not dtype.is_float or dtype.size > 1:
        return value
    most = dtype.largest
    wide = call("cast", value, dtype=DType.FLOAT32)
    return call("maximum", call("minimum", wide, number_like(most, wide)), number_like(-most, wide))


def _cast(ctx: Lowering, node: Node) -> None:
    """Cast 25 and CastLike 25, between numbers and booleans."""
    kind = ctx.types[node.outputs[0]]
    (element,) = ctx.operands(node.inputs[:1], kind.shape)
    if Cast.of(node).saturate:
        element = saturated(element, kind.dtype)
    ctx.loop(node, call("cast", element, dtype=kind.dtype), node.inputs[:1])


def _bitcast(ctx: Lowering, node: Node) -> None:
    """BitCast 26: the same bits as another type of the same size."""
    kind = ctx.types[node.outputs[0]]
    (element,) = ctx.operands(node.inputs, kind.shape)
    ctx.loop(node, call("bitcast", element, dtype=kind.dtype), node.inputs)


def _where(ctx: Lowering, node: Node) -> None:
    kind = ctx.types[node.outputs[0]]
    ctx.loop(node, call("where", *ctx.operands(node.inputs, kind.shape), dtype=kind.dtype), node.inputs)


def _batch_normalization(ctx: Lowering, node: Node) -> None:
    """BatchNormalization 15 at inference: scale and shift of axis 1."""
    kind = ctx.types[node.outputs[0]]
    axis = (Expr("axis", DType.INT32, value=1),)
    x = ctx.operands(node.inputs[:1], kind.shape)[0]
    dtype = DType.FLOAT32 if kind.dtype.is_half else kind.dtype
    x, scale, bias, mean, variance = (
        call("cast", value, dtype=dtype)
        for value in (x, *(Expr("load", ctx.types[node.inputs[n]].dtype, axis, n) for n in range(1, 5)))
    )
    deviation = call("sqrt", call("add", variance, const(Epsilon.of(node).epsilon, dtype)))
    centred = call("div", call("sub", x, mean), deviation)
    result = call("add", call("mul", centred, scale), bias)
    ctx.loop(node, call("cast", result, dtype=kind.dtype), node.inputs)


def _expand(ctx: Lowering, node: Node) -> None:
    ctx.loop(node, ctx.operands(node.inputs, ctx.types[node.outputs[0]].shape)[0], node.inputs)


LOWERINGS: dict[str, Operator] = {
    **{op: _elementwise(build) for op, build in {**UNARY, **BINARY}.items()},
    **{op: _variadic(build) for op, build in VARIADIC.items()},
    "LeakyRelu": _unary(LeakyRelu, leaky),
    "HardSigmoid": _unary(HardSigmoid, hard_sigmoid),
    "Elu": _unary(Elu, elu),
    "Celu": _unary(Elu, celu),
    "Selu": _unary(Selu, selu),
    "Gelu": _unary(Gelu, gelu),
    "IsInf": _unary(IsInf, _is_infinite),
    "Mod": _binary(Mod, _modulo),
    "BitShift": _binary(BitShift, _shift),
    "Clip": Operator(_clip),
    "Mean": Operator(_mean),
    "Cast": Operator(_cast, Cast),
    "CastLike": Operator(_cast, Cast),
    "BitCast": Operator(_bitcast),
    "Where": Operator(_where),
    "BatchNormalization": Operator(_batch_normalization, Epsilon),
    "Expand": Operator(moves_integers(_expand)),
}
