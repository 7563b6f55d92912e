"""Filters of one signal, with the samples and sums that they keep from call to call. Source: scipy.signal."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mtool.base.errors import UsageError, of_os_error
from mtool.compiler.ir.types import Array
from mtool.preprocessing.front import Front, Target, within
from mtool.preprocessing.nodes import Nodes

_TAPS = 20  # of a decimating filter, on each side of an output, for each of `by` inputs: as scipy.signal.decimate


@dataclass(frozen=True, slots=True)
class Biquad:
    """A filter of sections of second order, as scipy.signal.sosfilt.

    sos: a .npy file with the sections, [n, 6], such as scipy.signal.butter(4, 3800, fs=16000, output="sos").
    """

    sos: str = ""

    def values(self) -> Mapping[str, Any]:
        """Return nothing: no parameter is a number."""
        return {}

    def needs(self, target: Target) -> Target:
        """Return the input that it needs to compute a target: as many samples."""
        return _samples(target, target.count)

    def append(self, front: Front, value: str, target: Target) -> str:
        """Append its nodes, which read `value`, and return the target's value."""
        sections = self._sections()
        state = front.state("filter", np.zeros((len(sections), 2), np.float32))
        x = front.write.cast(value, np.float32)
        y, following = front.write.several("Biquad", 2, x, sections, state.name)
        state.keep(following)
        front.functions.append(_function(len(sections)))
        return _stored(front, y, target)

    def _sections(self) -> Array:
        if not self.sos:
            raise UsageError("front end 'biquad': sos is missing", hint="give a .npy file: biquad:sos=FILE.npy")
        try:
            sections = np.asarray(np.load(Path(self.sos), allow_pickle=False), np.float64)
        except OSError as failed:
            raise of_os_error(failed, f"{self.sos} can't be read") from None
        except ValueError:
            raise UsageError(f"{self.sos} is not an array of numbers", hint="write it with numpy.save") from None
        if sections.ndim != 2 or sections.shape[1] != 6 or not len(sections) or not sections[:, 3].all():
            raise UsageError(f"biquad:sos={self.sos} is {list(sections.shape)}; expected [n, 6], as SciPy's sos")
        if not np.isfinite(sections).all():
            raise UsageError(f"biquad:sos={self.sos} has coefficients that are not finite numbers")
        return np.asarray(sections / sections[:, 3:4], np.float32)


@dataclass(frozen=True, slots=True)
class Decimate:
    """A low-pass filter that keeps one of `by` samples: scipy.signal.decimate(ftype="fir", zero_phase=False)."""

    by: int = within(2, 2, 1024)

    def values(self) -> Mapping[str, Any]:
        """Return the parameters to check, by name."""
        return asdict(self)

    def needs(self, target: Target) -> Target:
        """Return the input that it needs to compute a target: `by` times its samples."""
        return _samples(target, target.count * self.by)

    def append(self, front: Front, value: str, target: Target) -> str:
        """Append its nodes, which read `value`, and return the target's value."""
        w, size = front.write, _TAPS * self.by + 1
        places = np.arange(size) - (size - 1) / 2
        taps = np.sinc(places / self.by) * np.hamming(size)
        x = front.behind("decimated", value, size - 1, target.count * self.by, (), np.int16(0))
        x = w("Unsqueeze", w.cast(x, np.float32), [0, 1])
        kernel = (taps / taps.sum()).astype(np.float32)[None, None]
        return _stored(front, w("Conv", x, kernel, strides=[self.by]), target)


def _samples(target: Target, count: int) -> Target:
    return Target("pcm", np.dtype(np.int16), (count,))


def _stored(front: Front, value: str, target: Target) -> str:
    """Return samples in the target's type and shape: 16-bit ones are rounded and limited.

    Raises:
        UsageError: the target has several channels.
    """
    w = front.write
    if max(target.shape) != target.count:
        raise UsageError(
            f"the input {target} has several channels; a front end filters one signal",
            hint="filter the channels in your program, or give a model with one channel",
        )
    if target.dtype == np.int16 and not target.scale:
        value = w.cast(w("Min", w("Max", w("Round", value), -32768.0), 32767.0), np.int16)
    else:
        value, _ = front.stored(value, target)
    return w("Reshape", value, list(target.shape))


def _function(sections: int) -> onnx.FunctionProto:
    """Biquad as a scan over the samples, for onnxruntime."""
    body, sums = Nodes(), []
    value = "v"
    for section in range(sections):
        b0, b1, b2, _, a1, a2 = (body("Gather", "c", np.int64(6 * section + n)) for n in range(6))
        s, t = (body("Gather", "s", np.int64(2 * section + n)) for n in range(2))
        out = body("Add", body("Mul", b0, value), s)
        sums.append(body("Add", body("Sub", body("Mul", b1, value), body("Mul", a1, out)), t))
        sums.append(body("Sub", body("Mul", b2, value), body("Mul", a2, out)))
        value = out
    flat = body("Concat", *(body("Unsqueeze", total, [0]) for total in sums), axis=0)
    inner = [helper.make_node("Identity", [value], ["u"]), helper.make_node("Identity", [flat], ["r"])]
    floats = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in (
        ("s", [2 * sections]), ("v", []), ("r", [2 * sections]), ("u", []),
    )]  # fmt: skip
    graph = helper.make_graph([*body.nodes, *inner], "sample", floats[:2], floats[2:], body.constants)
    w = Nodes("outer_")
    c = w("Reshape", "sections", [-1])
    w.nodes[-1].output[0] = "c"
    assert c
    start = w("Reshape", "state", [-1])
    following, y = w.several("Scan", 2, start, "x", body=graph, num_scan_inputs=1)
    return w.function("Biquad", ["x", "sections", "state"], ["y", "next"], [y, w("Reshape", following, [sections, 2])])
