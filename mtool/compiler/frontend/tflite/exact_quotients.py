"""Quotients, norms, logarithms and products in the integer arithmetic of TFLite's reference kernels.

Sources: tensorflow/lite/kernels/div.cc, l2norm.cc, activations.cc (LogSoftmaxPrepare), reduce.cc (PrepareProd).
"""

import math
from collections.abc import Callable

import numpy as np

from mtool.compiler.frontend.problems import OWN, Unsupported
from mtool.compiler.frontend.tflite.elementwise import axes_of
from mtool.compiler.frontend.tflite.fixed_point import exponentials, limits, multipliers
from mtool.compiler.frontend.tflite.rescaling import EIGHT_BITS, eight_bits
from mtool.compiler.frontend.tflite.translation import Translation

Translate = Callable[[Translation], None]

EXPONENT_BITS = 5  # before the point of an exponential's argument
MOST_EXPONENTIALS = 2**12 - 1  # whose sum has 31 bits
MOST_SQUARES = (2**31 - 1) // 255**2


def _scaling(scale: float) -> tuple[int, int]:
    (by,), (shift,) = multipliers(np.asarray([scale]))
    return int(by), -1 - int(shift)


def _divide(t: Translation) -> None:
    """DIV: the reciprocal of the divisor with 31 bits, times the dividend, then to the grid of the result."""
    eight_bits(t, 0, 1, wide=True)
    a, b, out = t.tensor(0), t.tensor(1), t.result()
    if a.dtype != b.dtype or a.dtype != out.dtype:
        raise Unsupported(f"its operands are {a.dtype} and {b.dtype}, its result {out.dtype}")
    if b.data is not None and (b.data == b.zero).any():
        raise Unsupported("a divisor is 0, which LiteRT refuses when the model runs")
    by, exponent = _scaling(float(a.scale[0] / (b.scale[0] * out.scale[0])))  # of float32
    kind = np.iinfo(b.dtype)
    bounds = (kind.min, kind.max) if b.data is None else (b.data.min(), b.data.max())
    furthest = max(abs(int(bound) - b.zero) for bound in bounds)
    if not furthest.bit_length() - 1 <= exponent <= (15 if out.dtype == np.int16 else 23):
        raise Unsupported(
            f"its quotients are scaled by 2^{exponent}; for divisors up to {furthest}, "
            "LiteRT's kernel shifts numbers by more bits than they have"
        )
    low, high = limits(out, t.op.option("FusedActivationFunction"))
    zeros = [a.zero, b.zero, out.zero]
    node = t.node(
        "FixedQuotient", [t.stored(0), t.stored(1)], domain=OWN,
        zero_points=zeros, multiplier=by, exponent=exponent, low=low, high=max(low, high),
    )  # fmt: skip
    t.put(node)


def _check_rows(t: Translation, scale: float, zero: int, most: int) -> None:
    x, out = t.tensor(0), t.result()
    if x.dtype not in EIGHT_BITS or x.dtype != out.dtype or x.scale.size != 1:
        raise Unsupported(f"its input is {x.dtype} with {x.scale.size} scales, its output {out.dtype}")
    zero += 128 if out.dtype == np.uint8 else 0
    if float(out.scale[0]) != scale or out.zero != zero:
        raise Unsupported(f"its output stands on a grid of {out.scale[0]:g} around {out.zero}, not {scale} and {zero}")
    if not x.shape or not 1 <= x.shape[-1] <= most:
        raise Unsupported(f"its input is {list(x.shape)}; LiteRT's sums take rows of 1 to {most:,}")


def _l2_normalization(t: Translation) -> None:
    """L2_NORMALIZATION: the integers of a row times the inverse root of the sum of their squares."""
    _check_rows(t, 1 / 128, 0, MOST_SQUARES)
    if t.op.option("FusedActivationFunction"):
        raise Unsupported("it has a fused activation, which LiteRT refuses")
    t.put(t.node("FixedL2Norm", [t.stored(0)], domain=OWN, zero_point=t.tensor(0).zero))


def _log_softmax(t: Translation) -> None:
    """LOG_SOFTMAX: differences to the largest of a row, less the logarithm of the sum of their exponentials."""
    _check_rows(t, 1 / 16, 127, MOST_EXPONENTIALS)
    scale = float(t.tensor(0).scale[0])
    by, exponent = _scaling(min(scale * 2 ** (31 - EXPONENT_BITS), 2.0**31 - 1))
    if exponent < 1:
        raise Unsupported(f"the scale of its input is {scale:g}")
    back, back_exponent = _scaling(2 ** (31 - exponent) / by)
    powers = t.constant("exponentials", exponentials(scale))
    least = -math.floor((2**EXPONENT_BITS - 1) * 2 ** (31 - EXPONENT_BITS) / 2**exponent)
    node = t.node(
        "FixedLogSoftmax", [t.stored(0), powers], domain=OWN,
        multiplier=by, exponent=exponent, back=back, back_exponent=back_exponent, least=least,
    )  # fmt: skip
    t.put(node)


def _product(t: Translation) -> None:
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
    by, exponent = _scaling(float(x.scale[0]) / float(out.scale[0]) ** (1.0 / count))
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


TRANSLATIONS: dict[str, Translate] = {
    "DIV": _divide,
    "L2_NORMALIZATION": _l2_normalization,
    "LOG_SOFTMAX": _log_softmax,
    "REDUCE_PROD": _product,
}
