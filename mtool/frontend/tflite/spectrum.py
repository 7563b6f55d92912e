"""RFFT2D, and what makes real numbers of its complex ones: COMPLEX_ABS, REAL, IMAG.

A complex tensor is float32 with a last dimension of two. No other operator reads one, and it is no output of the model.
"""

import math
from collections.abc import Callable

import numpy as np

from mtool.frontend.problems import OWN, Unsupported
from mtool.frontend.tflite.translation import Translation
from mtool.lowerings.signal_transform import RADICES, radices_of

LEAST, MOST = 4, 2**16
MOST_BYTES = 2**31


def _rfft2d(t: Translation) -> None:
    """RFFT2D: along the last dimension, then along the one before; the input is cut or filled up with zeros."""
    shape = t.shape(0)
    if t.tensor(0).dtype != np.float32 or len(shape) < 2:
        raise Unsupported(f"its input is {t.tensor(0).dtype}{list(shape)}; expected float32 of two dimensions or more")
    lengths = t.numbers(1, "the lengths")
    if len(lengths) != 2 or lengths[0] < 1:
        raise Unsupported(f"its lengths are {lengths}")
    height, width = lengths
    if not LEAST <= width <= MOST or width % 2 or set(radices_of(width // 2)) - set(RADICES) or height > MOST:
        raise Unsupported(f"its lengths are {lengths}; expected {LEAST} to {MOST}, twice a product of 2, 3 and 5")
    value, rows = t.stored(0), min(shape[-2], height)
    if shape[-1] > width or shape[-2] > height:
        ends = [rows, min(shape[-1], width)]
        names = [t.whole(name, numbers) for name, numbers in (("first", [0, 0]), ("end", ends), ("axes", [-2, -1]))]
        value = t.node("Slice", [value, *names])
    if 8 * math.prod((*shape[:-2], height, width // 2 + 1)) >= MOST_BYTES:
        raise Unsupported(f"its lengths are {lengths} for an input of {list(shape)}, which is too large")
    t.afford(8 * width)
    value = t.node("SignalRfft", [value], domain=OWN, length=width)
    parts = (*shape[:-2], rows, width // 2 + 1, 2)
    value = t.node("Reshape", [value, t.whole("parts", parts)])
    if height > 1:
        t.afford(16 * height)
        value = t.node("DFT", [value, _scalar(t, height), _scalar(t, len(parts) - 3)])
    t.complex[t.op.outputs[0]] = value


def _scalar(t: Translation, number: int) -> str:
    return t.constant("number", number, np.int64)


def _real(part: Callable[[Translation, str], str]) -> Callable[[Translation], None]:
    """An operator that makes a real number of each complex one."""

    def translate(t: Translation) -> None:
        found = t.complex.get(t.op.inputs[0]) if t.op.inputs else None
        if found is None:
            raise Unsupported("its input is not what RFFT2D makes")
        if t.result().dtype != np.float32:
            raise Unsupported(f"its output is {t.result().dtype}; expected float32")
        t.put(part(t, found))

    return translate


def _absolute(t: Translation, value: str) -> str:
    return t.node("ReduceL2", [value, t.whole("axis", [-1])], keepdims=0)


def _part(number: int) -> Callable[[Translation, str], str]:
    return lambda t, value: t.node("Gather", [value, _scalar(t, number)], axis=-1)


TRANSLATIONS: dict[str, Callable[[Translation], None]] = {
    "RFFT2D": _rfft2d,
    "COMPLEX_ABS": _real(_absolute),
    "REAL": _real(_part(0)),
    "IMAG": _real(_part(1)),
}
