"""SOFTMAX, LOGISTIC and TANH of int16 as TFLite's reference kernels have them: tables with straight lines between.

Source: tensorflow/lite/kernels/internal/common.h (LUTPopulate, LUTLookup), reference/softmax.h (SoftmaxInt16),
reference/integer_ops/logistic.h and tanh.h, kernels/activations.cc (the multipliers).
"""

import math
from collections.abc import Callable

import numpy as np
import onnx

from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.tflite.elementwise import beta_of
from mtool.compiler.frontend.tflite.fixed_point import multipliers
from mtool.compiler.frontend.tflite.rescaling import clamped, rescale_to, widened
from mtool.compiler.frontend.tflite.sigmoid_table import SIGMOIDS
from mtool.compiler.frontend.tflite.translation import Translation
from mtool.compiler.ir.types import Array
from mtool.compiler.kernels.interpolation import HIGH, LOW, STEPS, away, exponentials, reciprocals

INT32 = np.dtype(np.int32)


def is_wide(t: Translation) -> bool:
    """Whether the operator at work is one of int16 around 0."""
    tensors = t.tensor(0), t.result()
    return all(tensor.dtype == np.int16 and tensor.scale.size == 1 and not tensor.zero for tensor in tensors)


def _number(t: Translation, value: int, stem: str = "number") -> str:
    return t.constant(stem, value, np.int32)


def _shifted(t: Translation, value: str, bits: int, most: int) -> str:
    """Return int32 numbers of at most so much, shifted to the right: divided, rounded down."""
    more = -(-most // (1 << bits))
    moved = t.node("Add", [value, _number(t, more << bits)])
    return t.node("Sub", [t.node("Div", [moved, _number(t, 1 << bits)]), _number(t, more)])


def _looked_up(t: Translation, value: str, points: Array) -> str:
    """Return the table's results for numbers of 16 bits."""
    moved = t.node("Add", [value, _number(t, 2**15)])
    index = t.node("Div", [moved, _number(t, 128)])
    offset = t.node("Sub", [moved, t.node("Mul", [index, _number(t, 128)])])
    base = t.node("Gather", [t.constant("table", points), index])
    slopes = np.append(np.diff(points), 0).astype(np.int16).astype(np.int32)
    slope = t.node("Gather", [t.constant("slopes", slopes), index])
    rise = t.node("Add", [t.node("Mul", [slope, offset]), _number(t, 64)])
    return t.node("Add", [base, _shifted(t, rise, 7, 2**23)])


def interpolated(t: Translation, function: Callable[[Array], Array]) -> None:
    """A function of real numbers, its table in float32 (LUTPopulateInt16)."""
    single, out = np.float32, t.result()
    least, most = (t.tensor(0).scale[0] * single(bound) for bound in (LOW, HIGH))
    bottom, top = (out.scale[0] * single(bound) for bound in (LOW, HIGH))
    step, unit = (most - least) / single(STEPS), single(2**16) / (top - bottom)
    at = least + np.arange(STEPS, dtype=single) * step
    after = least + np.arange(1, STEPS + 1, dtype=single) * step

    def of(inputs: Array) -> Array:
        made: Array = np.clip(function(inputs.astype(np.float64)), -3e38, 3e38).astype(single)
        return made

    with np.errstate(over="ignore"):
        value, middle, behind = (of(inputs) * unit for inputs in (at, at + step / single(2), after))
        bias = away((away((behind + away(value)) / single(2)) - away(middle)) / single(2))
        points = np.append(away(value) - bias, away(of(np.asarray([most])) * unit))
    table = np.clip(np.nan_to_num(points), LOW, HIGH).astype(np.int32)
    t.put(t.node("Cast", [_looked_up(t, widened(t, t.stored(0)), table)], to=onnx.TensorProto.INT16))


def softmax(t: Translation) -> None:
    """SOFTMAX along the last axis: exponentials by a table, and the reciprocal of their sum by another."""
    x, last = widened(t, t.stored(0)), t.whole("axes", [-1])
    difference = t.node("Sub", [x, t.node("ReduceMax", [x, last], keepdims=1)])
    scale = float(t.tensor(0).scale[0] * np.float32(beta_of(t))) / (10.0 / 65535.0)
    scaled = rescale_to(t, difference, *multipliers(np.asarray([scale])), INT32)
    powers = _looked_up(t, clamped(t, t.node("Add", [scaled, _number(t, HIGH)]), LOW, HIGH), exponentials())
    total = t.node("ReduceSum", [powers, last], keepdims=1)
    reached = t.node("GreaterOrEqual", [total, t.constant("powers", 2 ** np.arange(31), np.int32)])
    bits = t.node("ReduceSum", [t.node("Cast", [reached], to=onnx.TensorProto.INT32), last], keepdims=1)
    factor = t.node("Gather", [t.constant("factors", [2 ** (31 - bit) for bit in range(32)], np.int64), bits])
    product = t.node("Mul", [t.node("Cast", [total], to=onnx.TensorProto.INT64), factor])
    product = t.node("Add", [product, t.constant("half", 1 << 13, np.int64)])
    shifted = widened(t, t.node("Div", [product, t.constant("places", 1 << 14, np.int64)]))
    moved = t.node("Sub", [shifted, _number(t, (1 << 15) + (1 << 16))])
    share = _looked_up(t, clamped(t, moved, LOW, HIGH), reciprocals())
    count = t.node("Gather", [t.constant("counts", [2 ** max(bit - 1, 0) for bit in range(32)], np.int32), bits])
    half = t.node("Gather", [t.constant("halves", [2 ** max(bit - 2, 0) for bit in range(32)], np.int32), bits])
    steps = t.node("Div", [t.node("Add", [t.node("Mul", [powers, share]), half]), count])
    t.put(t.node("Cast", [clamped(t, steps, 0, HIGH)], to=onnx.TensorProto.INT16))


def _argument(t: Translation, most: int) -> str:
    """Return the input in steps of 1 / (3 * 4096); a scale of 2^-12 to 2^(most - 12) is no multiplication there."""
    scale = float(t.tensor(0).scale[0])
    exponent = math.log2(scale)
    left = 12 + round(exponent)
    x = widened(t, t.stored(0))
    if abs(exponent - round(exponent)) < 1e-3 and 0 <= left <= most:
        return t.node("Mul", [x, _number(t, 3 << left)])
    bits, multiplier = 0, scale * 4096.0 * 3.0
    while multiplier <= 32767.0 / 2.0 and bits <= 30:
        bits, multiplier = bits + 1, multiplier * 2
    if bits > 16 or multiplier > 32767:
        raise Unsupported(f"its input has a scale of {scale:.3g}")
    product = t.node("Mul", [x, _number(t, int(multiplier))])
    rounded = t.node("Add", [product, _number(t, (1 << bits) >> 1)])
    return _shifted(t, rounded, bits, 2**30)


def _between(t: Translation, x: str, bits: int) -> str:
    """Return the sigmoid of the argument's absolute value, with `bits` more bits than its table has."""
    absolute = t.node("Abs", [x])
    index = t.node("Div", [absolute, _number(t, 1 << bits)])
    rest = t.node("Sub", [absolute, t.node("Mul", [index, _number(t, 1 << bits)])])
    inside = clamped(t, index, 0, 254)
    base = t.node("Gather", [t.constant("table", SIGMOIDS), inside])
    rise = t.node("Gather", [t.constant("slopes", np.append(np.diff(SIGMOIDS), 0), np.int32), inside])
    line = t.node("Add", [t.node("Mul", [base, _number(t, 1 << bits)]), t.node("Mul", [rest, rise])])
    most = 0x7FFF << 10 if bits == 9 else 0xFFFF << 8
    far = t.node("GreaterOrEqual", [index, _number(t, 255)])
    return t.node("Where", [far, _number(t, most), line])


def _signed(t: Translation, x: str, above: str, below: str) -> str:
    return t.node("Where", [t.node("GreaterOrEqual", [x, _number(t, 0)]), above, below])


def logistic(t: Translation) -> None:
    """LOGISTIC, by the table of sigmoid(i / 24)."""
    x = _argument(t, 0)
    result = _between(t, x, 9)
    above = t.node("Add", [result, _number(t, 1 << 9)])
    below = t.node("Sub", [_number(t, (1 << 25) + (1 << 9) - 1), result])
    steps = t.node("Div", [_signed(t, x, above, below), _number(t, 1 << 10)])
    t.put(t.node("Cast", [steps], to=onnx.TensorProto.INT16))


def tanh(t: Translation) -> None:
    """TANH, as twice the sigmoid of twice the argument, less 1."""
    x = _argument(t, 1)
    result = _between(t, x, 8)
    above = t.node("Sub", [result, _number(t, (1 << 23) - (1 << 7))])
    below = t.node("Sub", [_number(t, (1 << 23) + (1 << 7) - 1), result])
    t.put(t.node("Cast", [_shifted(t, _signed(t, x, above, below), 8, 2**24)], to=onnx.TensorProto.INT16))
