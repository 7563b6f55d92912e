"""Arithmetic, comparisons, logic, bits and the functions of math.h."""

import math

import numpy as np

from mtool.compiler.ir.expr import Expr
from mtool.compiler.ir.scalar.function import A, Function, bits, compare, infix, inline, libm, predicate
from mtool.compiler.ir.scalar.text import ADD, AND, ATOM, COMPARE, MUL, OR, SELECT, UNARY, Text, boolean, wrap
from mtool.compiler.ir.types import DType


def _truncated_div(a: A, b: A) -> A:
    if not np.issubdtype(np.asarray(a).dtype, np.integer):
        return a / b
    quotient = np.abs(a) // np.abs(b)
    return np.where((np.asarray(a) < 0) != (np.asarray(b) < 0), -quotient, quotient)


def _divide_text(expr: Expr, a: Text, b: Text) -> Text:
    if expr.dtype.is_integer and expr.value != "index":
        return Text(f"mt_div_{expr.dtype.code}({a.c}, {b.c})")
    return Text(f"{a.at(MUL)} / {b.at(UNARY)}", MUL)


def _pow(a: A, b: A) -> A:
    """Of integers, a power below zero is a fraction, but for those of 1 and -1: towards zero, it is 0."""
    exponent = np.asarray(b).astype(np.asarray(a).dtype)
    if not np.issubdtype(exponent.dtype, np.signedinteger):
        return np.power(a, exponent)
    below = np.power(np.where(np.abs(a) == 1, a, 0), np.where(exponent < 0, 2 - (exponent & 1), 1))
    return np.where(exponent < 0, below, np.power(a, np.maximum(exponent, 0)))


def _pow_text(expr: Expr, a: Text, b: Text) -> Text:
    if expr.dtype.is_integer:
        return Text(f"mt_pow_{expr.dtype.code}({a.c}, {b.c})")
    return Text(f"pow{'' if expr.dtype is DType.FLOAT64 else 'f'}({a.c}, {b.c})")


def _sigmoid(x: A) -> A:
    wide = np.asarray(x, np.float64)
    return np.where(wide >= 0, 1 / (1 + np.exp(-np.abs(wide))), np.exp(-np.abs(wide)) / (1 + np.exp(-np.abs(wide))))


def _softplus(x: A) -> A:
    return np.logaddexp(np.asarray(x, np.float64), 0)


def _mish(x: A) -> A:
    return np.asarray(x, np.float64) * np.tanh(_softplus(x))


def _erf(x: A) -> A:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _where_text(expr: Expr, condition: Text, yes: Text, no: Text) -> Text:
    return Text(f"{condition.truth(OR)} ? {yes.at(OR)} : {no.at(OR)}", SELECT)


ARITHMETIC: dict[str, Function] = {
    "add": infix("+", ADD, np.add),
    "sub": infix("-", ADD, np.subtract),
    "mul": infix("*", MUL, np.multiply),
    "div": Function(lambda expr, a, b: _truncated_div(a, b).astype(expr.dtype.numpy), _divide_text),
    "floordiv": infix("/", MUL, np.floor_divide),  # of index expressions, which are never negative
    "mod": infix("%", MUL, np.mod),
    "neg": Function(lambda expr, a: np.negative(a), lambda expr, a: wrap(expr, Text(f"-{a.at(ATOM)}", UNARY))),
    "maximum": inline("mt_max", np.maximum),
    "minimum": inline("mt_min", np.minimum),
    "abs": inline("mt_abs", np.abs),
    "exp": libm("exp", np.exp),
    "log": libm("log", np.log),
    "sqrt": libm("sqrt", np.sqrt),
    "tanh": libm("tanh", np.tanh),
    "erf": libm("erf", _erf),
    "sin": libm("sin", np.sin),
    "cos": libm("cos", np.cos),
    "floor": libm("floor", np.floor),
    "ceil": libm("ceil", np.ceil),
    "rint": libm("rint", np.rint),
    "round": libm("round", lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x)),
    "trunc": libm("trunc", np.trunc),
    "tan": libm("tan", np.tan),
    "asin": libm("asin", np.arcsin),
    "acos": libm("acos", np.arccos),
    "atan": libm("atan", np.arctan),
    "sinh": libm("sinh", np.sinh),
    "cosh": libm("cosh", np.cosh),
    "asinh": libm("asinh", np.arcsinh),
    "acosh": libm("acosh", np.arccosh),
    "atanh": libm("atanh", np.arctanh),
    "expm1": libm("expm1", np.expm1),
    "log1p": libm("log1p", np.log1p),
    "pow": Function(lambda expr, a, b: _pow(a, b).astype(expr.dtype.numpy), _pow_text),
    "sign": inline("mt_sign", np.sign),
    "remainder": inline("mt_mod", np.mod),  # the sign of the divisor
    "fmod": inline("mt_fmod", np.fmod),  # the sign of the dividend
    "shl": inline("mt_shl", np.left_shift),
    "shr": inline("mt_shr", np.right_shift),
    "bit_and": bits("&", np.bitwise_and),
    "bit_or": bits("|", np.bitwise_or),
    "bit_xor": bits("^", np.bitwise_xor),
    "bit_not": Function(lambda expr, a: np.invert(a), lambda expr, a: Text(f"({expr.dtype.c})~{a.at(ATOM)}", UNARY)),
    "isnan": predicate("isnan", np.isnan),
    "isinf": predicate("isinf", np.isinf),
    "sigmoid": inline("mt_sigmoid", _sigmoid),
    "softplus": inline("mt_softplus", _softplus),
    "mish": inline("mt_mish", _mish),
    "less": compare("<", np.less),
    "less_equal": compare("<=", np.less_equal),
    "greater": compare(">", np.greater),
    "greater_equal": compare(">=", np.greater_equal),
    "equal": compare("==", np.equal),
    "and": Function(lambda expr, a, b: a & b, lambda expr, a, b: Text(f"{a.truth(AND)} && {b.truth(AND)}", AND)),
    "or": Function(lambda expr, a, b: a | b, lambda expr, a, b: Text(f"({a.truth(COMPARE)} || {b.truth(COMPARE)})")),
    "xor": Function(lambda expr, a, b: a ^ b, lambda expr, a, b: boolean(f"{a.at(ADD)} != {b.at(ADD)}", COMPARE)),
    "not": Function(lambda expr, a: ~np.asarray(a, bool), lambda expr, a: boolean(f"!{a.truth(ATOM)}", UNARY)),
    "where": Function(lambda expr, c, a, b: np.where(c, a, b), _where_text),
}
