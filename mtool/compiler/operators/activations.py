"""Activations of ai.onnx with parameters, as scalar expressions: the attributes of each, and what it computes."""

import math
from dataclasses import dataclass

from mtool.compiler.ir import Attributes, DType, Expr
from mtool.compiler.ir.expr import call, const


@dataclass(frozen=True, slots=True, kw_only=True)
class LeakyRelu(Attributes):
    """alpha: the slope below 0."""

    alpha: float = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class HardSigmoid(Attributes):
    """alpha * x + beta, between 0 and 1."""

    alpha: float = 0.2
    beta: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Elu(Attributes):
    """Elu, Celu: below 0 it comes near to -alpha."""

    alpha: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Selu(Attributes):
    """gamma times Elu."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875


@dataclass(frozen=True, slots=True, kw_only=True)
class Gelu(Attributes):
    """approximate: "none", by the error function, or "tanh"."""

    approximate: str = "none"


def number_like(value: float, like: Expr) -> Expr:
    """Return a constant of the type of another expression."""
    return const(value, like.dtype)


def leaky(x: Expr, attrs: LeakyRelu) -> Expr:
    """Return LeakyRelu of x."""
    negative = call("less", x, number_like(0, x), dtype=DType.BOOL)
    return call("where", negative, call("mul", x, number_like(attrs.alpha, x)), x, dtype=x.dtype)


def prelu(x: Expr, slope: Expr) -> Expr:
    """Return PRelu of x."""
    negative = call("less", x, number_like(0, x), dtype=DType.BOOL)
    return call("where", negative, call("mul", x, slope), x, dtype=x.dtype)


def hard_sigmoid(x: Expr, attrs: HardSigmoid) -> Expr:
    """Return HardSigmoid of x."""
    line = call("add", call("mul", x, number_like(attrs.alpha, x)), number_like(attrs.beta, x))
    return call("maximum", call("minimum", line, number_like(1, x)), number_like(0, x))


def elu(x: Expr, attrs: Elu) -> Expr:
    """Return Elu of x."""
    curve = call("mul", call("sub", call("exp", x), number_like(1, x)), number_like(attrs.alpha, x))
    return call("where", call("less", x, number_like(0, x), dtype=DType.BOOL), curve, x, dtype=x.dtype)


def gelu(x: Expr, attrs: Gelu) -> Expr:
    """Return Gelu of x."""
    if attrs.approximate == "tanh":
        cube = call("mul", call("mul", x, x), call("mul", x, number_like(0.044715, x)))
        inner = call("tanh", call("mul", call("add", x, cube), number_like(math.sqrt(2 / math.pi), x)))
    else:
        inner = call("erf", call("mul", x, number_like(math.sqrt(0.5), x)))
    return call("mul", call("mul", x, number_like(0.5, x)), call("add", inner, number_like(1, x)))


def celu(x: Expr, attrs: Elu) -> Expr:
    """Return Celu of x.

    Below 0 it is alpha * (exp(x / alpha) - 1); above, where ONNX's own function divides and multiplies, x itself.
    """
    curve = call("sub", call("exp", call("div", x, number_like(attrs.alpha, x))), number_like(1, x))
    curve = call("mul", curve, number_like(attrs.alpha, x))
    return call("where", call("less", x, number_like(0, x), dtype=DType.BOOL), curve, x, dtype=x.dtype)


def selu(x: Expr, attrs: Selu) -> Expr:
    """Return Selu of x."""
    return call("mul", elu(x, Elu(alpha=attrs.alpha)), number_like(attrs.gamma, x))
