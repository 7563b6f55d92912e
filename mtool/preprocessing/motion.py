"""Features of a window of samples of several axes, such as an accelerometer's."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mtool.base.errors import UsageError
from mtool.preprocessing.front import LONGEST, Front, Target, within
from mtool.preprocessing.nodes import Nodes

STATISTICS = ("mean", "deviation", "rms", "least", "most")


@dataclass(frozen=True, slots=True)
class _Windowed:
    """Features of each axis of a window of float samples.

    axes: their number. window: samples of a window. hop: the new samples of a call, whose earlier ones are kept; by
    default a call has the whole window.
    """

    axes: int = within(3, 1)
    window: int = within(128, 2, LONGEST)
    hop: int = within(0, 1, "window")

    def values(self) -> Mapping[str, Any]:
        """Return the parameters to check, by name."""
        return {**asdict(self), "hop": self.hop or self.window}

    def _features(self, w: Nodes, x: str, count: int) -> str:
        """Return the features of samples [window, axes]: [axes, count]."""
        raise NotImplementedError

    def needs(self, target: Target) -> Target:
        """Return the input that it needs to compute a target."""
        if target.count % self.axes:
            raise UsageError(f"the model's input {target} does not consist of the features of {self.axes} axes")
        return Target("samples", np.dtype(np.float32), (self.hop or self.window, self.axes))

    def append(self, front: Front, value: str, target: Target) -> str:
        """Append its nodes, which read `value`, and return the target's value."""
        overlap = self.window - self.hop if self.hop else 0
        x = front.behind("samples", value, overlap, self.hop, (self.axes,), np.float32(0))
        features = self._features(front.write, x, target.count // self.axes)
        return front.write("Reshape", front.stored(features, target)[0], list(target.shape))


@dataclass(frozen=True, slots=True)
class Statistics(_Windowed):
    """For each axis: mean, standard deviation, root mean square, minimum and maximum."""

    def _features(self, w: Nodes, x: str, count: int) -> str:
        if count != len(STATISTICS):
            raise UsageError(
                f"the model has {count} features for each axis; statistics are {len(STATISTICS)}",
                details=[", ".join(STATISTICS)],
            )
        mean = w("ReduceMean", x, [0], keepdims=0)
        rest = w("Sub", x, mean)
        deviation, rms = (w("Sqrt", w("ReduceMean", w("Mul", tensor, tensor), [0], keepdims=0)) for tensor in (rest, x))
        values = [mean, deviation, rms, *(w(kind, x, [0], keepdims=0) for kind in ("ReduceMin", "ReduceMax"))]
        return w("Concat", *(w("Unsqueeze", value, [1]) for value in values), axis=1)


@dataclass(frozen=True, slots=True)
class SpectralPower(_Windowed):
    """For each axis: the power spectral density, as scipy.signal.periodogram with a Hann window, for `rate` 1 hertz.

    The first frequencies, as many as the model has features for each axis; `log` 1: their natural logarithms.
    """

    log: int = within(0, 0, 1)

    def _features(self, w: Nodes, x: str, count: int) -> str:
        if count > self.window // 2 + 1:
            raise UsageError(f"a window of {self.window} samples has {self.window // 2 + 1} frequencies, not {count}")
        centered = w("Sub", x, w("ReduceMean", x, [0], keepdims=1))
        shape = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(self.window) / self.window)
        signals = w("Unsqueeze", w("Transpose", centered, perm=[1, 0]), [2])
        spectrum = w(
            "STFT", signals, np.int64(self.window), shape.astype(np.float32), np.int64(self.window), onesided=1
        )
        power = w("ReduceSumSquare", w("Slice", spectrum, [0], [count], [2]), [1, 3], keepdims=0)
        scale = np.full(count, 2 / (shape**2).sum())
        scale[0] /= 2
        if count == self.window / 2 + 1:
            scale[-1] /= 2
        power = w("Mul", power, scale.astype(np.float32))
        return w("Log", w("Max", power, 1e-10)) if self.log else power
