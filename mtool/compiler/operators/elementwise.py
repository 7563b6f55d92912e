"""Elementwise operators of ai.onnx: scalar expressions, broadcast by NumPy's rules."""

import functools
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mtool.compiler.ir import Attributes, DType, Expr, Node, TensorType
from mtool.compiler.ir.expr import call, choose, const
from mtool.compiler.operators.bounds import carry_elements
from mtool.compiler.operators.folding import BY_ELEMENT, SLOW, VECTORIZED
from mtool.compiler.operators.lowering import Lower, Lowering, moves_integers
from mtool.compiler.operators.onnx_node import (
    Canonical,
    OnnxNode,
    QLinear,
    attributes_of,
    first_input,
    qlinear_binary,
    qlinear_unary,
    scalars_behind_first,
    spreads,
)
from mtool.compiler.operators.operator import (
    LAST,
    Case,
    Draw,
    Operator,
    TfliteBuiltin,
    Value,
    case,
    constant,
    integers,
    product,
)
from mtool.compiler.operators.problems import MICROSOFT, Unsupported

Build = Callable[..., Expr]
MAX_ARGS = 32  # the most operands of one expression


class LeakyRelu(Attributes):
    """alpha: the slope below 0."""

    alpha: float = 0.01


class HardSigmoid(Attributes):
    """alpha * x + beta, between 0 and 1."""

    alpha: float = 0.2
    beta: float = 0.5


class Elu(Attributes):
    """Elu, Celu: alpha is the negative of the limit towards minus infinity."""

    alpha: float = 1.0


class Selu(Attributes):
    """gamma times Elu."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875


class Gelu(Attributes):
    """approximate: "none", by the error function, or "tanh"."""

    approximate: str = "none"


def number_like(value: float, like: Expr) -> Expr:
    """Return a constant of the type of another expression."""
    return const(value, like.dtype)


def leaky(x: Expr, attrs: LeakyRelu) -> Expr:
    """Return LeakyRelu of x."""
    negative = call("less", x, number_like(0, x), dtype=DType.BOOL)
    return choose(negative, call("mul", x, number_like(attrs.alpha, x)), x)


def prelu(x: Expr, slope: Expr) -> Expr:
    """Return PRelu of x."""
    negative = call("less", x, number_like(0, x), dtype=DType.BOOL)
    return choose(negative, call("mul", x, slope), x)


def hard_sigmoid(x: Expr, attrs: HardSigmoid) -> Expr:
    """Return HardSigmoid of x."""
    line = call("add", call("mul", x, number_like(attrs.alpha, x)), number_like(attrs.beta, x))
    return call("maximum", call("minimum", line, number_like(1, x)), number_like(0, x))


def elu(x: Expr, attrs: Elu) -> Expr:
    """Return Elu of x."""
    curve = call("mul", call("sub", call("exp", x), number_like(1, x)), number_like(attrs.alpha, x))
    return choose(call("less", x, number_like(0, x), dtype=DType.BOOL), curve, x)


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
    return choose(call("less", x, number_like(0, x), dtype=DType.BOOL), curve, x)


def selu(x: Expr, attrs: Selu) -> Expr:
    """Return Selu of x."""
    return call("mul", elu(x, Elu(alpha=attrs.alpha)), number_like(attrs.gamma, x))


class IsInf(Attributes):
    """The infinities that count (1)."""

    detect_negative: int = 1
    detect_positive: int = 1


class Mod(Attributes):
    """fmod: the result has the sign of the dividend, as C's fmod (1), or of the divisor (0)."""

    fmod: int = 0


class BitShift(Attributes):
    """direction: "LEFT" or "RIGHT"."""

    direction: str = "LEFT"


class Cast(Attributes):
    """saturate: numbers too large for an 8-bit float become its largest number (1) or not (0)."""

    saturate: int = 1


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


def _named(*ops: str, dtype: DType | None = None) -> dict[str, Build]:
    """Return the operators that are one function with their name: "LessOrEqual" is less_equal."""

    def build(op: str) -> Build:
        name = re.sub("(?<=[a-z])(?=[A-Z])", "_", op.replace("Or", "")).lower()
        return lambda *args: call(name, *args, dtype=dtype)

    return {op: build(op) for op in ops}


def _called(name: str) -> Build:
    return lambda *args: call(name, *args)


UNARY: dict[str, Build] = {
    **_named("Sigmoid", "Tanh", "Softplus", "Mish", "Exp", "Log", "Sqrt", "Neg", "Abs", "Floor", "Ceil", "Erf", "Not"),
    **_named("Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Sign"),
    "Relu": lambda x: call("maximum", x, number_like(0, x)),
    "HardSwish": lambda x: call("mul", x, hard_sigmoid(x, HardSigmoid(alpha=1 / 6))),
    "Softsign": lambda x: call("div", x, call("add", call("abs", x), number_like(1, x))),
    "Reciprocal": lambda x: call("div", number_like(1, x), x),
    "Round": _called("rint"),
    "IsNaN": lambda x: call("isnan", x, dtype=DType.BOOL),
    "BitwiseNot": _called("bit_not"),
}

BINARY: dict[str, Build] = {
    **_named("Add", "Sub", "Mul", "Div", "And", "Xor"),
    "Or": _called("or"),
    **_named("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", dtype=DType.BOOL),
    "Pow": _power,
    "BitwiseAnd": _called("bit_and"),
    "BitwiseOr": _called("bit_or"),
    "BitwiseXor": _called("bit_xor"),
    "PRelu": prelu,
}

VARIADIC: dict[str, Build] = {
    "Max": _called("maximum"),
    "Min": _called("minimum"),
    "Sum": _called("add"),
}


def _elementwise(build: Callable[..., Expr], attributes: type[Attributes] | None = None) -> Lower:
    """Return the lowering of an operator that is an expression of its operands, followed by its attributes."""

    def lower(ctx: Lowering, node: Node) -> None:
        operands = ctx.operands(node.inputs, ctx.types[node.outputs[0]].shape)
        ctx.loop(node, build(*operands, *([attributes.of(node)] if attributes else [])), node.inputs)

    return lower


def _joined(ctx: Lowering, node: Node, build: Build) -> tuple[Expr, list[str]]:
    """Return all inputs combined from the left, and the operands; beyond `MAX_ARGS`, loops combine the first ones."""
    kind, values = ctx.types[node.outputs[0]], list(node.inputs)
    while len(values) > MAX_ARGS:
        part = ctx.value(f"{node.outputs[0]}.part", kind.dtype, kind.shape)
        ctx.loop(node, functools.reduce(build, ctx.operands(values[:MAX_ARGS], kind.shape)), values[:MAX_ARGS], part)
        values = [part, *values[MAX_ARGS:]]
    return functools.reduce(build, ctx.operands(values, kind.shape)), values


def _variadic(build: Build) -> Lower:
    def lower(ctx: Lowering, node: Node) -> None:
        ctx.loop(node, *_joined(ctx, node, build))

    return lower


def _clip(ctx: Lowering, node: Node) -> None:
    """Clip 13: both bounds are optional."""
    bounds = [(op, name) for op, name in zip(("maximum", "minimum"), node.inputs[1:], strict=True) if name]
    operands = [node.inputs[0], *(name for _, name in bounds)]
    result, *limits = ctx.operands(operands, ctx.types[node.outputs[0]].shape)
    for (op, _), limit in zip(bounds, limits, strict=True):
        result = call(op, result, limit)
    ctx.loop(node, result, operands)


def _mean(ctx: Lowering, node: Node) -> None:
    total, inputs = _joined(ctx, node, VARIADIC["Sum"])
    ctx.loop(node, call("div", total, number_like(len(node.inputs), total)), inputs)


def saturated(value: Expr, dtype: DType) -> Expr:
    """Clamp numbers that are too large for a float of at most 8 bits to its largest number; NaN stays."""
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


def _expand(ctx: Lowering, node: Node) -> None:
    ctx.loop(node, ctx.operands(node.inputs, ctx.types[node.outputs[0]].shape)[0], node.inputs)


def _aligned(attributes: type[Attributes] = Attributes) -> Canonical:
    """Before opset 7, a second operand is broadcast only with the attribute `broadcast`, from `axis` on."""

    def form(node: OnnxNode) -> None:
        inputs, start = list(node.inputs), node.attrs.get("axis")
        left, right = (node.kind(index) for index in (0, 1))
        shorter = len(left.shape) - len(right.shape)
        if node.version < 7 and shorter > 0 and (start is not None or node.op == "PRelu"):
            start = 1 if start is None else start % len(left.shape)
            inputs[1] = node.value("aligned", TensorType(right.dtype, (*right.shape, *[1] * (shorter - start))))
            node.emit(op="Reshape", inputs=node.inputs[1:2], outputs=inputs[1:2])
        node.emit(attributes_of(attributes, node.attrs), inputs=inputs)

    return form


def _clip_form(node: OnnxNode) -> None:
    """Clip: the bounds are attributes in opset 6, inputs in opset 11. NaN is ignored, as in onnxruntime."""
    inputs = [*node.inputs, "", ""][:3]
    for index, key in ((1, "min"), (2, "max")):
        if key in node.attrs:
            bound = np.asarray(node.attrs[key], node.dtype(node.inputs[0]))
            inputs[index] = node.state.constant(f"{node.origin}/{key}", bound)
        data = node.state.constants.get(inputs[index])
        if data is not None and data.dtype.kind not in "iu" and np.isnan(data.astype(np.float64)).any():
            inputs[index] = ""
    node.emit(inputs=inputs)


def _celu_form(node: OnnxNode) -> None:
    """Celu: with an alpha of 0 or NaN it is its definition, max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""
    alpha = node.attrs.get("alpha", 1.0)
    if alpha and not np.isnan(alpha):
        node.emit(Elu(alpha=alpha))
        return
    x = node.inputs[0]
    below = node("Mul", alpha, node("Sub", node("Exp", node("Div", x, alpha)), 1))
    node.write("Add", [node("Max", 0, x), node("Min", 0, below)], node.outputs)


def _cast_like(node: OnnxNode) -> None:
    """CastLike: of a constant it is a constant, even if the second input is not."""
    source, output = node.inputs[0], node.outputs[0]
    if source not in node.state.constants:
        node.emit(attributes_of(Cast, node.attrs), inputs=[source])
        return
    dtype, data = node.result.dtype, node.state.constants[source]
    if node.attrs.get("saturate", 1) and dtype.is_float and dtype.size == 1:
        data = np.clip(data, -dtype.largest, dtype.largest)
    node.state.add_constant(output, data.astype(dtype.numpy))


def _gelu_of_sum(approximate: str) -> Canonical:
    """Gelu, BiasGelu; FastGelu by the hyperbolic tangent. The bias is the optional second input."""

    def form(write: OnnxNode) -> None:
        x = write("Add", write.input(0), write.input(1)) if write.input(1) else write.input(0)
        write.set_output(write("Gelu", x, approximate=approximate))

    return form


def _quick_gelu(write: OnnxNode) -> None:
    """QuickGelu: x * sigmoid(alpha * x)."""
    x = write.input(0)
    write.set_output(write("Mul", x, write("Sigmoid", write("Mul", x, write.attrs.get("alpha", 1.702)))))


def _qlinear_where(parts: QLinear) -> None:
    parts.quantize(parts("Where", parts.inputs[0], parts.dequantize(1), parts.dequantize(4)), 7)


FUSED_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "": (), "Relu": (), "Tanh": (), "Sigmoid": (), "LeakyRelu": ("alpha",), "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"), "Softplus": (), "Softsign": (), "Elu": ("alpha",),
}  # fmt: skip
"""Activations of fused operators from onnxruntime's optimizer, and the names of their parameters."""


def activated(write: OnnxNode, value: str, name: str, parameters: Mapping[str, float]) -> str:
    """Apply a fused operator's activation."""
    if name not in FUSED_ACTIVATIONS:
        raise Unsupported(f"its activation {name!r} is unknown")
    if name == "Clip":
        return write("Clip", value, parameters["min"], parameters["max"])
    return write(name, value, **parameters) if name else value


_ALIGNED = ("Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "PRelu", "Less", "Greater", "Equal")


_TFLITE: Mapping[str, tuple[TfliteBuiltin, ...]] = {
    **{op: (TfliteBuiltin(op.upper()),) for op in ("Sin", "Cos", "Floor", "Ceil", "Round", "Sign")},
    "Not": (TfliteBuiltin("LOGICAL_NOT", is_stored=True),),
    **{op: (TfliteBuiltin(name, 2),) for op, name in (
        ("Pow", "POW"), ("Equal", "EQUAL"), ("Less", "LESS"), ("LessOrEqual", "LESS_EQUAL"), ("Greater", "GREATER"),
        ("GreaterOrEqual", "GREATER_EQUAL"),
    )},
    **{op: (TfliteBuiltin(name, 2, is_stored=True),) for op, name in (
        ("And", "LOGICAL_AND"), ("Or", "LOGICAL_OR"), ("BitwiseXor", "BITWISE_XOR"), ("Add", "STABLEHLO_ADD"),
        ("Mul", "STABLEHLO_MULTIPLY"), ("Max", "STABLEHLO_MAXIMUM"), ("Min", "STABLEHLO_MINIMUM"),
    )},
}  # fmt: skip


def _operator(name: str, lower: Lower, attributes: type[Attributes] = Attributes, **more: Any) -> Operator:
    fields = {"attributes": attributes, "carry": carry_elements, "folding": VECTORIZED, "lower": lower}
    return Operator(name, tflite=_TFLITE.get(name, ()), **{**fields, **more})


def _clip_cases(draw: Draw, op: Operator) -> Case:
    """One bound, or both."""
    value = draw.pick()
    low = draw.constant(-0.5, np.float32) if draw.rng.random() < 0.7 else ""
    return Case([value.name, low, draw.constant(draw.rng.choice((0.6, 6.0)), np.float32)])


def _expand_cases(draw: Draw, op: Operator) -> Case:
    rng, value = draw.rng, draw.pick()
    sizes = [rng.choice((2, 3)) if size == 1 else size for size in value.shape]
    return Case([value.name, draw.whole([*[2] * (rng.random() < 0.3 and value.rank < 5), *sizes])])


def _other(draw: Draw, value: Value) -> str:
    """Another value of the same type and shape, or a constant that is broadcast."""
    same = [v.name for v in draw.values.values() if (v.dtype, v.shape) == (value.dtype, value.shape)]
    return draw.rng.choice(same) if draw.rng.random() < 0.6 else draw.like(value, draw.spread(value))


def _where_cases(draw: Draw, op: Operator) -> Case:
    value = draw.pick()
    return Case([draw.like(Value("", np.dtype(bool), ()), value.shape, 1), value.name, _other(draw, value)])


OPERATORS = (
    *(
        _operator(op, _elementwise(build), canonical=_aligned() if op in _ALIGNED else None)
        for op, build in {**UNARY, **BINARY}.items()
        if op not in ("Erf", "PRelu")
    ),
    _operator("Erf", _elementwise(UNARY["Erf"]), folding=BY_ELEMENT),
    _operator(
        "PRelu", _elementwise(prelu), canonical=_aligned(), shapes_from=7,
        check_shapes=lambda node: spreads(node.ins[1], node.ins[0]),
    ),
    *(_operator(op, _variadic(build)) for op, build in VARIADIC.items()),
    _operator("Mean", _mean),
    _operator("LeakyRelu", _elementwise(leaky, LeakyRelu), LeakyRelu),
    _operator("HardSigmoid", _elementwise(hard_sigmoid, HardSigmoid), HardSigmoid),
    _operator("Elu", _elementwise(elu, Elu), Elu),
    _operator("Celu", _elementwise(celu, Elu), Elu, canonical=_celu_form),
    _operator("Selu", _elementwise(selu, Selu), Selu),
    _operator("Gelu", _elementwise(gelu, Gelu), Gelu, words={"approximate": ("none", "tanh")}, folding=BY_ELEMENT),
    _operator("IsInf", _elementwise(_is_infinite, IsInf), IsInf),
    _operator(
        "Mod", _elementwise(_modulo, Mod), Mod,
        cases=case(lambda draw, x: draw.like(x, draw.spread(x)), dtype=np.int32, fmod=(0, 1)), canonical=_aligned(Mod),
    ),
    _operator(
        "BitShift", _elementwise(_shift, BitShift), BitShift,
        cases=case(lambda draw, x: draw.like(x, draw.spread(x), 7), dtype=np.uint8, direction=("LEFT", "RIGHT")),
        canonical=_aligned(BitShift), words={"direction": ("LEFT", "RIGHT")},
    ),
    _operator("Clip", _clip, cases=_clip_cases, canonical=_clip_form, check_shapes=scalars_behind_first),
    _operator("Cast", _cast, Cast, cases=case(to=(1, 6, 7, 9, 10, 11))),
    _operator("CastLike", _cast, Cast, cases=case(constant(0, np.int32)), canonical=_cast_like),
    _operator("BitCast", _bitcast, cases=case(to=(6, 12)), folding=SLOW),
    _operator("Where", _elementwise(choose)),
    _operator(
        "Expand", moves_integers(_expand), cases=_expand_cases, canonical=first_input, sizes=(1,), keeps_empty=True,
        moves=True, check_shapes=lambda node: spreads(node.ins[0], node.outs[0]), folding=VECTORIZED.growing(),
    ),
    Operator("Gelu", domain=MICROSOFT, cases=case(), expand=_gelu_of_sum("none")),
    Operator("BiasGelu", domain=MICROSOFT, cases=case(LAST), expand=_gelu_of_sum("none")),
    Operator("FastGelu", domain=MICROSOFT, cases=case(LAST), expand=_gelu_of_sum("tanh")),
    Operator("QuickGelu", domain=MICROSOFT, cases=case(alpha=(1.0, 1.702)), expand=_quick_gelu),
    Operator(
        "QLinearAdd", domain=MICROSOFT, cases=integers(case(_other), "01y"), expand=qlinear_binary("Add"),
        zero_point={0: 2, 3: 5}.get,
    ),
    Operator(
        "QLinearMul", domain=MICROSOFT, cases=integers(case(_other), "01y", product), expand=qlinear_binary("Mul"),
        zero_point={0: 2, 3: 5}.get,
    ),
    Operator(
        "QLinearSigmoid", domain=MICROSOFT, cases=integers(case(), "0y"), expand=qlinear_unary("Sigmoid"),
        zero_point={0: 2}.get,
    ),
    Operator(
        "QLinearLeakyRelu", domain=MICROSOFT, cases=integers(case(alpha=(0.1, 0.3)), "0y"),
        expand=qlinear_unary("LeakyRelu"), zero_point={0: 2}.get,
    ),
    Operator(
        "QLinearWhere", domain=MICROSOFT, cases=integers(_where_cases, "012y"), expand=QLinear.form(_qlinear_where),
    ),
)  # fmt: skip
