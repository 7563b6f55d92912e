"""The operators of TensorFlow Lite Micro's Signal library as ONNX functions, for onnxruntime and other tools.

mtool compiles the operators as such (mtool.compiler.operators.signal). The functions have the same results; each is
for the attributes of one node, and its integers are int64 inside.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from mtool.compiler.ir import DType
from mtool.compiler.ir.types import Array
from mtool.compiler.operators.signal import points_of, radices_of, table_of_log
from mtool.preprocessing.nodes import Nodes

_BITS = 32
_LOG_2 = 45426  # in steps of 2^-16


def window(shift: int) -> onnx.FunctionProto:
    """SignalWindow: x * window >> shift, saturated."""
    w = Nodes()
    product = w.floor_divided(w("Mul", w.cast("x", np.int64), w.cast("window", np.int64)), 1 << shift)
    y = w("Min", w("Max", product, -(2**15)), 2**15 - 1)
    return w.function("SignalWindow", ["x", "window"], ["y"], [w.cast(y, np.int16)])


def auto_scale() -> onnx.FunctionProto:
    """SignalFftAutoScale with `strict`: x shifted left by the unused bits of its largest element but -32768."""
    w = Nodes()
    x = w.cast("x", np.int64)
    magnitude = w("Abs", x)
    most = w("ReduceMax", w("Where", w("Equal", x, -(2**15)), 0, magnitude), keepdims=0)
    spare = w("Sub", 15, _bits(w, most, 15))
    y = w("Mul", x, w.chosen(spare, [1 << n for n in range(16)]))
    outputs = [w.cast(y, np.int16), w.cast(spare, np.int32)]
    return w.function("SignalFftAutoScale", ["x"], ["y", "scale_bits"], outputs)


def _bits(w: Nodes, x: str, most: int) -> str:
    """Append the number of bits of each natural number of at most `most` bits; 0 has none."""
    last = w("Unsqueeze", x, [-1])
    above = w.cast(w("GreaterOrEqual", last, np.asarray([1 << n for n in range(most)], np.int64)), np.int64)
    return w("ReduceSum", above, [-1], keepdims=0)


def _wrapped(w: Nodes, x: str) -> str:
    """Append the conversion to int16, which takes the lowest 16 bits."""
    return w("Sub", w("Mod", w("Add", x, 2**15), 2**16), 2**15)


class _Complex:
    """Complex numbers in KISS FFT's 16-bit arithmetic: products are rounded, and sums wrap."""

    def __init__(self, w: Nodes, real: str, imaginary: str) -> None:
        self.w, self.parts = w, (real, imaginary)

    def _by_part(self, kind: str, other: "_Complex") -> "_Complex":
        pairs = zip(self.parts, other.parts, strict=True)
        return _Complex(self.w, *(_wrapped(self.w, self.w(kind, *pair)) for pair in pairs))

    def __add__(self, other: "_Complex") -> "_Complex":
        return self._by_part("Add", other)

    def __sub__(self, other: "_Complex") -> "_Complex":
        return self._by_part("Sub", other)

    def _rounded(self, x: str) -> str:
        return _wrapped(self.w, self.w.floor_divided(self.w("Add", x, 2**14), 2**15))

    def scaled(self, by: int) -> "_Complex":
        return _Complex(self.w, *(self._rounded(self.w("Mul", part, by)) for part in self.parts))

    def times(self, points: Array) -> "_Complex":
        """Multiply by constants; the last dimension of `points` has the real and the imaginary part."""
        w, (r, i) = self.w, self.parts
        real, imaginary = (w.constant(points[..., part].astype(np.int64)) for part in (0, 1))
        return _Complex(
            w,
            self._rounded(w("Sub", w("Mul", r, real), w("Mul", i, imaginary))),
            self._rounded(w("Add", w("Mul", r, imaginary), w("Mul", i, real))),
        )

    def turned(self) -> "_Complex":
        """Multiply by i."""
        return _Complex(self.w, _wrapped(self.w, self.w("Neg", self.parts[1])), self.parts[0])

    def conjugate(self) -> "_Complex":
        return _Complex(self.w, self.parts[0], _wrapped(self.w, self.w("Neg", self.parts[1])))

    def moved(self, kind: str, *operands: object, **attrs: object) -> "_Complex":
        """Apply an operator that moves elements to both parts."""
        return _Complex(self.w, *(self.w(kind, part, *operands, **attrs) for part in self.parts))


def transform(length: int, samples: int) -> onnx.FunctionProto:
    """SignalRfft of int16, for a length whose half is a product of 2s and 4s."""
    w, half = Nodes(), length // 2
    x = w("Pad", w.cast("x", np.int64), [0, length - samples])
    pairs = w("Reshape", x, [half, 2])
    radices = radices_of(half)
    parts = [w("Gather", w("Gather", pairs, part, axis=1), _order(radices)) for part in (0, 1)]
    z, m, stride = _Complex(w, *parts), 1, half
    circle = points_of([-2 * np.pi * n / half for n in range(half)], DType.INT16).reshape(half, 2)
    for radix in reversed(radices):
        stride //= radix
        z = _stage(w, z, radix, m, circle[np.arange(m)[:, None] * np.arange(radix) * stride % half])
        m *= radix
    turns = points_of([-np.pi * ((n + 1) / half + 0.5) for n in range(half // 2)], DType.INT16).reshape(-1, 2)
    z = z.moved("Reshape", [half]).scaled((2**15 - 1) // 2)
    first, second = (w("Gather", part, [0]) for part in z.parts)
    ends = [_wrapped(w, w(kind, first, second)) for kind in ("Add", "Sub")]
    a = z.moved("Gather", list(range(1, half // 2 + 1)))
    b = z.moved("Gather", list(range(half - 1, half // 2 - 1, -1))).conjugate()
    total, turn = a + b, (a - b).times(turns)
    ahead = [w.floor_divided(w("Add", *pair), 2) for pair in zip(total.parts, turn.parts, strict=True)]
    behind = [
        w.floor_divided(w("Sub", total.parts[0], turn.parts[0]), 2),
        w.floor_divided(w("Sub", turn.parts[1], total.parts[1]), 2),
    ]
    spectrum = []
    for edges, low, high in zip((ends, [w.constant([0])] * 2), ahead, behind, strict=True):
        rising = w("Gather", low, list(range(half // 2 - 1)))
        falling = w("Gather", high, list(range(half // 2 - 1, -1, -1)))
        spectrum.append(w("Unsqueeze", w("Concat", edges[0], rising, falling, edges[1], axis=0), [1]))
    y = w("Reshape", w("Concat", *spectrum, axis=1), [length + 2])
    return w.function("SignalRfft", ["x"], ["y"], [w.cast(y, np.int16)])


def _order(radices: Sequence[int]) -> list[int]:
    """Return the digit-reversed order of the input."""
    places, weight = [0], 1
    for radix in radices:
        places = [place + digit * weight for place in places for digit in range(radix)]
        weight *= radix
    return places


def _stage(w: Nodes, z: _Complex, radix: int, m: int, twiddles: Array) -> _Complex:
    """Append one stage; `twiddles` are by place and part."""
    z = z.moved("Reshape", [-1, radix, m]).scaled((2**15 - 1) // radix)
    p = [z.moved("Gather", n, axis=1) for n in range(radix)]
    p[1:] = [part.times(twiddles[:, n]) for n, part in enumerate(p[1:], 1)]
    if radix == 2:
        parts_of_stage = [p[0] + p[1], p[0] - p[1]]
    else:
        even, less, odd, turn = p[0] + p[2], p[0] - p[2], p[1] + p[3], (p[1] - p[3]).turned()
        parts_of_stage = [even + odd, less - turn, even - odd, less + turn]
    columns = [column.moved("Unsqueeze", [1]) for column in parts_of_stage]
    return _Complex(w, *(w("Concat", *parts, axis=1) for parts in zip(*(part.parts for part in columns), strict=True)))


def energy(start: int, end: int, count: int) -> onnx.FunctionProto:
    """SignalEnergy: the squares of the magnitudes; 0 outside `start` to `end`."""
    w = Nodes()
    x = w.cast(w("Reshape", "x", [count, 2]), np.int64)
    used = (np.arange(count) >= start) & (np.arange(count) < end)
    y = w("Mul", w("ReduceSum", w("Mul", x, x), [1], keepdims=0), used.astype(np.int64))
    return w.function("SignalEnergy", ["x"], ["y"], [w.cast(y, np.uint32)])


def filter_bank(tables: Sequence[Array]) -> onnx.FunctionProto:
    """SignalFilterBank, with its weights, unweights, starts, offsets and widths: differences of sums."""
    w, (weights, _, starts, offsets, widths) = Nodes(), tables
    places = np.zeros(weights.size, np.int64)
    for start, offset, width in zip(starts, offsets, widths, strict=True):
        places[offset : offset + width] = start + np.arange(width)
    read = w("Gather", w.cast("x", np.int64), places)
    first, end = offsets.astype(np.int64), (offsets + widths).astype(np.int64)
    sums = []
    for name in ("weights", "unweights"):
        running = w("CumSum", w("Mul", w.cast(name, np.int64), read), 0)
        whole = w("Concat", [0], running, axis=0)
        sums.append(w("Sub", w("Gather", whole, end), w("Gather", whole, first)))
    channels = len(starts) - 1
    y = w("Add", w("Slice", sums[0], [1], [channels + 1]), w("Slice", sums[1], [0], [channels]))
    names = ["x", "weights", "unweights", "starts", "offsets", "widths"]
    return w.function("SignalFilterBank", names, ["y"], [w.cast(y, np.uint64)])


def square_root() -> onnx.FunctionProto:
    """SignalFilterBankSquareRoot: rounded square roots, shifted back; those below 2^32 are at most 65535."""
    w = Nodes()
    x = w.cast("x", np.int64)
    root = w.cast(w("Floor", w("Sqrt", w.cast(x, np.float64))), np.int64)
    is_above = w("Greater", w("Sub", x, w("Mul", root, root)), root)
    is_last = w("And", w("Less", x, 2**32), w("Equal", root, 2**16 - 1))
    rounded = w("Add", root, w.cast(w("And", is_above, w("Not", is_last)), np.int64))
    y = w("Div", rounded, w.chosen("scale_bits", [1 << n for n in range(_BITS)]))
    return w.function("SignalFilterBankSquareRoot", ["x", "scale_bits"], ["y"], [w.cast(y, np.uint32)])


def spectral_subtraction(options: Mapping[str, int], channels: int) -> onnx.FunctionProto:
    """SignalFilterBankSpectralSubtraction without clamping."""
    w, bits = Nodes(), 1 << options["bits"]
    is_odd = np.arange(channels) % 2
    smoothing, other = (
        np.where(is_odd, options[f"alternate_{name}"], options[name]).astype(np.int64)
        for name in ("smoothing", "one_minus_smoothing")
    )
    x, scale = w.cast("x", np.int64), 1 << options["smoothing_bits"]
    signal = w("Mod", w("Mul", x, scale), 2**32)
    whole = w("Add", w("Mul", signal, smoothing), w("Mul", w.cast("noise", np.int64), other))
    estimate = w("Mod", w("Div", whole, bits), 2**32)
    least = w("Div", w("Mul", x, options["min_signal_remaining"]), bits)
    rest = w("Div", w("Sub", signal, w("Min", estimate, signal)), scale)
    results = [w.cast(tensor, np.uint32) for tensor in (w("Max", rest, least), estimate)]
    return w.function("SignalFilterBankSpectralSubtraction", ["x", "noise"], ["y", "next"], results)


def pcan(shift: int) -> onnx.FunctionProto:
    """SignalPCAN: a gain that depends on the noise, by parabolas, and compression of large values."""
    w = Nodes()
    x, noise, gains = (w.cast(name, np.int64) for name in ("x", "noise", "gains"))
    bits = _bits(w, noise, _BITS)
    up, down = ([1 << max(sign * (11 - n), 0) for n in range(_BITS + 1)] for sign in (1, -1))
    fraction = w("Mod", w("Div", w("Mul", noise, w.chosen(bits, up)), w.chosen(bits, down)), 1024)
    place = w("Max", w("Sub", w("Mul", bits, 4), 6), 0)
    first, slope, curve = (w("Gather", gains, w("Add", place, n)) for n in range(3))
    slope = w("Add", w.floor_divided(w("Mul", curve, fraction), 32), w("Mul", slope, 32))
    parabola = w("Add", w.floor_divided(w("Add", w("Mul", slope, fraction), 2**14), 2**15), first)
    small = w("Gather", gains, w("Min", noise, 2))
    gain = w("Where", w("LessOrEqual", noise, 2), small, parabola)
    ratio = w("Div", w("Mul", x, gain), 1 << shift)
    large = w("Sub", w("Div", ratio, 64), 64)
    y = w("Where", w("Less", ratio, 8192), w("Div", w("Mul", ratio, ratio), 2**20), large)
    return w.function("SignalPCAN", ["x", "noise", "gains"], ["y"], [w.cast(y, np.uint32)])


def log(shift: int, scale: int) -> onnx.FunctionProto:
    """SignalFilterBankLog: scaled natural logarithms; fractions of the binary one are interpolated in a table."""
    w = Nodes()
    x = w("Mod", w("Mul", w.cast("x", np.int64), 1 << shift), 2**32)
    whole = w("Sub", _bits(w, w("Max", x, 1), _BITS), 1)
    rest = w("Sub", w("Max", x, 1), w.chosen(whole, [1 << n for n in range(_BITS)]))
    up, down = ([1 << max(sign * (16 - n), 0) for n in range(_BITS)] for sign in (1, -1))
    fraction = w("Div", w("Mul", rest, w.chosen(whole, up)), w.chosen(whole, down))
    segment = w("Div", fraction, 512)
    table = w.cast(w.constant(table_of_log()), np.int64)
    low, high = (w("Gather", table, w("Add", segment, n)) for n in (0, 1))
    above = w.floor_divided(w("Mul", w("Sub", high, low), w("Mod", fraction, 512)), 2**16)
    binary = w("Add", w("Mul", whole, 2**16), w("Add", fraction, w("Add", low, above)))
    natural = w("Div", w("Add", w("Mul", binary, _LOG_2), 2**15), 2**16)
    scaled = w("Div", w("Add", w("Mul", natural, scale), 2**15), 2**16)
    y = w("Where", w("Greater", x, 1), w("Min", scaled, 2**15 - 1), 0)
    return w.function("SignalFilterBankLog", ["x"], ["y"], [w.cast(y, np.int16)])
