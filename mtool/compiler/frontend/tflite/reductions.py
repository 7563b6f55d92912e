"""Reductions, and normalizations along an axis."""

import math

import numpy as np
import tflite

from mtool.base import plural
from mtool.compiler.frontend.tflite.elementwise import looked_up
from mtool.compiler.frontend.tflite.fixed_point import exponentials, narrowed
from mtool.compiler.frontend.tflite.rescaling import EIGHT_BITS, centred, eight_bits, rescale, rescale_to
from mtool.compiler.frontend.tflite.translation import GRIDS, Translate, Translation
from mtool.compiler.kernels.interpolation import HIGH, LOW, reciprocals
from mtool.compiler.kernels.interpolation import exponentials as wide_exponentials
from mtool.compiler.kernels.scaling import fixed_multiplier
from mtool.compiler.operators.problems import Unsupported


def beta_of(t: Translation) -> float:
    """Return SOFTMAX's factor of its input: 0 without options, as in LiteRT.

    Raises:
        Unsupported: it is negative or not a number.
    """
    beta = float(t.op.option("Beta", 0.0))
    if not 0 <= beta < np.inf:
        raise Unsupported(f"its beta is {beta}; expected 0 or more")
    return beta


def softmax(t: Translation, x: str) -> str:
    """SOFTMAX of (x - max x) * beta, which stays finite where x * beta does not."""
    beta = beta_of(t)
    if beta != 1.0:
        x = t("Mul", t("Sub", x, t("ReduceMax", x, [-1], keepdims=1)), beta)
    return t("Softmax", x, axis=-1)


def l2_normalization(t: Translation, x: str) -> str:
    """L2_NORMALIZATION: x / sqrt(max(sum of x^2, 1e-6))."""
    total = t("ReduceSumSquare", x, [-1], keepdims=1)
    return t.activated(t("Div", x, t("Sqrt", t("Max", total, 1e-6))))


def axes_of(t: Translation) -> list[int]:
    """Return a reduction's axes, from 0 on."""
    rank = len(t.shape(0))
    axes = sorted({number + rank if number < 0 else number for number in t.numbers(1, "the axes")})
    if any(not 0 <= number < rank for number in axes):
        raise Unsupported(f"its axes are {t.numbers(1, 'the axes')}; its input has {rank} dimensions")
    return axes


def reduce(kind: str) -> Translate:
    """Append MEAN, SUM, REDUCE_MAX, REDUCE_MIN, REDUCE_PROD; REDUCE_ANY, REDUCE_ALL: the extreme of 0 and 1."""

    def translate(t: Translation) -> None:
        axes, dtype = axes_of(t), t.tensor(0).dtype
        picks = kind in ("ReduceMax", "ReduceMin") and t.same_grid(0)
        value = t.stored(0) if picks else t.real(0)
        is_wider = picks and dtype in (np.int16, np.bool_)  # ONNX has no maximum of these types
        value = t.cast(value, np.int32) if is_wider else value
        result = t(kind, value, axes, keepdims=keep_dims(t)) if axes else t("Identity", value)
        result = t.cast(result, dtype) if is_wider else result
        if picks:
            t.put(result)
        else:
            t.store(result)

    return translate


def keep_dims(t: Translation) -> int:
    """Return whether a reduction keeps the reduced dimensions with size 1."""
    return int(bool(t.op.option("KeepDims")))


def arg(kind: str) -> Translate:
    """ARG_MAX, ARG_MIN of the stored integers, which have the same order."""

    def translate(t: Translation) -> None:
        (axis,) = t.numbers(1, "the axis")
        expected = tflite.TensorType.INT64 if t.result().dtype == np.int64 else tflite.TensorType.INT32
        if t.op.option("OutputType", expected) != expected:
            raise Unsupported(f"its output is {t.result().dtype}, but its option output_type is another type")
        result = t(kind, t.stored(0), axis=axis, keepdims=0)
        if t.result().dtype != np.int64:
            result = t.cast(result, t.result().dtype)
        t.put(result)

    return translate


def cumsum(t: Translation, x: str) -> str:
    """CUMSUM."""
    (axis,) = t.numbers(1, "the axis")
    reverse, exclusive = int(t.op.option("Reverse")), int(t.op.option("Exclusive"))
    return t("CumSum", x, np.int64(axis), reverse=reverse, exclusive=exclusive)


def exact_softmax(t: Translation) -> None:
    """SOFTMAX: gemmlowp's exponentials of the differences from the largest number, and its reciprocal of their sum."""
    x, out = t.tensor(0), t.result()
    if x.dtype not in EIGHT_BITS or x.scale.size != 1 or out.dtype.name not in GRIDS:
        raise Unsupported(f"its input is {x.dtype} and its output {out.dtype}, which is not supported")
    unit = 2.0 ** (-8 * out.dtype.itemsize)
    near = abs(float(out.scale[0]) - unit) <= (1e-3 * unit if out.dtype == np.int16 else 0)
    if not near or out.zero != int(np.iinfo(out.dtype).min) or not x.shape:
        raise Unsupported(f"its output's scale is not 1/{round(1 / unit)}, or its zero point not the smallest integer")
    powers = t.constant("exponentials", exponentials(beta_of(t) * float(x.scale[0])))
    t.put(t("FixedSoftmax", t.stored(0), powers, to=out.dtype))


def wide_softmax(t: Translation) -> None:
    """SOFTMAX along the last axis: the exponentials and the reciprocal of their sum by tables."""
    x, bits_of = t.cast(t.stored(0), np.int32), range(32)
    difference = t("Sub", x, t("ReduceMax", x, [-1], keepdims=1))
    scale = float(t.tensor(0).scale[0] * np.float32(beta_of(t))) / (10.0 / 65535.0)
    scaled = rescale_to(t, difference, scale)
    powers = looked_up(t, t("Clip", t("Add", scaled, HIGH), LOW, HIGH), wide_exponentials())
    total = t("ReduceSum", powers, [-1], keepdims=1)
    reached = t("GreaterOrEqual", total, t.constant("powers", 2 ** np.arange(31), np.int32))
    bits = t("ReduceSum", t.cast(reached, np.int32), [-1], keepdims=1)
    factor = t("Gather", t.constant("factors", [2 ** (31 - bit) for bit in bits_of], np.int64), bits)
    product = t("Add", t("Mul", t.cast(total, np.int64), factor), np.int64(1 << 13))
    moved = t("Sub", t.cast(t("Div", product, np.int64(1 << 14)), np.int32), (1 << 15) + (1 << 16))
    share = looked_up(t, t("Clip", moved, LOW, HIGH), reciprocals())
    count = t("Gather", t.constant("counts", [2 ** max(bit - 1, 0) for bit in bits_of], np.int32), bits)
    half = t("Gather", t.constant("halves", [2 ** max(bit - 2, 0) for bit in bits_of], np.int32), bits)
    steps = t("Div", t("Add", t("Mul", powers, share), half), count)
    t.put(t.cast(t("Clip", steps, 0, HIGH), np.int16))


def _total(t: Translation) -> tuple[str, int, float]:
    """Return the sums of a reduction's integers less their zero point, the count, and the scale to the output."""
    eight_bits(t, 0, wide=True)
    axes, shape = axes_of(t), t.shape(0)
    count = int(np.prod([shape[axis] for axis in axes]))
    most = 2**15 if t.tensor(0).dtype == np.int16 else 255
    if count * most >= 2**31:
        raise Unsupported(f"sums of {count:,} numbers may overflow 32 bits")
    total = t("ReduceSum", centred(t, 0), axes, keepdims=keep_dims(t), noop_with_empty_axes=1)
    return total, count, float(t.tensor(0).scale[0]) / float(t.result().scale[0])


def exact_mean(t: Translation) -> None:
    """MEAN: the division is part of the multiplier."""
    sums, count, scale = _total(t)
    if not count:
        raise Unsupported("it reduces no elements")
    by, exponent = fixed_multiplier(scale)
    more = min(count.bit_length() - 1, 32, 31 + exponent)
    share = np.asarray([(by << more) // count], np.int32), np.asarray([more - 1 - exponent], np.int8)
    t.put(rescale(t, sums, share, t.result()))


def exact_sum(t: Translation) -> None:
    """SUM, as in TFLite Micro, and in LiteRT except int8 and int16, which its reference kernel reads as uint8."""
    sums, _, scale = _total(t)
    t.put(rescale(t, sums, scale, t.result()))


EXPONENT_BITS = 5  # integer bits of an exponential's argument
MAX_EXPONENTIALS = 2**12 - 1  # the most exponentials whose sum fits in 31 bits
MAX_SQUARES = (2**31 - 1) // 255**2


def _check_rows(t: Translation, scale: float, zero: int, most: int) -> None:
    x, out = t.tensor(0), t.result()
    if x.dtype not in EIGHT_BITS or x.dtype != out.dtype or x.scale.size != 1:
        raise Unsupported(f"its input is {x.dtype} with {plural.count(x.scale.size, 'scale')}, its output {out.dtype}")
    zero += 128 if out.dtype == np.uint8 else 0
    if float(out.scale[0]) != scale or out.zero != zero:
        raise Unsupported(f"its output has scale {out.scale[0]:g}, zero point {out.zero}; expected {scale} and {zero}")
    if not x.shape or not 1 <= x.shape[-1] <= most:
        raise Unsupported(f"its input is {list(x.shape)}; LiteRT supports rows of 1 to {most:,} elements")


def exact_l2_normalization(t: Translation) -> None:
    """L2_NORMALIZATION: the integers of a row times the inverse root of the sum of their squares."""
    _check_rows(t, 1 / 128, 0, MAX_SQUARES)
    if t.activation:
        raise Unsupported("it has a fused activation, which LiteRT does not support")
    t.put(t("FixedL2Norm", t.stored(0), zero_point=t.tensor(0).zero))


def exact_log_softmax(t: Translation) -> None:
    """LOG_SOFTMAX: differences from a row's largest number, less the logarithm of the sum of their exponentials."""
    _check_rows(t, 1 / 16, 127, MAX_EXPONENTIALS)
    scale = float(t.tensor(0).scale[0])
    by, exponent = fixed_multiplier(min(scale * 2 ** (31 - EXPONENT_BITS), 2.0**31 - 1))
    if exponent < 1:
        raise Unsupported(f"the scale of its input, {scale:g}, is too small")
    back, back_exponent = fixed_multiplier(2 ** (31 - exponent) / by)
    powers = t.constant("exponentials", exponentials(scale))
    least = -math.floor((2**EXPONENT_BITS - 1) * 2 ** (31 - EXPONENT_BITS) / 2**exponent)
    t.put(t(
        "FixedLogSoftmax", t.stored(0), powers, multiplier=by, exponent=exponent, back=back,
        back_exponent=back_exponent, least=least,
    ))  # fmt: skip


def exact_product(t: Translation) -> None:
    """REDUCE_PROD: each factor is scaled by its share of the total scale, with 15-bit multipliers."""
    x, out = t.tensor(0), t.result()
    if x.dtype.name not in ("int8", "int16") or x.dtype != out.dtype or x.scale.size != 1 or out.scale.size != 1:
        raise Unsupported(f"its input is {x.dtype}, its output {out.dtype}; LiteRT supports int8 and int16")
    if x.dtype == np.int16 and (x.zero or out.zero):
        raise Unsupported("its zero point is not 0, which int16 needs")
    axes, rank = axes_of(t), len(x.shape)
    outer = [axis for axis in range(rank) if axis not in axes]
    count = math.prod(x.shape[axis] for axis in axes)
    if not math.prod(x.shape):
        raise Unsupported(f"its input {list(x.shape)} has no elements")
    by, exponent = fixed_multiplier(float(x.scale[0]) / float(out.scale[0]) ** (1.0 / count))
    if exponent > 7:
        raise Unsupported("the scale of its input is too large for its output")
    source = t.stored(0)
    if outer + axes != list(range(rank)):
        source = t("Transpose", source, perm=outer + axes)
    rows = t("Reshape", source, [math.prod(x.shape) // count, count])
    product = t("FixedProduct", rows, zero_points=[x.zero, out.zero], multiplier=int(narrowed(by)), shift=15 - exponent)
    shape = [1 if axis in axes else size for axis, size in enumerate(x.shape) if keep_dims(t) or axis not in axes]
    t.put(t("Reshape", product, shape))
