"""Reductions, and operators that normalize along an axis."""

import math

import numpy as np
import onnx
import tflite
from onnx import helper

from mtool.compiler.frontend.tflite.elementwise import INT32, looked_up, number, scaling
from mtool.compiler.frontend.tflite.fixed_point import exponentials, multipliers
from mtool.compiler.frontend.tflite.rescaling import (
    EIGHT_BITS,
    centred,
    clamped,
    eight_bits,
    rescale,
    rescale_by,
    rescale_to,
    widened,
)
from mtool.compiler.frontend.tflite.translation import Translate, Translation
from mtool.compiler.kernels.interpolation import HIGH, LOW, reciprocals
from mtool.compiler.kernels.interpolation import exponentials as wide_exponentials
from mtool.compiler.operators.problems import OWN, Unsupported


def beta_of(t: Translation) -> float:
    """Return what SOFTMAX multiplies its input by: 0 without options, as in LiteRT.

    Raises:
        Unsupported: it is below 0, or no number.
    """
    beta = float(t.op.option("Beta", 0.0))
    if not 0 <= beta < np.inf:
        raise Unsupported(f"its beta is {beta}")
    return beta


def softmax(t: Translation) -> None:
    """SOFTMAX: of (x - max x) * beta, which stays finite where x * beta does not."""
    beta, x = beta_of(t), t.real(0)
    if beta != 1.0:
        most = t.node("ReduceMax", [x, t.whole("axes", [-1])], keepdims=1)
        x = t.node("Mul", [t.node("Sub", [x, most]), t.constant("beta", beta, np.float32)])
    t.store(t.node("Softmax", [x], axis=-1))


def log_softmax(t: Translation) -> None:
    """Append LOG_SOFTMAX."""
    t.store(t.node("LogSoftmax", [t.real(0)], axis=-1))


def l2_normalization(t: Translation) -> None:
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


def reduce(kind: str) -> Translate:
    """Append MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD."""

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


def reduce_bool(kind: str) -> Translate:
    """REDUCE_ANY, REDUCE_ALL: the largest or smallest of 0 and 1."""

    def translate(t: Translation) -> None:
        wide = t.node("Cast", [t.stored(0)], to=onnx.TensorProto.INT32)
        keep = int(bool(t.op.option("KeepDims")))
        made = t.node(kind, [wide, t.whole("axes", axes_of(t))], keepdims=keep)
        t.put(t.node("Cast", [made], to=onnx.TensorProto.BOOL))

    return translate


def arg(kind: str) -> Translate:
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


def cumsum(t: Translation) -> None:
    """Append CUMSUM."""
    (axis,) = t.numbers(1, "the axis")
    inputs = [t.real(0), t.constant("axis", axis, np.int64)]
    reverse, exclusive = int(t.op.option("Reverse")), int(t.op.option("Exclusive"))
    t.store(t.node("CumSum", inputs, reverse=reverse, exclusive=exclusive))


def exact_softmax(t: Translation) -> None:
    """SOFTMAX: gemmlowp's exponentials, of the difference to the largest, and its reciprocal of their sum."""
    x, out = t.tensor(0), t.result()
    if x.dtype not in EIGHT_BITS or x.scale.size != 1 or out.dtype.name not in ("int8", "uint8", "int16"):
        raise Unsupported(f"its input is {x.dtype}, its output {out.dtype}")
    unit = 2.0 ** (-8 * out.dtype.itemsize)
    near = abs(float(out.scale[0]) - unit) <= (1e-3 * unit if out.dtype == np.int16 else 0)
    if not near or int(out.zero_point[0]) != int(np.iinfo(out.dtype).min) or not x.shape:
        raise Unsupported(f"its output does not stand on a grid of 1/{round(1 / unit)} from 0 on")
    powers = t.constant("exponentials", exponentials(beta_of(t) * float(x.scale[0])))
    to = helper.np_dtype_to_tensor_dtype(out.dtype)
    t.put(t.node("FixedSoftmax", [t.stored(0), powers], domain=OWN, to=to))


def wide_softmax(t: Translation) -> None:
    """SOFTMAX along the last axis: exponentials by a table, and the reciprocal of their sum by another."""
    x, last = widened(t, t.stored(0)), t.whole("axes", [-1])
    difference = t.node("Sub", [x, t.node("ReduceMax", [x, last], keepdims=1)])
    scale = float(t.tensor(0).scale[0] * np.float32(beta_of(t))) / (10.0 / 65535.0)
    scaled = rescale_to(t, difference, *multipliers(np.asarray([scale])), INT32)
    powers = looked_up(t, clamped(t, t.node("Add", [scaled, number(t, HIGH)]), LOW, HIGH), wide_exponentials())
    total = t.node("ReduceSum", [powers, last], keepdims=1)
    reached = t.node("GreaterOrEqual", [total, t.constant("powers", 2 ** np.arange(31), np.int32)])
    bits = t.node("ReduceSum", [t.node("Cast", [reached], to=onnx.TensorProto.INT32), last], keepdims=1)
    factor = t.node("Gather", [t.constant("factors", [2 ** (31 - bit) for bit in range(32)], np.int64), bits])
    product = t.node("Mul", [t.node("Cast", [total], to=onnx.TensorProto.INT64), factor])
    product = t.node("Add", [product, t.constant("half", 1 << 13, np.int64)])
    shifted = widened(t, t.node("Div", [product, t.constant("places", 1 << 14, np.int64)]))
    moved = t.node("Sub", [shifted, number(t, (1 << 15) + (1 << 16))])
    share = looked_up(t, clamped(t, moved, LOW, HIGH), reciprocals())
    count = t.node("Gather", [t.constant("counts", [2 ** max(bit - 1, 0) for bit in range(32)], np.int32), bits])
    half = t.node("Gather", [t.constant("halves", [2 ** max(bit - 2, 0) for bit in range(32)], np.int32), bits])
    steps = t.node("Div", [t.node("Add", [t.node("Mul", [powers, share]), half]), count])
    t.put(t.node("Cast", [clamped(t, steps, 0, HIGH)], to=onnx.TensorProto.INT16))


def _total(t: Translation) -> tuple[str, int]:
    """Return the sums of a reduction's integers less their zero point, and of how many."""
    eight_bits(t, 0, wide=True)
    axes, shape = axes_of(t), t.shape(0)
    count = int(np.prod([shape[axis] for axis in axes]))
    most = 2**15 if t.tensor(0).dtype == np.int16 else 255
    if count * most >= 2**31:
        raise Unsupported(f"sums of {count:,} numbers may leave 32 bits")
    keep = int(bool(t.op.option("KeepDims")))
    return t.node("ReduceSum", [centred(t, 0), t.whole("axes", axes)], keepdims=keep, noop_with_empty_axes=1), count


def exact_mean(t: Translation) -> None:
    """MEAN: the division is part of the multiplier."""
    sums, count = _total(t)
    if not count:
        raise Unsupported("its mean is one of no numbers")
    by, shift = multipliers(np.asarray([float(t.tensor(0).scale[0]) / float(t.result().scale[0])]))
    exponent = -1 - int(shift[0])
    more = min(count.bit_length() - 1, 32, 31 + exponent)
    multiplier, shift = (
        np.asarray([(int(by[0]) << more) // count], np.int32),
        np.asarray([more - 1 - exponent], np.int8),
    )
    t.put(rescale_by(t, sums, multiplier, shift, t.result()))


def exact_sum(t: Translation) -> None:
    """SUM, as TFLite Micro has it, and LiteRT but for int8 and int16 in its reference kernel, which reads uint8."""
    sums, _ = _total(t)
    scale = float(t.tensor(0).scale[0]) / float(t.result().scale[0])
    t.put(rescale(t, sums, np.asarray([scale]), t.result()))


EXPONENT_BITS = 5  # before the point of an exponential's argument
MOST_EXPONENTIALS = 2**12 - 1  # whose sum has 31 bits
MOST_SQUARES = (2**31 - 1) // 255**2


def _check_rows(t: Translation, scale: float, zero: int, most: int) -> None:
    x, out = t.tensor(0), t.result()
    if x.dtype not in EIGHT_BITS or x.dtype != out.dtype or x.scale.size != 1:
        raise Unsupported(f"its input is {x.dtype} with {x.scale.size} scales, its output {out.dtype}")
    zero += 128 if out.dtype == np.uint8 else 0
    if float(out.scale[0]) != scale or out.zero != zero:
        raise Unsupported(f"its output stands on a grid of {out.scale[0]:g} around {out.zero}, not {scale} and {zero}")
    if not x.shape or not 1 <= x.shape[-1] <= most:
        raise Unsupported(f"its input is {list(x.shape)}; LiteRT's sums take rows of 1 to {most:,}")


def exact_l2_normalization(t: Translation) -> None:
    """L2_NORMALIZATION: the integers of a row times the inverse root of the sum of their squares."""
    _check_rows(t, 1 / 128, 0, MOST_SQUARES)
    if t.op.option("FusedActivationFunction"):
        raise Unsupported("it has a fused activation, which LiteRT refuses")
    t.put(t.node("FixedL2Norm", [t.stored(0)], domain=OWN, zero_point=t.tensor(0).zero))


def exact_log_softmax(t: Translation) -> None:
    """LOG_SOFTMAX: differences to the largest of a row, less the logarithm of the sum of their exponentials."""
    _check_rows(t, 1 / 16, 127, MOST_EXPONENTIALS)
    scale = float(t.tensor(0).scale[0])
    by, exponent = scaling(min(scale * 2 ** (31 - EXPONENT_BITS), 2.0**31 - 1))
    if exponent < 1:
        raise Unsupported(f"the scale of its input is {scale:g}")
    back, back_exponent = scaling(2 ** (31 - exponent) / by)
    powers = t.constant("exponentials", exponentials(scale))
    least = -math.floor((2**EXPONENT_BITS - 1) * 2 ** (31 - EXPONENT_BITS) / 2**exponent)
    node = t.node(
        "FixedLogSoftmax", [t.stored(0), powers], domain=OWN,
        multiplier=by, exponent=exponent, back=back, back_exponent=back_exponent, least=least,
    )  # fmt: skip
    t.put(node)


def exact_product(t: Translation) -> None:
    """REDUCE_PROD: each factor is scaled by its share of the whole, in multipliers of 15 bits."""
    x, out = t.tensor(0), t.result()
    if x.dtype.name not in ("int8", "int16") or x.dtype != out.dtype or x.scale.size != 1 or out.scale.size != 1:
        raise Unsupported(f"its input is {x.dtype}, its output {out.dtype}; LiteRT has int8 and int16")
    if x.dtype == np.int16 and (x.zero or out.zero):
        raise Unsupported("it is of int16 with a zero point")
    axes, rank = axes_of(t), len(x.shape)
    kept = [axis for axis in range(rank) if axis not in axes]
    count = math.prod(x.shape[axis] for axis in axes)
    if not math.prod(x.shape):
        raise Unsupported(f"its input is {list(x.shape)}")
    by, exponent = scaling(float(x.scale[0]) / float(out.scale[0]) ** (1.0 / count))
    if exponent > 7:
        raise Unsupported("its factors are scaled up too far")
    by = (by + (1 << 15)) >> 16 if by < 0x7FFF0000 else 0x7FFF
    source = t.stored(0)
    if kept + axes != list(range(rank)):
        source = t.node("Transpose", [source], perm=kept + axes)
    rows = t.node("Reshape", [source, t.whole("rows", [math.prod(x.shape) // count, count])])
    made = t.node(
        "FixedProduct", [rows], domain=OWN, zero_points=[x.zero, out.zero], multiplier=by, shift=15 - exponent
    )
    keep = bool(t.op.option("KeepDims"))
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape) if keep or axis not in axes]
    t.put(t.node("Reshape", [made, t.whole("shape", shape)]))
