"""Sums and products of two operands in the integer arithmetic of TFLite's reference kernels.

Sources: tensorflow/lite/kernels/add.cc, sub.cc, mul.cc, squared_difference.cc, activations.cc (PreluPrepare).
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx

from mtool.compiler.frontend.problems import Unsupported
from mtool.compiler.frontend.tflite.fixed_point import limits, multipliers
from mtool.compiler.frontend.tflite.rescaling import (
    EIGHT_BITS,
    centred,
    clamped,
    divided,
    eight_bits,
    rescale,
    rescale_to,
)
from mtool.compiler.frontend.tflite.translation import Translation
from mtool.compiler.ir.types import Array

Translate = Callable[[Translation], None]

SUM_SHIFT = 20  # bits by which the operands of a sum are shifted to the left before they are scaled
WIDE_SUM_SHIFT = 15  # the same of int16
DIFFERENCE_SHIFT = 7  # the same of a difference that is squared
POWER = 1e-3  # how far a logarithm may be from a whole number to be taken for it


def _sum(kind: str) -> Translate:
    """ADD, SUB: both operands in steps of twice the larger scale, 20 bits to the left, those of int16 15 bits."""

    def translate(t: Translation) -> None:
        eight_bits(t, 0, 1, wide=True)
        wide = t.result().dtype == np.int16
        if wide and t.op.option("PotScaleInt16", False) and None not in (exponents := _exponents(t)):
            _shifted_sum(t, kind, [number for number in exponents if number is not None])
            return
        left = WIDE_SUM_SHIFT if wide else SUM_SHIFT
        terms, unit = _on_one_grid(t, left)
        factor = unit / float(np.float32(1 << left) * t.result().scale[0])
        t.put(rescale(t, t.node(kind, terms), np.asarray([factor]), t.result()))

    return translate


def _on_one_grid(t: Translation, left: int) -> tuple[list[str], float]:
    """Return both operands less their zero points in steps of twice the larger scale / 2^left, and twice that scale."""
    scales = [float(t.tensor(index).scale[0]) for index in (0, 1)]
    unit, terms = 2 * max(scales), []
    for index, scale in enumerate(scales):
        value, share = centred(t, index), scale / unit
        if share == 0.5 and left:  # of an even number that is no rounding
            terms.append(t.node("Mul", [value, t.constant("left", 1 << (left - 1), np.int32)]))
            continue
        shifted = t.node("Mul", [value, t.constant("left", 1 << left, np.int32)]) if left else value
        terms.append(rescale(t, shifted, np.asarray([share])))
    return terms, unit


def _exponents(t: Translation) -> list[int | None]:
    """Return the scales of both operands and of the result as powers of 2; None: it is none."""
    found: list[int | None] = []
    for tensor in (t.tensor(0), t.tensor(1), t.result()):
        exponent = math.log2(float(tensor.scale[0]))
        found.append(round(exponent) if abs(exponent - round(exponent)) < POWER else None)
    return found


def _shifted_sum(t: Translation, kind: str, exponents: Sequence[int]) -> None:
    """ADD, SUB of int16 whose scales are powers of 2: one operand is shifted to the right, ties away from zero."""
    shifts = [exponents[2] - exponents[index] for index in (0, 1)]
    if min(shifts) != 0 or max(shifts) > 15:
        powers = ", ".join(f"2^{exponent}" for exponent in exponents)
        raise Unsupported(f"the scales of its operands and its result are {powers}, which LiteRT refuses")
    if kind == "Add" and t.shape(0) != t.shape(1):
        raise Unsupported("its scales are powers of 2 and its operands of two shapes, which LiteRT does not heed")
    terms = [divided(t, centred(t, index), 1 << shift) for index, shift in enumerate(shifts)]
    total = clamped(t, t.node(kind, terms), *limits(t.result(), t.op.option("FusedActivationFunction")))
    t.put(t.node("Cast", [total], to=onnx.TensorProto.INT16))


def _squared_difference(t: Translation) -> None:
    """SQUARED_DIFFERENCE: of int8 7 bits to the left; of int16, which TFLite Micro has, none."""
    eight_bits(t, 0, 1, wide=True)
    if t.result().dtype == np.uint8:
        raise Unsupported("it is of uint8, which neither LiteRT nor TFLite Micro has")
    left = 0 if t.result().dtype == np.int16 else DIFFERENCE_SHIFT
    terms, unit = _on_one_grid(t, left)
    difference = t.node("Sub", terms)
    factor = unit * unit / float(np.float32(1 << (2 * left)) * t.result().scale[0])
    t.put(rescale(t, t.node("Mul", [difference, difference]), np.asarray([factor]), t.result()))


def _prelu(t: Translation) -> None:
    """PRELU: what is below 0 times the slope, with a multiplier of its own; of int16 with slopes of int8."""
    eight_bits(t, 0, wide=True)
    x, slope, out = t.tensor(0), t.tensor(1), t.result()
    if slope.dtype not in EIGHT_BITS or slope.scale.size != 1:
        raise Unsupported(f"its slopes are {slope.dtype} with {slope.scale.size} scales")
    value = centred(t, 0)
    above = rescale_to(t, value, *_multiplier(x.scale[0] / out.scale[0]), out.dtype, out.zero)
    product = t.node("Mul", [value, centred(t, 1)])
    below = rescale_to(t, product, *_multiplier(x.scale[0] * slope.scale[0] / out.scale[0]), out.dtype, out.zero)
    positive = t.node("GreaterOrEqual", [value, t.constant("zero", 0, np.int32)])
    t.put(t.node("Where", [positive, above, below]))


def _multiplier(scale: np.float32) -> tuple[Array, Array]:
    return multipliers(np.asarray([float(scale)]))


def _mul(t: Translation) -> None:
    eight_bits(t, 0, 1, wide=True)
    product = t.node("Mul", [centred(t, 0), centred(t, 1)])
    factor = t.tensor(0).scale * t.tensor(1).scale / t.result().scale  # of float32
    t.put(rescale(t, product, factor.astype(np.float64), t.result()))


TRANSLATIONS: dict[str, Translate] = {
    "ADD": _sum("Add"),
    "SUB": _sum("Sub"),
    "MUL": _mul,
    "SQUARED_DIFFERENCE": _squared_difference,
    "PRELU": _prelu,
}
