"""TensorFlow's fixed-point audio front end, bit for bit: filter bank energies with noise reduction and gain control.

micro_speech and microWakeWord use it. Its stages are operators of TensorFlow Lite Micro's Signal library, which has the
same arithmetic. Source: tensorflow/lite/experimental/microfrontend/lib (Apache-2.0), by file name.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.compiler.ir.types import Array
from mtool.preprocessing import signal_functions
from mtool.preprocessing.nodes import Nodes

WINDOW_BITS, FILTER_BITS, NOISE_BITS, SMOOTHING_BITS = 12, 12, 14, 10
GAIN_BITS, RATIO_BITS, GAIN_STRENGTH, GAIN_OFFSET = 21, 12, 0.95, 80.0
LOG_SCALE = 64
FEATURES_PER_UNIT = 25.6
"""Of the logarithm that models are trained with."""


def _f32(x: Any) -> np.float32:
    return np.float32(x)


def window(size: int) -> Array:
    """window_util.c: a raised cosine in steps of 1/4096."""
    turn = _f32(np.float32(math.pi) * _f32(2)) / _f32(size)
    points = np.asarray([_f32(math.cos(turn * (_f32(n) + _f32(0.5)))) for n in range(size)], np.float32)
    scaled: Array = np.floor((_f32(0.5) - _f32(0.5) * points) * _f32(1 << WINDOW_BITS) + _f32(0.5))
    return scaled.astype(np.int16)


def _log1p(x: np.float32) -> np.float32:
    """Return log1pf(x) for x >= 0 as newlib and most versions of glibc do (FreeBSD's s_log1pf.c), in float32."""
    one, power, lost = _f32(1), 0, _f32(0)
    f = x
    if x >= _f32(0.41422):
        total = one + x
        mantissa, power = math.frexp(total)
        lost = (one - (total - x) if power > 1 else x - (total - one)) / total
        f = _f32(mantissa * 2)
        power -= 1
        if f >= _f32(math.sqrt(2)):
            f, power = f * _f32(0.5), power + 1
        f -= one
    half, s = _f32(0.5) * f * f, f / (_f32(2) + f)
    z, rest = s * s, _f32(0)
    for term in reversed(_LOG_TERMS):
        rest = z * (_f32(term) + rest)
    high, low = _f32(power) * _f32(6.9313812256e-01), _f32(power) * _f32(9.0580006145e-06)
    return high - ((half - (s * (half + rest) + (low + lost))) - f)


_LOG_TERMS = (
    6.6666668653e-01, 4.0000000596e-01, 2.8571429849e-01, 2.2222198546e-01, 1.8183572590e-01, 1.5313838422e-01,
    1.4798198640e-01,
)  # fmt: skip


def _mel(hertz: Any) -> np.float32:
    return _f32(1127) * _log1p(_f32(hertz) / _f32(700))


@dataclass(frozen=True, slots=True)
class FilterBank:
    """A SignalFilterBank: its inputs, and the frequencies that it uses, from `first` to `end` (exclusive).

    tables: weights, unweights, starts, offsets and widths.
    """

    tables: tuple[Array, ...]
    first: int
    end: int


def filter_bank(channels: int, rate: int, spectrum: int, low: float, high: float) -> FilterBank:
    """filterbank_util.c: overlapping triangles, equally wide on the mel scale, with weights in steps of 1/4096.

    Each channel's frequencies are its falling half; the rising half of the next channel is the rest of their weight.
    """
    begin, spacing = _mel(low), (_mel(high) - _mel(low)) / _f32(channels + 1)
    centers = [_f32(begin + spacing * _f32(n + 1)) for n in range(channels + 1)]
    step = _f32(0.5 * rate) / (_f32(spectrum) - _f32(1))
    first = int(_f32(1.5) + _f32(low) / step)
    weights: list[int] = []
    starts, offsets, widths, place = [], [], [], first
    for center, before in zip(centers, [begin, *centers], strict=False):
        starts.append(place)
        offsets.append(len(weights))
        while _mel(_f32(place) * step) <= center:
            part = (center - _mel(_f32(place) * step)) / (center - before)
            weights.append(math.floor(part * _f32(1 << FILTER_BITS) + _f32(0.5)))
            place += 1
        widths.append(place - starts[-1])
    falling = np.asarray(weights, np.int64)
    shares = [falling, (1 << FILTER_BITS) - falling]
    vectors = tuple(np.asarray(values, np.int16) for values in (*shares, starts, offsets, widths))
    return FilterBank(vectors, first, place)


def gains(correction: int) -> Array:
    """pcan_gain_control_util.c: a gain for each power of two of the noise, as the numbers of a parabola."""
    bits = SMOOTHING_BITS - correction

    def gain(x: int) -> int:
        scaled = _f32(x) / _f32(1 << bits) + _f32(GAIN_OFFSET)
        value = _f32(1 << GAIN_BITS) * _f32(float(scaled) ** -float(_f32(GAIN_STRENGTH)))
        return 2**15 - 1 if value > 2**15 - 1 else int(value + _f32(0.5))

    table = [gain(0), gain(1)]
    for interval in range(2, 33):
        begin = 1 << (interval - 1)
        y = [gain(x) for x in (begin, begin + begin // 2, 2 * begin - (interval == 32))]
        slope = 4 * (y[1] - y[0]) - (y[2] - y[0])
        table += [y[0], slope, y[2] - y[0] - slope, 0]
    return np.asarray(table[:2] + table[2:], np.int16)


@dataclass(frozen=True, slots=True)
class Microfrontend:
    """The front end's parameters: samples a second, samples of a window, channels, and their frequencies in hertz."""

    rate: int
    window: int
    channels: int
    low: float
    high: float

    @property
    def length(self) -> int:
        """The length of the Fourier transform: a power of two."""
        return 1 << (self.window - 1).bit_length()

    def functions(self) -> list[onnx.FunctionProto]:
        """Return the functions of the operators of `frame`."""
        bank, correction, count = self._bank(), self._correction(), self.length // 2 + 1
        return [
            signal_functions.window(WINDOW_BITS),
            signal_functions.auto_scale(),
            signal_functions.transform(self.length, self.window),
            signal_functions.energy(bank.first, bank.end, count),
            signal_functions.filter_bank(bank.tables),
            signal_functions.square_root(),
            signal_functions.spectral_subtraction(self._subtraction(), self.channels),
            signal_functions.pcan(GAIN_BITS - correction - RATIO_BITS),
            signal_functions.log(correction, LOG_SCALE),
        ]

    def _bank(self) -> FilterBank:
        return filter_bank(self.channels, self.rate, self.length // 2 + 1, self.low, self.high)

    def _correction(self) -> int:
        return self.length.bit_length() - 1 - FILTER_BITS // 2

    def _subtraction(self) -> dict[str, int]:
        one = 1 << NOISE_BITS
        even, odd, least = (int(_f32(share) * _f32(one)) for share in (0.025, 0.06, 0.05))
        return {
            "smoothing": even, "one_minus_smoothing": one - even,
            "alternate_smoothing": odd, "alternate_one_minus_smoothing": one - odd,
            "min_signal_remaining": least, "smoothing_bits": SMOOTHING_BITS, "bits": NOISE_BITS, "clamping": 0,
        }  # fmt: skip

    def rows(self, w: Nodes, samples: str, noise: str, count: int, hop: int) -> tuple[str, str]:
        """Append the operators for `count` windows of int16 samples, a loop; return features, and the new noise.

        The features are int16[count, channels]; windows start `hop` samples apart, and the samples end with the last.
        """
        overlap = self.window - hop
        if count == 1:
            row, noise = self._row(w, w, samples, noise)
            return w("Unsqueeze", row, [0]), noise
        body = Nodes(f"{w.prefix}row_")
        frame = body("Concat", "before", "hop", axis=0) if overlap else "hop"
        row, last = self._row(w, body, frame, "noise")
        ends = [last, *([body("Slice", frame, [hop], [self.window], [0])] if overlap else []), row]
        kinds = [("noise", np.uint32, self.channels), *([("before", np.int16, overlap)] if overlap else [])]
        inputs, outputs = ([*kinds, spec] for spec in (("hop", np.int16, hop), ("row", np.int16, self.channels)))
        graph = helper.make_graph(
            body.nodes, "row", [_value(*spec) for spec in inputs],
            [_value(end, *spec[1:]) for end, spec in zip(ends, outputs, strict=True)], initializer=body.constants,
        )  # fmt: skip
        rest = w("Slice", samples, [overlap], [overlap + count * hop], [0]) if overlap else samples
        first = [w("Slice", samples, [0], [overlap], [0])] if overlap else []
        results = w.several(
            "Scan", len(ends), noise, *first, w("Reshape", rest, [count, hop]), body=graph, num_scan_inputs=1
        )
        return results[-1], results[0]

    def _row(self, w: Nodes, body: Nodes, frame: str, noise: str) -> tuple[str, str]:
        """Append the operators for a window to `body`, and their constants to `w`; return features, and the noise."""
        bank, correction = self._bank(), self._correction()
        tables = [w.constant(table) for table in bank.tables]
        shape, gain = w.constant(window(self.window)), w.constant(gains(correction))
        x = body("SignalWindow", frame, shape, shift=WINDOW_BITS)
        x, places = body.several("SignalFftAutoScale", 2, x, strict=1)
        x = body("SignalRfft", x, length=self.length)
        x = body("SignalFilterBank", body("SignalEnergy", x, start=bank.first, end=bank.end), *tables)
        x = body("SignalFilterBankSquareRoot", x, places)
        x, noise = body.several("SignalFilterBankSpectralSubtraction", 2, x, noise, **self._subtraction())
        x = body("SignalPCAN", x, noise, gain, shift=GAIN_BITS - correction - RATIO_BITS)
        return body("SignalFilterBankLog", x, shift=correction, scale=LOG_SCALE), noise


def _value(name: str, dtype: Any, size: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), [size])
