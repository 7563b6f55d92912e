"""Features of sound: one row for each of overlapping windows."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mtool.base.errors import UsageError
from mtool.preprocessing.front import LONGEST, Front, Target, within
from mtool.preprocessing.microfrontend import FEATURES_PER_UNIT, Microfrontend

_SCALE, _SAME = 26 / 255, 0.005  # a model's scale, and the largest difference from it


@dataclass(frozen=True, slots=True)
class Rows:
    """Which windows a call computes.

    rows: the number of new rows of a call; the model's other rows, and the samples that windows have in common, are
        kept from earlier calls. 0: a call has the samples of all rows, and nothing is kept.
    width: the number of features of a row, which the parameter `sets_width` sets.
    """

    window: int
    hop: int
    rows: int
    width: int
    sets_width: str = "channels"

    def samples(self, target: Target) -> tuple[int, int]:
        """Return the number of rows of a target, and of samples of a call.

        Raises:
            UsageError: the target is not a number of rows.
        """
        count, rest = divmod(target.count, self.width)
        if rest or not count:
            raise UsageError(
                f"the model's input {target} does not consist of rows of {self.width}",
                details=[f"it has {target.count} elements"],
                hint=f"set the number of features of a row: KIND:{self.sets_width}=N",
            )
        if self.rows > count:
            raise UsageError(f"rows={self.rows}: the model's input {target} has {count} rows of {self.width}")
        return count, self.rows * self.hop if self.rows else (count - 1) * self.hop + self.window

    def windows(self, front: Front, value: str) -> str:
        """Return the samples of a call's windows."""
        overlap = self.window - self.hop if self.rows else 0
        return front.behind("samples", value, overlap, self.rows * self.hop, (), np.int16(0))

    def joined(
        self,
        front: Front,
        value: str,
        target: Target,
        *,
        first: Any = 0.0,
        is_stored: bool = False,
        by_time: bool = True,
    ) -> str:
        """Return the target's value: the rows of earlier calls, and the new ones.

        `first`: the features before the first call. `is_stored`: the rows have the target's type; else they are floats.
        `by_time`: rows are the outer dimension if the target's shape does not say it.
        """
        if not is_stored:
            value, _ = front.stored(value, target)
        if target.scale:
            limits = np.iinfo(target.dtype)
            first = np.clip(np.rint(first / target.scale) + target.zero_point, limits.min, limits.max)
        count = target.count // self.width
        start = np.asarray(first).astype(target.dtype)
        value = front.behind("rows", value, count - self.rows if self.rows else 0, self.rows, (self.width,), start)
        sizes = [size for size in target.shape if size > 1]
        if count != self.width and sizes in ([count, self.width], [self.width, count]):
            by_time = sizes[0] == count
        if not by_time:
            value = front.write("Transpose", value, perm=[1, 0])
        return front.write("Reshape", value, list(target.shape))


@dataclass(frozen=True, slots=True)
class MicroSpeech:
    """The fixed-point front end of micro_speech and microWakeWord, bit for bit, PCAN included.

    rate: samples a second. window, hop: samples of a window, and between the starts of two. channels: features of a
    row. low, high: their frequencies in hertz. rows: the number of new rows of a call, whose earlier rows and noise
    estimate are kept; 0: a call has the samples of all rows, and starts with no estimate.
    """

    rate: int = within(16000, 1)
    window: int = within(480, 33, LONGEST)
    hop: int = within(320, 1, "window")
    channels: int = within(40, 1)
    low: float = within(125.0, 0, "high", but="high")
    high: float = within(7500.0, 0, "half the rate")
    rows: int = within(0, 0)

    def values(self) -> Mapping[str, Any]:
        """Return the parameters to check, by name."""
        return {**asdict(self), "half the rate": self.rate / 2}

    def _parts(self) -> tuple[Microfrontend, Rows]:
        core = Microfrontend(self.rate, self.window, self.channels, self.low, self.high)
        return core, Rows(self.window, self.hop, self.rows, self.channels)

    def needs(self, target: Target) -> Target:
        """Return the input that it needs to compute a target: int16 samples."""
        _, rows = self._parts()
        return Target("pcm", np.dtype(np.int16), (rows.samples(target)[1],))

    def append(self, front: Front, value: str, target: Target) -> str:
        """Append its nodes, which read `value`, and return the target's value."""
        core, rows = self._parts()
        count, _ = rows.samples(target)
        front.functions += core.functions()
        nothing = np.zeros(self.channels, np.uint32)
        noise = front.state("noise", nothing) if self.rows else None
        start = noise.name if noise else front.write.constant(nothing)
        samples = rows.windows(front, value)
        whole, last = core.rows(front.write, samples, start, self.rows or count, self.hop)
        if noise:
            noise.keep(last)
        is_stored = target.dtype == np.int8 and target.zero_point == -128 and abs(target.scale / _SCALE - 1) < _SAME
        if is_stored:  # micro_features_generator.cc: the integers 0 to 665 become 0 to 255, less 128
            wide = front.write("Mul", front.write.cast(whole, np.int32), np.int32(256))
            scaled = front.write("Div", front.write("Add", wide, np.int32(333)), np.int32(666))
            value = front.write("Min", front.write("Sub", scaled, np.int32(128)), np.int32(127))
            value = front.write.cast(value, np.int8)
        else:
            value = front.write("Mul", front.write.cast(whole, np.float32), 1 / FEATURES_PER_UNIT)
        return rows.joined(front, value, target, is_stored=is_stored)
