"""RFFT2D, and what reads its complex numbers: COMPLEX_ABS, REAL, IMAG, MUL, CAST, and operators that move elements.

A complex tensor is two of float32, the real and the imaginary parts. It is no input or output of the model.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mtool.compiler.frontend.problems import OWN, Unsupported
from mtool.compiler.frontend.tflite import movement
from mtool.compiler.frontend.tflite.schema import COMPLEX
from mtool.compiler.frontend.tflite.translation import Translation
from mtool.compiler.operators.signal import RADICES, radices_of

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
    number, made = t.op.outputs[0], (*shape[:-2], height, width // 2 + 1)
    if not t.tensors[number].allows(made):
        raise Unsupported(f"its output is {list(t.tensors[number].shape)} instead of {list(made)}")
    t.tensors[number] = replace(t.tensors[number], shape=made)
    t.complex[number] = _part(t, value, 0), _part(t, value, 1)


def _part(t: Translation, value: str, number: int) -> str:
    ends = [t.whole(stem, [place]) for stem, place in (("start", number), ("end", number + 1), ("axis", -1))]
    return t.node("Squeeze", [t.node("Slice", [value, *ends]), ends[2]])


def _scalar(t: Translation, number: int) -> str:
    return t.constant("number", number, np.int64)


def of_complex(t: Translation) -> None:
    """Translate an operator that reads complex numbers.

    Raises:
        Unsupported: it is not one that mtool has for them.
    """
    if t.op.kind in ("SHAPE", "RANK"):
        _of_parts(t, 0)
    elif t.op.kind in movement.TRANSLATIONS and all(t.tensors[number].problem == COMPLEX for number in t.op.outputs):
        parts = [_of_parts(t, part) for part in (0, 1)]
        t.complex |= dict(zip(t.op.outputs, zip(*parts, strict=True), strict=True))
    elif t.op.kind in _OF_COMPLEX:
        _OF_COMPLEX[t.op.kind](t)
    else:
        raise Unsupported("it reads complex numbers")


def _of_parts(t: Translation, part: int) -> list[str]:
    """Translate an operator that moves elements for the real (0) or the imaginary (1) parts, and return their names."""
    numbers = {*t.op.inputs, *t.op.outputs} - {-1}
    names, tensors = {n: t.names[n] for n in numbers}, {n: t.tensors[n] for n in numbers}
    for number in numbers:
        if tensors[number].problem == COMPLEX:
            t.names[number] = t.complex[number][part] if number in t.complex else t.unique(f"{names[number]}/{part}")
            t.tensors[number] = replace(tensors[number], dtype=np.dtype(np.float32), problem="")
    try:
        movement.TRANSLATIONS[t.op.kind](t)
        return [t.names[number] for number in t.op.outputs]
    finally:
        for number in numbers:
            t.names[number] = names[number]
            if tensors[number].problem:
                t.tensors[number] = tensors[number]


def _operands(t: Translation) -> list[tuple[str, str]]:
    if any(number not in t.complex for number in t.op.inputs):
        raise Unsupported("its inputs are not all what RFFT2D makes")
    return [t.complex[number] for number in t.op.inputs]


def _absolute(real: str, imaginary: str, t: Translation) -> str:
    squares = [t.node("Mul", [part, part]) for part in (real, imaginary)]
    return t.node("Sqrt", [t.node("Add", squares)])


def _product(t: Translation) -> None:
    (a, b), (c, d) = _operands(t)
    products = [t.node("Mul", pair) for pair in ((a, c), (b, d), (a, d), (b, c))]
    t.complex[t.op.outputs[0]] = t.node("Sub", products[:2]), t.node("Add", products[2:])


def _real(make: Callable[[str, str, Translation], str]) -> Callable[[Translation], None]:
    """An operator that makes a real number of each complex one."""

    def translate(t: Translation) -> None:
        ((real, imaginary),) = _operands(t)
        if t.result().dtype != np.float32:
            raise Unsupported(f"its output is {t.result().dtype}; expected float32")
        t.put(make(real, imaginary, t))

    return translate


_OF_COMPLEX: dict[str, Callable[[Translation], None]] = {
    "COMPLEX_ABS": _real(_absolute),
    "REAL": _real(lambda real, _imaginary, _t: real),
    "IMAG": _real(lambda _real, imaginary, _t: imaginary),
    "CAST": _real(lambda real, _imaginary, _t: real),
    "MUL": _product,
}


def _none(_t: Translation) -> None:
    raise Unsupported("its input is not what RFFT2D makes")


TRANSLATIONS: dict[str, Callable[[Translation], None]] = {
    "RFFT2D": _rfft2d,
    **dict.fromkeys(["COMPLEX_ABS", "REAL", "IMAG"], _none),
}
