"""TensorFlow Lite Micro's Signal library: audio features, frame by frame.

Data that its operators keep from earlier calls are states here. Source: signal/micro/kernels, by the operator.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from mtool.base import plural
from mtool.compiler.frontend.tflite.custom import numbers_of
from mtool.compiler.frontend.tflite.schema import COMPLEX, Tensor
from mtool.compiler.frontend.tflite.translation import State, Translate, Translation
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.problems import Unsupported
from mtool.compiler.operators.signal import RADICES, radices_of


def _option(t: Translation, name: str, least: int, most: int) -> int:
    return numbers_of(t.op).whole(name, least=least, most=most)


def _same(t: Translation, **attrs: int) -> None:
    """Set the outputs to those of mtool's own operator of the same name, with all inputs."""
    operands = [t.stored(index) for index in range(len(t.op.inputs))]
    for index, value in enumerate(_make(t, operands, len(t.op.outputs), **attrs)):
        t.put(value, index)


def _make(t: Translation, inputs: Sequence[str], outputs: int, **attrs: int) -> list[str]:
    """Append mtool's own operator of the same name."""
    return t.several(t.op.kind.removeprefix("CUSTOM "), outputs, *inputs, **attrs)


def _state(t: Translation, name: str, dtype: str, shape: Sequence[int], first: Array | None = None) -> State:
    """Return a state; its initial value is `first`, or 0."""
    nothing = np.zeros(0, np.float32), np.zeros(0, np.int64)
    key, kind = ("operator", t.op.name, name), Tensor(name, np.dtype(dtype), tuple(shape), *nothing, 0, None, "")
    if first is not None:
        t.variables.begin(key, first)
    return State(t, key, kind, lambda: t.unique(f"{t.names[t.op.outputs[0]]}/{name}"))


def window(t: Translation) -> None:
    """Append SignalWindow."""
    t.check_types(("int16", "int16"), ("int16",))
    _same(t, shift=_option(t, "shift", 0, 31))


def auto_scale(t: Translation) -> None:
    """Append SignalFftAutoScale."""
    t.check_types(("int16",), ("int16", "int32"))
    t.shape(0, 1)
    _same(t)


def transform(inverse: bool) -> Callable[[Translation], None]:
    """Append SignalRfft, SignalIrfft."""

    def translate(t: Translation) -> None:
        dtype = t.tensor(0).dtype.name
        t.check_types((dtype,), (dtype,))
        length = _option(t, "fft_length", 4, 2**20)
        t.afford(2 * length * t.tensor(0).dtype.itemsize)
        _same(t, length=length)

    return translate


def energy(t: Translation) -> None:
    """Append SignalEnergy."""
    t.check_types(("int16",), ("uint32",))
    (size,) = t.shape(0, 1)
    end = _option(t, "end_index", 0, size // 2)
    _same(t, start=_option(t, "start_index", 0, end), end=end)


def filter_bank(t: Translation) -> None:
    """Append SignalFilterBank."""
    t.check_types(("uint32", *["int16"] * 5), ("uint64",))
    t.shape(0, 1)
    channels, positions = _option(t, "num_channels", 1, 2**15), t.data(3, "the first frequencies").size
    if positions != channels + 1:
        raise Unsupported(f"it has {plural.count(positions, 'position')}; expected {channels + 1}")
    _same(t)


def square_root(t: Translation) -> None:
    """Append SignalFilterBankSquareRoot."""
    t.check_types(("uint64", "int32"), ("uint32",))
    t.shape(0, 1)
    _same(t)


def spectral_subtraction(t: Translation) -> None:
    """Append SignalFilterBankSpectralSubtraction."""
    t.check_types(("uint32",), ("uint32", "uint32"))
    t.shape(0, 1)
    options = numbers_of(t.op)
    _option(t, "num_channels", t.shape(0)[0], t.shape(0)[0])
    factors = ("smoothing", "one_minus_smoothing", "alternate_smoothing", "alternate_one_minus_smoothing")
    attrs = {name: options.whole(name) % 2**32 for name in (*factors, "min_signal_remaining")}
    attrs |= {"smoothing_bits": _option(t, "smoothing_bits", 0, 31), "clamping": options.whole("clamping", 0) != 0}
    attrs["bits"] = _option(t, "spectral_subtraction_bits", 0, 63)
    state = _state(t, "noise", "uint32", t.shape(0))
    result, noise = _make(t, [t.stored(0), state.name], 2, **attrs)
    t.put(result)
    t.put(noise, 1)
    state.put(t.names[t.op.outputs[1]])


def pcan(t: Translation) -> None:
    """Append SignalPCAN."""
    t.check_types(("uint32", "uint32", "int16"), ("uint32",))
    t.shape(0, 1)
    _same(t, shift=_option(t, "snr_shift", 0, 63))


def log(t: Translation) -> None:
    """Append SignalFilterBankLog."""
    t.check_types(("uint32",), ("int16",))
    t.shape(0, 1)
    scale = numbers_of(t.op).whole("output_scale") % 2**32
    _same(t, scale=scale, shift=_option(t, "input_correction_bits", 0, 31))


def _rows(t: Translation) -> tuple[tuple[int, ...], int]:
    """Return the outer dimensions of the input, and its last one.

    Raises:
        Unsupported: it is a scalar, or empty.
    """
    shape = t.shape(0)
    if not shape or not shape[-1]:
        raise Unsupported(f"its input {list(shape)} has no samples")
    return shape[:-1], shape[-1]


def _cut(t: Translation, value: str, first: int, end: int) -> str:
    """Return the elements `first` to `end - 1` of the last dimension."""
    return t("Slice", value, [first], [end], [-1])


def _behind(t: Translation, name: str, count: int) -> str:
    """Return the last `count` samples of earlier calls followed by the input, and keep its last ones."""
    outer, size = _rows(t)
    if not count:
        return t.stored(0)
    state = _state(t, name, t.tensor(0).dtype.name, (*outer, count))
    whole = t("Concat", state.name, t.stored(0), axis=-1)
    state.put(_cut(t, whole, size, size + count))
    return whole


def delay(t: Translation) -> None:
    """SignalDelay: delay.cc. The input, delayed by `delay_length` samples."""
    t.check_types(("int16",), ("int16",))
    size = _rows(t)[1]
    length = _option(t, "delay_length", 0, 2**24)
    t.put(_cut(t, _behind(t, "delayed", length), 0, size))


def framer(t: Translation) -> None:
    """SignalFramer: framer.cc. Overlapping frames; without `prefill` they are valid once they are full.

    Samples before the first are 0, where framer.cc leaves an invalid frame unchanged.
    """
    t.check_types(("int16",), ("int16", "bool"))
    outer, size = _rows(t)
    step = _option(t, "frame_step", 1, size)
    prefill = bool(numbers_of(t.op).whole("prefill", 0))
    length = _option(t, "frame_size", step if prefill else 1, 2**24)
    if size % step:
        raise Unsupported(f"its input has {size} samples; expected a multiple of its step {step}")
    steps, frames = -(-length // step), size // step
    before = length - step if prefill else (steps - 1) * step
    t.afford(8 * frames * length)
    whole = _behind(t, "samples", before)
    positions = np.arange(frames)[:, None] * step + np.arange(length)
    _give(t, t("Gather", whole, t.constant("places", positions, np.int64), axis=-1), (*outer, frames, length))
    if prefill or steps == 1:
        t.put(t.constant("valid", True, bool), 1)
        return
    state = _state(t, "steps", "int32", ())
    first = t("Add", state.name, 1)
    t.put(t("GreaterOrEqual", first, steps), 1)
    state.put(t("Min", t("Add", first, frames - 1), steps - 1))


def _give(t: Translation, value: str, shape: Sequence[int]) -> None:
    """Set the first output, which may have another shape with the same number of elements, to a value."""
    declared = t.result().shape
    if math.prod(declared) != math.prod(shape):
        raise Unsupported(f"its output is {list(declared)}; expected {list(shape)}")
    t.put(value if declared == tuple(shape) else t("Reshape", value, declared))


def stacker(t: Translation) -> None:
    """SignalStacker: stacker.cc. The last frames side by side, valid every `stacker_step` calls.

    The first frame also replaces those before it. `wait` counts the calls up to the next valid one; before the first
    call it is one more than later.
    """
    t.check_types(("int16",), ("int16", "bool"))
    t.shape(0, 1)
    channels = _option(t, "num_channels", *t.shape(0), *t.shape(0))
    left, right = (_option(t, f"stacker_{side}_context", 0, 2**15) for side in ("left", "right"))
    frames = left + right + 1
    step = _option(t, "stacker_step", 1, frames)
    t.afford(2 * frames * channels)
    wait = _state(t, "wait", "int32", (), np.asarray(frames + 1, np.int32))
    is_first = t("Greater", wait.name, frames)
    if frames > 1:
        state = _state(t, "frames", "int16", ((frames - 1) * channels,))
        before = t("Where", is_first, t("Tile", t.stored(0), [frames - 1]), state.name)
        stacked = t("Concat", before, t.stored(0), axis=0)
        state.put(_cut(t, stacked, channels, frames * channels))
    else:
        stacked = t("Identity", t.stored(0))
    _give(t, stacked, (frames * channels,))
    remaining = t("Where", is_first, right, t("Sub", wait.name, 1))
    valid = t("Equal", remaining, 0)
    wait.put(t("Where", valid, step, remaining))
    t.put(t("Identity", valid), 1)


def overlap_add(t: Translation) -> None:
    """SignalOverlapAdd: overlap_add.cc. The sum of frames `frame_step` apart; the rest is kept for later calls."""
    dtype = t.tensor(0).dtype.name
    if dtype not in ("int16", "float32"):
        raise Unsupported(f"its input is {dtype}; expected int16 or float32")
    t.check_types((dtype,), (dtype,))
    outer, size = _rows(t)
    if not outer or not outer[-1]:
        raise Unsupported(f"its input is {list(t.shape(0))}; expected [..., frames, samples]")
    step = _option(t, "frame_step", 1, size)
    if step == size:
        _give(t, t.stored(0), t.shape(0))
        return
    state = _state(t, "rest", dtype, (*outer[:-1], size - step))
    result, rest = _make(t, [t.stored(0), state.name], 2, step=step)
    _give(t, result, (*outer[:-1], outer[-1] * step))
    state.put(rest)


LEAST, MOST = 4, 2**16
MAX_BYTES = 2**31


def rfft2d(t: Translation) -> None:
    """RFFT2D: along the last dimension, then along the one before; the input is cropped or padded with zeros."""
    shape = t.shape(0)
    if t.tensor(0).dtype != np.float32 or len(shape) < 2:
        raise Unsupported(f"its input is {t.tensor(0).dtype}{list(shape)}; expected float32 of two dimensions or more")
    lengths = t.numbers(1, "the lengths")
    if len(lengths) != 2 or lengths[0] < 1:
        raise Unsupported(f"its lengths {lengths} are not valid")
    height, width = lengths
    if not LEAST <= width <= MOST or width % 2 or set(radices_of(width // 2)) - set(RADICES) or height > MOST:
        raise Unsupported(f"its lengths are {lengths}; expected {LEAST} to {MOST}, twice a product of 2s, 3s and 5s")
    value, rows = t.stored(0), min(shape[-2], height)
    if shape[-1] > width or shape[-2] > height:
        ends = [rows, min(shape[-1], width)]
        value = t("Slice", value, [0, 0], ends, [-2, -1])
    if 8 * math.prod((*shape[:-2], height, width // 2 + 1)) >= MAX_BYTES:
        raise Unsupported(f"its lengths {lengths} are too large for an input of {list(shape)}")
    t.afford(8 * width)
    value = t("SignalRfft", value, length=width)
    parts = (*shape[:-2], rows, width // 2 + 1, 2)
    value = t("Reshape", value, parts)
    if height > 1:
        t.afford(16 * height)
        value = t("DFT", value, np.int64(height), np.int64(len(parts) - 3))
    number, out_shape = t.op.outputs[0], (*shape[:-2], height, width // 2 + 1)
    if not t.tensors[number].allows(out_shape):
        raise Unsupported(f"its output is {list(t.tensors[number].shape)}; expected {list(out_shape)}")
    t.tensors[number] = replace(t.tensors[number], shape=out_shape)
    t.complex[number] = _part(t, value, 0), _part(t, value, 1)


def _part(t: Translation, value: str, number: int) -> str:
    return t("Squeeze", t("Slice", value, [number], [number + 1], [-1]), [-1])


def of_complex(t: Translation, moves: Translate | None) -> None:
    """Translate an operator that reads complex numbers; `moves` translates one that only moves elements.

    Raises:
        Unsupported: mtool does not support the operator for complex numbers.
    """
    if moves is not None and t.op.kind in ("SHAPE", "RANK"):
        _of_parts(t, 0, moves)
    elif moves is not None and all(t.tensors[number].problem == COMPLEX for number in t.op.outputs):
        parts = [_of_parts(t, part, moves) for part in (0, 1)]
        t.complex |= dict(zip(t.op.outputs, zip(*parts, strict=True), strict=True))
    elif t.op.kind in _OF_COMPLEX:
        _OF_COMPLEX[t.op.kind](t)
    else:
        raise Unsupported("complex inputs are not supported")


def _of_parts(t: Translation, part: int, translate: Translate) -> list[str]:
    """Translate an operator that moves elements for the real (0) or imaginary (1) parts; return the outputs' names."""
    numbers = {*t.op.inputs, *t.op.outputs} - {-1}
    names, tensors = {n: t.names[n] for n in numbers}, {n: t.tensors[n] for n in numbers}
    for number in numbers:
        if tensors[number].problem == COMPLEX:
            t.names[number] = t.complex[number][part] if number in t.complex else t.unique(f"{names[number]}/{part}")
            t.tensors[number] = replace(tensors[number], dtype=np.dtype(np.float32), problem="")
    try:
        translate(t)
        return [t.names[number] for number in t.op.outputs]
    finally:
        for number in numbers:
            t.names[number] = names[number]
            if tensors[number].problem:
                t.tensors[number] = tensors[number]


def _operands(t: Translation) -> list[tuple[str, str]]:
    if any(number not in t.complex for number in t.op.inputs):
        raise Unsupported("not all of its inputs are results of RFFT2D")
    return [t.complex[number] for number in t.op.inputs]


def _product(t: Translation) -> None:
    (a, b), (c, d) = _operands(t)
    products = [t("Mul", *pair) for pair in ((a, c), (b, d), (a, d), (b, c))]
    t.complex[t.op.outputs[0]] = t("Sub", *products[:2]), t("Add", *products[2:])


def _real(make: Callable[[str, str, Translation], str]) -> Callable[[Translation], None]:
    """An operator that maps each complex number to a real one."""

    def translate(t: Translation) -> None:
        ((real, imaginary),) = _operands(t)
        if t.result().dtype != np.float32:
            raise Unsupported(f"its output is {t.result().dtype}; expected float32")
        t.put(make(real, imaginary, t))

    return translate


_OF_COMPLEX: dict[str, Callable[[Translation], None]] = {
    "COMPLEX_ABS": _real(lambda real, imaginary, t: t("Sqrt", t("Add", *[t("Mul", x, x) for x in (real, imaginary)]))),
    "REAL": _real(lambda real, _imaginary, _t: real),
    "IMAG": _real(lambda _real, imaginary, _t: imaginary),
    "CAST": _real(lambda real, _imaginary, _t: real),
    "MUL": _product,
}


def no_complex(_t: Translation) -> None:
    """Refuse an input that is not a result of RFFT2D."""
    raise Unsupported("its input is not a result of RFFT2D")
