"""Operators of one operand in the integer arithmetic of TFLite's reference kernels: of 8 bits by a table of 256."""

import math
from collections.abc import Callable

import numpy as np
import onnx
import tflite
from onnx import helper

from mtool.compiler.frontend.problems import OWN, Unsupported
from mtool.compiler.frontend.tflite import exact_elements, exact_wide
from mtool.compiler.frontend.tflite.fixed_point import between, inverse_root, limits, multipliers, rescaled, scaled_by
from mtool.compiler.frontend.tflite.rescaling import centred, eight_bits, rescale_to
from mtool.compiler.frontend.tflite.translation import Translation
from mtool.compiler.ir.types import Array

Translate = Callable[[Translation], None]

FINE = 20  # bits behind the point of a reciprocal of a root


def table(t: Translation, results: Array) -> None:
    """Make the output one of 256 results, by the value of the input."""
    data = t.constant("table", results, t.result().dtype)
    to = helper.np_dtype_to_tensor_dtype(t.result().dtype)
    t.put(t.node("Table", [t.stored(0), data], domain=OWN, to=to))


def _by_table(results: Callable[[Translation, Array], Array]) -> Translate:
    """An operator of one 8-bit input: its results for each of the 256, from the integers less their zero point."""

    def translate(t: Translation) -> None:
        eight_bits(t, 0)
        bounds, point = np.iinfo(t.tensor(0).dtype), int(t.tensor(0).zero_point[0])
        table(t, results(t, np.arange(bounds.min, bounds.max + 1, dtype=np.int64) - point))

    return translate


def narrow_or(wide: Translate, narrow: Translate) -> Translate:
    """An operator that has another form for int16."""

    def translate(t: Translation) -> None:
        (wide if exact_wide.is_wide(t) else narrow)(t)

    return translate


def _ratio(t: Translation) -> float:
    return float(t.tensor(0).scale[0] / t.result().scale[0])  # of float32


def _clamped(t: Translation, steps: Array, activation: int = 0) -> Array:
    low, high = limits(t.result(), activation)
    results: Array = np.clip(steps + int(t.result().zero_point[0]), low, max(low, high))
    return results


def _linear(activation: int) -> Callable[[Translation, Array], Array]:
    return lambda t, x: _clamped(t, rescaled(x, _ratio(t)), activation)


def _from_0_to_1(t: Translation, x: Array) -> Array:
    low, high = between(t.result(), 0.0, 1.0)
    made: Array = np.clip(rescaled(x, _ratio(t)) + t.result().zero, low, max(low, high))
    return made


def _negative(t: Translation, x: Array) -> Array:
    """NEG: of the integers as they are stored; that of the least one is itself."""
    if t.tensor(0).zero or not t.same_grid(0):
        raise Unsupported("its numbers stand on two grids, or on one not around 0, which LiteRT does not heed")
    return -x


def _wide_relu(t: Translation) -> None:
    """RELU, RELU6, RELU_N1_TO_1 of int16."""
    out = t.result()
    low, high = limits(out, getattr(tflite.ActivationFunctionType, t.op.kind))
    by, shifts = multipliers(np.asarray([_ratio(t)]))
    t.put(rescale_to(t, centred(t, 0), by, shifts, out.dtype, out.zero, (low, high)))


def _wide_leaky_relu(t: Translation) -> None:
    """LEAKY_RELU of int16."""
    x, out = centred(t, 0), t.result()
    slope = float(t.tensor(0).scale[0] * np.float32(t.op.option("Alpha", 0.0)) / out.scale[0])
    above, below = (
        rescale_to(t, x, *multipliers(np.asarray([factor])), out.dtype, out.zero) for factor in (_ratio(t), slope)
    )
    positive = t.node("GreaterOrEqual", [x, t.constant("zero", 0, np.int32)])
    t.put(t.node("Where", [positive, above, below]))


def _leaky_relu(t: Translation, x: Array) -> Array:
    slope = float(t.tensor(0).scale[0] * np.float32(t.op.option("Alpha", 0.0)) / t.result().scale[0])
    return _clamped(t, np.where(x >= 0, rescaled(x, _ratio(t)), rescaled(x, slope)))


def _absolute(t: Translation, x: Array) -> Array:
    return _clamped(t, rescaled(np.abs(x), _ratio(t)))


def _single(function: Callable[[Array], Array]) -> Callable[[Translation, Array], Array]:
    """A function of real numbers in float32, its results rounded with ties away from zero (LUTPopulate)."""

    def results(t: Translation, x: Array) -> Array:
        real = (x.astype(np.float32) * t.tensor(0).scale[0]).astype(np.float64)
        made = function(real).astype(np.float32) * (np.float32(1) / t.result().scale[0])
        bounds = np.clip(np.nan_to_num(made.astype(np.float64)), -(2.0**31), 2.0**31)
        return _clamped(t, (np.sign(bounds) * np.floor(np.abs(bounds) + 0.5)).astype(np.int64))

    return results


def _sigmoid(x: Array) -> Array:
    """Each of its steps is one of float32."""
    one, power = np.float32(1), np.exp(np.minimum(-x, 88.0)).astype(np.float32)
    made: Array = one / (one + power)
    return made


def _of_floats(function: Callable[[Array], Array]) -> Translate:
    """A function of real numbers by a table: of 8 bits with an entry each, of int16 with lines between entries."""
    return narrow_or(lambda t: exact_wide.interpolated(t, function), _by_table(_single(function)))


def _logarithm(t: Translation) -> None:
    """LOG: of what is not positive the least number of the output."""
    out = t.result()
    least = (np.iinfo(out.dtype).min - out.zero) * float(out.scale[0]) if out.is_quantised else 0.0
    _of_floats(lambda x: np.where(x > 0, np.log(np.maximum(x, 1e-300)), least))(t)


def _root(t: Translation, x: Array) -> Array:
    """SQRT, its results cut off towards zero; LiteRT stops at numbers below 0, which have a root of 0 here."""
    real = np.maximum(x, 0).astype(np.float32) * t.tensor(0).scale[0]
    return _clamped(t, (np.sqrt(real) / t.result().scale[0]).astype(np.int64))


def _wide_root(t: Translation) -> None:
    """SQRT of int16, in float32."""
    out = t.result()
    real = t.node("Cast", [t.node("Relu", [centred(t, 0)])], to=onnx.TensorProto.FLOAT)
    scaled = t.node("Mul", [real, t.constant("scale", t.tensor(0).scale[0], np.float32)])
    steps = t.node("Div", [t.node("Sqrt", [scaled]), t.constant("scale", out.scale[0], np.float32)])
    inside = t.clip(steps, 0.0, float(np.iinfo(out.dtype).max))
    t.put(t.node("Cast", [inside], to=onnx.TensorProto.INT16))


def _inverse_root(t: Translation) -> None:
    """RSQRT: of 0 the largest number; LiteRT stops at numbers below 0."""
    x, out = t.tensor(0), t.result()
    if exact_wide.is_wide(t):
        most = float(np.float32(2**15 - 1) * out.scale[0])
        exact_wide.interpolated(t, lambda x: np.where(x > 0, 1 / np.sqrt(np.maximum(x, 1e-30)), most))
        return
    if out.dtype != np.int8:
        raise Unsupported(f"it is of {out.dtype}, which LiteRT does not have")

    def results(t: Translation, numbers: Array) -> Array:
        scale = 1 / float(np.sqrt(x.scale[0]) * out.scale[0])  # the product is one of float32
        (by,), (shift,) = multipliers(np.asarray([scale]))
        made = []
        for number in numbers.tolist():
            if number <= 0:
                made.append(np.iinfo(out.dtype).max - out.zero)
                continue
            multiplier, exponent = inverse_root(number)
            fine = scaled_by(np.asarray(1), multiplier, exponent + FINE)
            made.append(int(scaled_by(fine, int(by), -1 - int(shift) - FINE)))
        return _clamped(t, np.asarray(made, np.int64))

    _by_table(results)(t)


def _gelu(t: Translation) -> None:
    """GELU, by erfc, or by tanh where that is near enough to its user."""
    if t.op.option("Approximate", False):
        root = math.sqrt(2 / math.pi)
        _of_floats(lambda x: 0.5 * x * (1 + np.tanh(root * (x + 0.044715 * x**3))))(t)
    else:
        of_each = np.vectorize(lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)))
        _of_floats(lambda x: np.asarray(of_each(x), np.float64))(t)


def _wide_absolute(t: Translation) -> None:
    """ABS of int16."""
    x, out = centred(t, 0), t.result()
    t.put(rescale_to(t, t.node("Abs", [x]), *multipliers(np.asarray([_ratio(t)])), out.dtype, out.zero))


TRANSLATIONS: dict[str, Translate] = {
    "HARD_SWISH": _by_table(exact_elements.hard_swish),
    "RELU": narrow_or(_wide_relu, _by_table(_linear(tflite.ActivationFunctionType.RELU))),
    "RELU6": narrow_or(_wide_relu, _by_table(_linear(tflite.ActivationFunctionType.RELU6))),
    "RELU_N1_TO_1": _by_table(_linear(tflite.ActivationFunctionType.RELU_N1_TO_1)),
    "RELU_0_TO_1": _by_table(_from_0_to_1),
    "NEG": _by_table(_negative),
    "LEAKY_RELU": narrow_or(_wide_leaky_relu, _by_table(_leaky_relu)),
    "ABS": narrow_or(_wide_absolute, _by_table(_absolute)),
    "LOGISTIC": narrow_or(exact_wide.logistic, _by_table(_single(_sigmoid))),
    "TANH": narrow_or(exact_wide.tanh, _by_table(_single(np.tanh))),
    "ELU": _by_table(_single(lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x))),
    "EXP": _of_floats(lambda x: np.exp(np.minimum(x, 88.0))),
    "LOG": _logarithm,
    "GELU": _gelu,
    "SQRT": narrow_or(_wide_root, _by_table(_root)),
    "RSQRT": _inverse_root,
}
