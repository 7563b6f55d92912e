"""Operators on single elements, reductions, and what normalises along an axis."""

from collections.abc import Callable

import numpy as np
import onnx
import tflite
from onnx import helper

from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.tflite.rescaling import requantised, widened
from mtool.compiler.frontend.tflite.translation import Translation

Translate = Callable[[Translation], None]


def _simple(kind: str, count: int) -> Translate:
    """An operator of the real numbers of its inputs that ONNX has too."""

    def translate(t: Translation) -> None:
        made = t.node(kind, [t.real(index) for index in range(count)])
        t.store(t.activated(made, t.op.option("FusedActivationFunction")))

    return translate


def _compare(kind: str, *, negated: bool = False) -> Translate:
    def translate(t: Translation) -> None:
        made = t.node(kind, [t.real(0), t.real(1)])
        t.put(t.node("Not", [made]) if negated else made)

    return translate


def _logical(kind: str, count: int) -> Translate:
    def translate(t: Translation) -> None:
        t.put(t.node(kind, [t.stored(index) for index in range(count)]))

    return translate


def _composed(build: Callable[[Translation, str], str]) -> Translate:
    """An operator of one input that is several of ONNX's."""

    def translate(t: Translation) -> None:
        t.store(build(t, t.real(0)))

    return translate


def _hard_swish(t: Translation, x: str) -> str:
    return t.node("HardSwish", [x])


def _squared_difference(t: Translation) -> None:
    difference = t.node("Sub", [t.real(0), t.real(1)])
    t.store(t.node("Mul", [difference, difference]))


def _floor_div(t: Translation) -> None:
    a, b = t.real(0), t.real(1)
    if t.tensor(0).dtype.kind == "f" or t.tensor(0).is_quantised:
        t.store(t.node("Floor", [t.node("Div", [a, b])]))
        return
    remainder = t.node("Mod", [a, b])  # the sign of the divisor: what is left is divisible
    t.put(t.node("Div", [t.node("Sub", [a, remainder]), b]))


def _floor_mod(t: Translation) -> None:
    a, b = t.real(0), t.real(1)
    if t.tensor(0).dtype.kind != "f":
        t.store(t.node("Mod", [a, b]))
        return
    quotient = t.node("Floor", [t.node("Div", [a, b])])
    t.store(t.node("Sub", [a, t.node("Mul", [quotient, b])]))


def _leaky_relu(t: Translation) -> None:
    t.store(t.node("LeakyRelu", [t.real(0)], alpha=float(t.op.option("Alpha", 0.0))))


def _gelu(t: Translation) -> None:
    t.store(t.node("Gelu", [t.real(0)], approximate="tanh" if t.op.option("Approximate", False) else "none"))


def _add_n(t: Translation) -> None:
    made = t.real(0)
    for index in range(1, len(t.op.inputs)):
        made = t.node("Add", [made, t.real(index)])
    t.store(made)


def _select(t: Translation) -> None:
    """SELECT, SELECT_V2; the former's condition may have one dimension, that of the first axis."""
    condition, x = t.shape(0), t.shape(1)
    name = t.stored(0)
    if t.op.kind == "SELECT" and len(condition) == 1 and len(x) > 1:
        name = t.node("Reshape", [name, t.whole("shape", (*condition, *[1] * (len(x) - 1)))])
    if t.same_grid(1, 2):
        t.put(t.node("Where", [name, t.stored(1), t.stored(2)]))
    else:
        t.store(t.node("Where", [name, t.real(1), t.real(2)]))


def beta_of(t: Translation) -> float:
    """Return what SOFTMAX multiplies its input by: 0 without options, as in LiteRT.

    Raises:
        Unsupported: it is below 0, or no number.
    """
    beta = float(t.op.option("Beta", 0.0))
    if not 0 <= beta < np.inf:
        raise Unsupported(f"its beta is {beta}")
    return beta


def _softmax(t: Translation) -> None:
    """SOFTMAX: of (x - max x) * beta, which stays finite where x * beta does not."""
    beta, x = beta_of(t), t.real(0)
    if beta != 1.0:
        most = t.node("ReduceMax", [x, t.whole("axes", [-1])], keepdims=1)
        x = t.node("Mul", [t.node("Sub", [x, most]), t.constant("beta", beta, np.float32)])
    t.store(t.node("Softmax", [x], axis=-1))


def _prelu(t: Translation) -> None:
    if t.tensor(0).dtype == np.int16 and t.tensor(1).dtype != np.int8:
        raise Unsupported(f"its slopes are {t.tensor(1).dtype}, which LiteRT reads as int8")
    _simple("PRelu", 2)(t)


def _log_softmax(t: Translation) -> None:
    t.store(t.node("LogSoftmax", [t.real(0)], axis=-1))


def _l2_normalization(t: Translation) -> None:
    """L2_NORMALIZATION: x / sqrt(max(sum of x^2, 1e-6))."""
    x = t.real(0)
    total = t.node("ReduceSumSquare", [x, t.whole("axes", [-1])], keepdims=1)
    norm = t.node("Sqrt", [t.node("Max", [total, t.constant("least", 1e-6, np.float32)])])
    t.store(t.activated(t.node("Div", [x, norm]), t.op.option("FusedActivationFunction")))


def axes_of(t: Translation) -> list[int]:
    """Return a reduction's axes, none negative."""
    rank = len(t.shape(0))
    axes = sorted({number + rank if number < 0 else number for number in t.numbers(1, "the axes")})
    if any(not 0 <= number < rank for number in axes):
        raise Unsupported(f"its axes are {t.numbers(1, 'the axes')} of {rank} dimensions")
    return axes


def _reduce(kind: str) -> Translate:
    def translate(t: Translation) -> None:
        axes, keep = axes_of(t), int(bool(t.op.option("KeepDims")))
        picks = kind in ("ReduceMax", "ReduceMin") and t.same_grid(0)
        value = t.stored(0) if picks else t.real(0)
        lacks = picks and t.tensor(0).dtype == np.int16  # ONNX has no such maximum
        value = widened(t, value) if lacks else value
        made = t.node(kind, [value, t.whole("axes", axes)], keepdims=keep) if axes else t.node("Identity", [value])
        made = t.node("Cast", [made], to=onnx.TensorProto.INT16) if lacks else made
        if picks:
            t.put(made)
        else:
            t.store(made)

    return translate


def _reduce_bool(kind: str) -> Translate:
    """REDUCE_ANY, REDUCE_ALL: the largest or smallest of 0 and 1."""

    def translate(t: Translation) -> None:
        wide = t.node("Cast", [t.stored(0)], to=onnx.TensorProto.INT32)
        keep = int(bool(t.op.option("KeepDims")))
        made = t.node(kind, [wide, t.whole("axes", axes_of(t))], keepdims=keep)
        t.put(t.node("Cast", [made], to=onnx.TensorProto.BOOL))

    return translate


def _arg(kind: str) -> Translate:
    """ARG_MAX, ARG_MIN: of the integers themselves, which are in the same order."""

    def translate(t: Translation) -> None:
        (axis,) = t.numbers(1, "the axis")
        told = tflite.TensorType.INT64 if t.result().dtype == np.int64 else tflite.TensorType.INT32
        if t.op.option("OutputType", told) != told:
            raise Unsupported(f"its output is {t.result().dtype}, which its options contradict")
        made = t.node(kind, [t.stored(0)], axis=axis, keepdims=0)
        if t.result().dtype != np.int64:
            made = t.node("Cast", [made], to=helper.np_dtype_to_tensor_dtype(t.result().dtype))
        t.put(made)

    return translate


def _cast(t: Translation) -> None:
    t.put(t.node("Cast", [t.stored(0)], to=helper.np_dtype_to_tensor_dtype(t.result().dtype)))


def _requantise(t: Translation) -> None:
    """QUANTIZE, DEQUANTIZE: the same numbers on another grid, or on none."""
    if t.op.kind == "DEQUANTIZE" and not t.tensor(0).is_quantised and t.tensor(0).dtype != np.float16:
        raise Unsupported(f"its input is {t.tensor(0).dtype}, which is not quantised")
    if t.tensor(0).is_quantised and t.result().is_quantised and t.result().dtype == np.int32:
        t.put(requantised(t))  # QuantizeLinear has no int32
        return
    t.store(t.real(0))


def _cumsum(t: Translation) -> None:
    (axis,) = t.numbers(1, "the axis")
    inputs = [t.real(0), t.constant("axis", axis, np.int64)]
    reverse, exclusive = int(t.op.option("Reverse")), int(t.op.option("Exclusive"))
    t.store(t.node("CumSum", inputs, reverse=reverse, exclusive=exclusive))


def _atan2(t: Translation) -> None:
    """ATAN2: the angle of (x, y), by that of y / x; LiteRT reads as many numbers of both, whatever their shapes."""
    if t.shape(0) != t.shape(1):
        raise Unsupported(f"its operands are {list(t.shape(0))} and {list(t.shape(1))}, which LiteRT does not heed")
    y, x = t.real(0), t.real(1)
    angles = (("zero", 0.0), ("quarter", np.pi / 2), ("half", np.pi))
    zero, quarter, half = (t.constant(stem, value, np.float32) for stem, value in angles)
    angle = t.node("Atan", [t.node("Div", [y, x])])
    left = t.node("Where", [t.node("GreaterOrEqual", [y, zero]), half, t.node("Neg", [half])])
    beside = t.node("Add", [angle, t.node("Where", [t.node("Less", [x, zero]), left, zero])])
    above = t.node("Mul", [t.node("Sign", [y]), quarter])
    t.store(t.node("Where", [t.node("Equal", [x, zero]), above, beside]))


def _right_shift(t: Translation) -> None:
    """RIGHT_SHIFT: by as many bits as there are at most; of signed integers the sign fills what is left."""
    kind = t.tensor(0).dtype
    if kind.kind not in "iu" or t.tensor(1).dtype != kind:
        raise Unsupported(f"its inputs are {kind} and {t.tensor(1).dtype}")
    unsigned = helper.np_dtype_to_tensor_dtype(np.dtype(f"uint{8 * kind.itemsize}"))
    bounds = (t.constant(stem, number, kind) for stem, number in (("least", 0), ("most", 8 * kind.itemsize - 1)))
    bits = t.node("Cast", [t.node("Clip", [t.stored(1), *bounds])], to=unsigned)

    def shifted(value: str) -> str:
        return t.node("BitShift", [t.node("Cast", [value], to=unsigned), bits], direction="RIGHT")

    if kind.kind == "u":
        t.put(shifted(t.stored(0)))
        return
    same = helper.np_dtype_to_tensor_dtype(kind)
    above = t.node("Cast", [shifted(t.stored(0))], to=same)
    below = t.node("BitwiseNot", [t.node("Cast", [shifted(t.node("BitwiseNot", [t.stored(0)]))], to=same)])
    t.put(t.node("Where", [t.node("Less", [t.stored(0), t.constant("zero", 0, kind)]), below, above]))


def _stablehlo_and(t: Translation) -> None:
    """STABLEHLO_AND: of truths, or of the bits of integers."""
    _logical("And" if t.result().dtype == np.bool_ else "BitwiseAnd", 2)(t)


def _fake_quant(t: Translation) -> None:
    """FAKE_QUANT: floats on a grid of so many bits, one of whose steps is 0; LiteRT does not heed `narrow_range`."""
    single = np.float32
    low, high, bits = single(t.op.option("Min")), single(t.op.option("Max")), t.op.option("NumBits")
    if not 2 <= bits <= 16 or not low <= 0 <= high or not low < high:
        raise Unsupported(f"its range is {low} to {high} in {bits} bits")
    most = single(2**bits - 1)
    step = (high - low) / most
    point = single(np.clip(np.floor(-low / step + single(0.5)), 0, most))
    bottom, top = -point * step, (most - point) * step
    moved = t.node("Sub", [t.clip(t.real(0), float(bottom), float(top)), t.constant("bottom", bottom, np.float32)])
    scaled = t.node("Mul", [moved, t.constant("per_step", single(1) / step, np.float32)])
    whole = t.node("Floor", [t.node("Add", [scaled, t.constant("half", 0.5, np.float32)])])
    back = t.node("Mul", [whole, t.constant("step", step, np.float32)])
    t.store(t.node("Add", [back, t.constant("bottom", bottom, np.float32)]))


TRANSLATIONS: dict[str, Translate] = {
    **{kind: _simple(name, 2) for kind, name in (
        ("ADD", "Add"), ("SUB", "Sub"), ("MUL", "Mul"), ("DIV", "Div"), ("MAXIMUM", "Max"), ("MINIMUM", "Min"),
        ("POW", "Pow"),
    )},
    "PRELU": _prelu,
    **{kind: _simple(name, 1) for kind, name in (
        ("RELU", "Relu"), ("LOGISTIC", "Sigmoid"), ("TANH", "Tanh"), ("ELU", "Elu"), ("EXP", "Exp"), ("LOG", "Log"),
        ("SQRT", "Sqrt"), ("ABS", "Abs"), ("NEG", "Neg"), ("SIN", "Sin"), ("COS", "Cos"), ("FLOOR", "Floor"),
        ("CEIL", "Ceil"), ("ROUND", "Round"), ("SIGN", "Sign"),
    )},
    "RELU6": _composed(lambda t, x: t.clip(x, 0.0, 6.0)),
    "RELU_N1_TO_1": _composed(lambda t, x: t.clip(x, -1.0, 1.0)),
    "RELU_0_TO_1": _composed(lambda t, x: t.clip(x, 0.0, 1.0)),
    "SQUARE": _composed(lambda t, x: t.node("Mul", [x, x])),
    "RSQRT": _composed(lambda t, x: t.node("Reciprocal", [t.node("Sqrt", [x])])),
    "HARD_SWISH": _composed(_hard_swish),
    "LEAKY_RELU": _leaky_relu,
    "GELU": _gelu,
    "SQUARED_DIFFERENCE": _squared_difference,
    "FLOOR_DIV": _floor_div,
    "FLOOR_MOD": _floor_mod,
    "ADD_N": _add_n,
    "EQUAL": _compare("Equal"),
    "NOT_EQUAL": _compare("Equal", negated=True),
    "LESS": _compare("Less"),
    "LESS_EQUAL": _compare("LessOrEqual"),
    "GREATER": _compare("Greater"),
    "GREATER_EQUAL": _compare("GreaterOrEqual"),
    "LOGICAL_AND": _logical("And", 2),
    "LOGICAL_OR": _logical("Or", 2),
    "LOGICAL_NOT": _logical("Not", 1),
    "SELECT": _select,
    "SELECT_V2": _select,
    "SOFTMAX": _softmax,
    "LOG_SOFTMAX": _log_softmax,
    "L2_NORMALIZATION": _l2_normalization,
    "MEAN": _reduce("ReduceMean"),
    "SUM": _reduce("ReduceSum"),
    "REDUCE_MAX": _reduce("ReduceMax"),
    "REDUCE_MIN": _reduce("ReduceMin"),
    "REDUCE_PROD": _reduce("ReduceProd"),
    "REDUCE_ANY": _reduce_bool("ReduceMax"),
    "REDUCE_ALL": _reduce_bool("ReduceMin"),
    "ARG_MAX": _arg("ArgMax"),
    "ARG_MIN": _arg("ArgMin"),
    "CAST": _cast,
    "DENSIFY": _logical("Identity", 1),
    "RANGE": _logical("Range", 3),
    "QUANTIZE": _requantise,
    "DEQUANTIZE": _requantise,
    "CUMSUM": _cumsum,
    "ATAN2": _atan2,
    "BITWISE_XOR": _logical("BitwiseXor", 2),
    "RIGHT_SHIFT": _right_shift,
    "FAKE_QUANT": _fake_quant,
    "STABLEHLO_AND": _stablehlo_and,
    **{f"STABLEHLO_{kind}": _logical(name, 2) for kind, name in (
        ("ADD", "Add"), ("MULTIPLY", "Mul"), ("MAXIMUM", "Max"), ("MINIMUM", "Min"),
    )},
}  # fmt: skip
