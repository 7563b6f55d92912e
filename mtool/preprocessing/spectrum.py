"""Spectrograms, log-mel features and MFCCs in float, with the conventions of other libraries.

Sources: tf.signal (TensorFlow 2), torchaudio.transforms, librosa.feature, and benchmark/training/streaming_wakeword of
mlcommons/tiny for MLPerf's.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from mtool.base.errors import UsageError
from mtool.base.spelling import did_you_mean
from mtool.compiler.ir.types import Array
from mtool.preprocessing.audio import Rows
from mtool.preprocessing.front import LONGEST, MOST, Front, Target, within
from mtool.preprocessing.nodes import OPSET, Nodes

_WHOLE = 32  # of `emphasis`


@dataclass(frozen=True, slots=True)
class Convention:
    """How a library computes features from samples between -1 and 1.

    Attributes:
        rate, window, hop, mels, coefficients, low: the defaults of the parameters.
        exponent: of the magnitudes: 1 or 2.
        is_power_of_two: the transform's length is the next power of two, with zeros behind the window.
        pads: how the signal's ends are padded by half a window, so that row n is about sample n * hop; "": not at all.
        mel: the mel scale: htk, or slaney.
        over_mel: the triangles are straight over mel, and the constant has no weight; else over hertz.
        normed: each triangle has the same area.
        least, adds: the least value before the logarithm, or what is added.
        decibels: 10 log10; else the natural logarithm.
        span: decibels below the largest value at which values are clipped; 0: they are not.
        by_time: rows are the outer dimension; else features are. The shape of the model's input may say otherwise.
        emphasis: from each sample, this many 32nds of the previous one are subtracted.
        scale, offset: of the result, which is clipped to 0 to 1 if there is an offset.
    """

    rate: int = 16000
    window: int = 480
    hop: int = 320
    mels: int = 40
    coefficients: int = 13
    low: float = 0.0
    exponent: int = 2
    is_power_of_two: bool = False
    pads: str = ""
    mel: str = "htk"
    over_mel: bool = False
    normed: bool = False
    least: float = 1e-10
    adds: bool = False
    decibels: bool = True
    span: float = 80.0
    by_time: bool = False
    hamming: bool = False
    emphasis: int = 0
    scale: float = 1.0
    offset: float = 0.0


CONVENTIONS: Mapping[str, Convention] = {
    "tensorflow": Convention(
        exponent=1, low=80.0, is_power_of_two=True, over_mel=True, least=1e-6, adds=True, decibels=False, span=0,
        by_time=True,
    ),
    "torchaudio": Convention(window=400, hop=200, mels=128, coefficients=40, pads="reflect"),
    "librosa": Convention(
        rate=22050, window=2048, hop=512, mels=128, coefficients=20, pads="constant", mel="slaney", normed=True
    ),
    "mlperf": Convention(
        window=1024, hop=512, over_mel=True, least=1e-30, span=0, by_time=True, hamming=True, emphasis=31,
        scale=1 / 64, offset=52.0,
    ),
}  # fmt: skip
"""The libraries; "mlperf" is MLPerf Tiny's streaming wake word, whose power is divided by the window's length."""


@dataclass(frozen=True, slots=True)
class _Spectrum:
    """Features of overlapping windows of 16-bit samples.

    Parameters without a default here have the one of the library (`like`).

    like: the library: tensorflow, torchaudio, librosa or mlperf. rate: samples a second. window, hop: samples of a
    window, and between the starts of two. fft: the length of the transform. samples: of a call; by default as few
    as possible. rows: the number of new rows of a call, whose earlier samples and rows are kept; 0: a call has the
    samples of all rows. first: the features of rows before the first call; by default those of silence.
    """

    like: str = "tensorflow"
    rate: int = within(0, 1)
    window: int = within(0, 4, LONGEST)
    hop: int = within(0, 1, "window")
    fft: int = within(0, "window", LONGEST)
    samples: int = within(0, 1)
    rows: int = within(0, 0)
    first: float = within(math.nan, -MOST)

    def values(self) -> Mapping[str, Any]:
        """Return the parameters to check, by name."""
        convention = self._convention()
        half = convention.rate / 2
        values = {**asdict(self), **asdict(convention), "fft": self._length(convention), "half the rate": half}
        values["high"] = values.get("high") or half
        return {name: value for name, value in values.items() if value == value and (value or name != "samples")}

    def _convention(self) -> Convention:
        if self.like not in CONVENTIONS:
            raise UsageError(
                f"like={self.like}: unknown library",
                hint=did_you_mean(self.like, CONVENTIONS, f"one of {', '.join(CONVENTIONS)}"),
            )
        names = ("rate", "window", "hop", "mels", "coefficients")
        changed = {name: getattr(self, name) for name in names if getattr(self, name, 0) > 0}
        if getattr(self, "low", -1) >= 0:  # 0 hertz is a frequency
            changed["low"] = self.low  # type: ignore[attr-defined]
        convention = replace(CONVENTIONS[self.like], **changed)
        if self.rows:
            return replace(convention, pads="", span=0)
        return convention

    def _length(self, convention: Convention) -> int:
        """The length of the Fourier transform."""
        if self.fft:
            return self.fft
        return 1 << (convention.window - 1).bit_length() if convention.is_power_of_two else convention.window

    def _width(self, convention: Convention) -> tuple[int, str]:
        """The number of features of a row, and the parameter that sets it."""
        return self._length(convention) // 2 + 1, "fft"

    def _plan(self, target: Target) -> tuple[Convention, Rows, int, int]:
        """Return the convention, which windows a call computes, their number, and the number of samples."""
        convention = self._convention()
        rows = Rows(convention.window, convention.hop, self.rows, *self._width(convention))
        count, samples = rows.samples(target)
        if convention.pads:
            samples = (count - 1) * convention.hop
        if self.samples:
            spare = self.samples - samples
            if self.rows or not 0 <= spare < convention.hop:
                raise UsageError(f"samples={self.samples}: the {count} rows of {target} need {samples:,}")
            samples = self.samples
        return convention, rows, count, samples

    def needs(self, target: Target) -> Target:
        """Return the input that it needs to compute a target: int16 samples."""
        return Target("pcm", np.dtype(np.int16), (self._plan(target)[-1],))

    def append(self, front: Front, value: str, target: Target) -> str:
        """Append its nodes, which read `value`, and return the target's value."""
        convention, rows, count, samples = self._plan(target)
        w, new, before = front.write, self.rows or count, int(bool(convention.emphasis))
        if self.rows:
            overlap = convention.window - convention.hop + before
            value = front.behind("samples", value, overlap, samples, (), np.int16(0))
        x, unit = value, 2.0**-15
        if convention.emphasis:  # in integers, which are exact
            x, unit = w.cast(x, np.int32), unit / _WHOLE
            if not self.rows:
                x = w("Pad", x, [1, 0])
            size = samples + (convention.window - convention.hop if self.rows else 0)
            past = w("Mul", w("Slice", x, [0], [size], [0]), np.int32(convention.emphasis))
            x = w("Sub", w("Mul", w("Slice", x, [1], [size + 1], [0]), np.int32(_WHOLE)), past)
        power = self._power(front, w.cast(x, np.float32), convention, new, unit)
        first = self._silence(convention) if math.isnan(self.first) and self.rows else self.first
        values = self._features(front, power, convention)
        return rows.joined(front, values, target, first=first, by_time=convention.by_time)

    def _silence(self, convention: Convention) -> Array:
        """Return the features of samples of 0."""
        front, bins = Front(Nodes()), self._length(convention) // 2 + 1
        power, values = (helper.make_tensor_value_info("power", TensorProto.FLOAT, [1, bins]), helper.ValueInfoProto())
        values.name = self._features(front, power.name, convention)
        graph = helper.make_graph(front.write.nodes, "silence", [power], [values], front.write.constants)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        return np.asarray(ReferenceEvaluator(proto).run(None, {power.name: np.zeros((1, bins), np.float32)})[0])

    def _power(self, front: Front, x: str, convention: Convention, count: int, unit: float) -> str:
        """Return the spectra of samples in a unit, a power of two that the window includes; [count, bins]."""
        w, length = front.write, self._length(convention)
        if convention.pads:
            x = w("Pad", x, [length // 2] * 2, mode=convention.pads)
        elif length > convention.window:
            x = w("Pad", x, [0, length - convention.window])
        window = np.zeros(length, np.float32)
        phase = 2 * np.pi * np.arange(convention.window) / (convention.window - convention.hamming)
        first = (length - convention.window) // 2 if convention.pads else 0
        raised = 0.54 if convention.hamming else 0.5
        window[first : first + convention.window] = raised - (1 - raised) * np.cos(phase)
        window *= np.float32(unit)
        x = w("Unsqueeze", x, [0, 2])
        x = w("STFT", x, np.int64(convention.hop), window, np.int64(length), onesided=1)
        x = w("Reshape", w("ReduceSumSquare", x, [3], keepdims=0), [-1, length // 2 + 1])
        if self.samples:
            x = w("Slice", x, [0], [count], [0])
        return w("Sqrt", x) if convention.exponent == 1 else x

    def _features(self, front: Front, power: str, convention: Convention) -> str:
        return power

    def _log_mel(self, front: Front, power: str, convention: Convention, high: float) -> str:
        w, length = front.write, self._length(convention)
        weights = mel_weights(convention, length, high or convention.rate / 2)
        if convention.offset:
            weights = weights / length
        x = w("MatMul", power, weights.astype(np.float32))
        x = w("Log", w("Add" if convention.adds else "Max", x, convention.least))
        if convention.decibels:
            x = w("Mul", x, 10 / math.log(10))
        if convention.span:
            x = w("Max", x, w("Sub", w("ReduceMax", x, keepdims=0), convention.span))
        if convention.offset:
            x = w("Mul", w("Add", x, convention.offset), convention.scale)
            x = w("Min", w("Max", x, 0.0), 1.0)
        return x


@dataclass(frozen=True, slots=True)
class Spectrogram(_Spectrum):
    """Magnitudes (tensorflow) or powers of the frequencies of each window."""


@dataclass(frozen=True, slots=True)
class LogMel(_Spectrum):
    """Logarithms of the energies of `mels` bands between `low` and `high` (by default half the rate) hertz."""

    mels: int = within(0, 1)
    low: float = within(-1.0, 0, "high", but="high")
    high: float = within(0.0, 0, "half the rate", but=0)

    def _width(self, convention: Convention) -> tuple[int, str]:
        return convention.mels, "mels"

    def _features(self, front: Front, power: str, convention: Convention) -> str:
        return self._log_mel(front, power, convention, self.high)


@dataclass(frozen=True, slots=True)
class Mfcc(LogMel):
    """Mel-frequency cepstral coefficients: a discrete cosine transform (type 2) of log-mel features."""

    coefficients: int = within(0, 1, "mels")

    def _width(self, convention: Convention) -> tuple[int, str]:
        return convention.coefficients, "coefficients"

    def _features(self, front: Front, power: str, convention: Convention) -> str:
        values = self._log_mel(front, power, convention, self.high)
        mels, count = convention.mels, convention.coefficients
        turns = np.pi / mels * (np.arange(mels)[:, None] + 0.5) * np.arange(count)
        matrix = np.cos(turns) * math.sqrt(2 / mels)
        if not convention.over_mel:  # orthonormal
            matrix[:, 0] /= math.sqrt(2)
        return front.write("MatMul", values, matrix.astype(np.float32))


def mel_weights(convention: Convention, length: int, high: float) -> Array:
    """Return the weights of a mel filter bank, [bins, mels]: triangles between points equally far apart in mel."""
    to_mel, to_hertz = _SCALES[convention.mel]
    hertz = np.arange(length // 2 + 1) * (convention.rate / length)
    points = np.linspace(to_mel(np.float64(convention.low)), to_mel(np.float64(high)), convention.mels + 2)
    edges = points if convention.over_mel else to_hertz(points)
    places = to_mel(hertz) if convention.over_mel else hertz
    rising = (places[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - places[:, None]) / (edges[2:] - edges[1:-1])
    weights = np.maximum(0, np.minimum(rising, falling))
    if convention.over_mel:
        weights[0] = 0
    if convention.normed:
        weights *= 2 / (edges[2:] - edges[:-2])
    return np.asarray(weights)


_KNEE, _STEP, _RATIO = 1000.0, 200 / 3, math.log(6.4) / 27
"""Slaney's scale: straight up to a knee, then logarithmic."""


def _to_slaney(hertz: Array) -> Array:
    above = _KNEE / _STEP + np.log(np.maximum(hertz, _KNEE) / _KNEE) / _RATIO
    return np.where(hertz < _KNEE, hertz / _STEP, above)


def _of_slaney(mel: Array) -> Array:
    knee = _KNEE / _STEP
    return np.where(mel < knee, mel * _STEP, _KNEE * np.exp(_RATIO * (np.maximum(mel, knee) - knee)))


_SCALES: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "htk": (lambda hertz: 1127 * np.log1p(hertz / 700), lambda mel: 700 * np.expm1(mel / 1127)),
    "slaney": (_to_slaney, _of_slaney),
}
