"""Compare a device's outputs with a reference, tensor by tensor."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mtool.base import checked
from mtool.base.errors import MismatchError
from mtool.base.tensors import Array
from mtool.manifest import Tensor

EQUAL = "equal"

FLOAT = 1e-5
"""The default tolerance of floats, relative to the largest magnitude and to each value."""

_LSB_BINS = (
    *((EQUAL, -1, -1), ("below 0.5 LSB", 0, 0), ("1 LSB", 1, 1), ("2 LSB", 2, 2)),
    *((f"{low} to {high} LSB", low, high) for low, high in ((3, 4), (5, 8), (9, 16), (17, 32), (33, 64), (65, 128))),
    *(("129 to 255 LSB", 129, 255), ("over 255 LSB", 256, np.inf)),
)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The differences allowed in an output.

    lsb: steps of a quantized integer output.
    of_backends: additional steps for what a backend computes, and for the outputs of a network with a backend.
    grid_steps: steps of a float output on a quantization grid, whatever `lsb` is; None: one.
    atol: absolute difference of a float output, times max(1, largest magnitude of the reference); None: FLOAT.
    rtol: difference of a float output relative to the reference; None: FLOAT. A float output on a quantization grid may
        differ by the grid's steps, or by these two if either is set.
    ties: allow differences where the reference's own rounding is a tie (mtool.verification.rounding_ties).
    """

    lsb: checked.Natural = 0
    of_backends: checked.Natural = 0
    grid_steps: checked.Natural | None = None
    atol: checked.NotNegative | None = None
    rtol: checked.NotNegative | None = None
    ties: bool = True

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: one is not a number, or is negative.
        """
        checked.fields(self, {})


@dataclass(frozen=True, slots=True)
class Difference:
    """The comparison of one output over all samples.

    `differing` of `elements` are not equal; `max_abs` is the largest difference (None: not finite), `max_lsb` the same
    in steps of the output's grid, if it has one. `histogram` counts elements by their difference. `worst` describes the
    largest difference and its place. `within`: all differences are within `allowed`.
    """

    name: str
    dtype: str
    elements: int
    differing: int
    max_abs: float | None
    max_lsb: int | None
    allowed: str
    within: bool
    histogram: tuple[tuple[str, int], ...]
    worst: str

    @property
    def most(self) -> str:
        """The largest difference, as text."""
        if self.max_lsb is not None:
            return f"by {self.max_lsb} LSB at most"
        return "some of them infinite or NaN" if self.max_abs is None else f"by {self.max_abs:.3g} at most"

    def lines(self) -> list[str]:
        """Return lines for an error: the number of differing elements, by how much, and the largest difference."""
        counts = ", ".join(
            f"{count:,} {label}" if label == EQUAL else f"{count:,} by {label}" for label, count in self.histogram
        )
        differing = f"{self.differing:,} of {self.elements:,} elements differ"
        return [f"{self.name}: {differing}, allowed: {self.allowed}", f"  {counts}", f"  {self.worst}"]


@dataclass(frozen=True, slots=True)
class Report:
    """The comparison of all outputs over `samples` samples; `sequence`: the states carry over from each to the next.

    `ties` counts elements of all operators' results that are rounded the other way because the reference's float sums
    are not exact, if they explain why outputs differ; None: they were not counted.
    """

    samples: int
    reference: str
    outputs: tuple[Difference, ...]
    sequence: bool = False
    ties: int | None = None

    @property
    def ok(self) -> bool:
        """Whether every output is within its tolerance."""
        return all(output.within for output in self.outputs)

    def check(self, hint: str = "") -> None:
        """Raise unless every output is within its tolerance.

        Raises:
            MismatchError: one is not; with the histogram of each such output, and the hint.
        """
        details = [line for output in self.outputs if not output.within for line in output.lines()]
        if details:
            raise MismatchError(f"the outputs differ from {self.reference}", details=details, hint=hint)

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values."""
        return {"ok": self.ok, **asdict(self)}


def check_shapes(
    tensors: Iterable[Tensor],
    expected: Sequence[Mapping[str, Array]],
    actual: Sequence[Mapping[str, Array]],
    reference: str,
    hint: str = "",
) -> None:
    """Check that outputs have the reference's shapes.

    Raises:
        MismatchError: one has another shape.
    """
    for tensor in tensors:
        for number, (right, mine) in enumerate(zip(expected, actual, strict=True)):
            shapes = [list(np.shape(sample[tensor.name])) for sample in (right, mine)]
            if shapes[0] != shapes[1]:
                raise MismatchError(
                    f"the shape of an output differs from {reference}",
                    details=[f"{tensor.name}: sample {number}: expected {shapes[0]}, found {shapes[1]}"],
                    hint=hint,
                )


def compare(
    tensors: Sequence[Tensor],
    expected: Sequence[Mapping[str, Array]],
    actual: Sequence[Mapping[str, Array]],
    *,
    tolerance: Tolerance,
    reference: str,
) -> Report:
    """Compare the outputs `tensors` over samples.

    Args:
        tensors: the outputs, with their quantization.
        expected: the reference's outputs by name, for each sample.
        actual: the device's outputs, in the same order.
        tolerance: the allowed differences.
        reference: the reference's name, for the report.

    Raises:
        MismatchError: an output's shape differs, since it depends on data.
    """
    hint = "make the inputs that it depends on constants: --const NAME=VALUE"
    check_shapes(tensors, expected, actual, reference, hint)
    outputs = tuple(
        _difference(
            tensor,
            np.stack([np.asarray(sample[tensor.name]) for sample in expected]),
            np.stack([np.asarray(sample[tensor.name]) for sample in actual]),
            tolerance,
        )
        for tensor in tensors
    )
    return Report(len(expected), reference, outputs)


def _difference(tensor: Tensor, expected: Array, actual: Array, tolerance: Tolerance) -> Difference:
    wide_expected, wide_actual = expected.astype(np.float64), actual.astype(np.float64)
    same = (expected == actual) | (np.isnan(wide_expected) & np.isnan(wide_actual))
    with np.errstate(invalid="ignore"):
        distance = np.where(same, 0.0, np.abs(wide_actual - wide_expected))
    distance = np.where(np.isnan(distance), np.inf, distance)  # one of them is NaN
    finite = np.abs(wide_expected[np.isfinite(wide_expected)])
    atol, rtol = (FLOAT if value is None else value for value in (tolerance.atol, tolerance.rtol))
    atol *= max(1.0, float(finite.max(initial=0.0)))
    with np.errstate(invalid="ignore"):
        # An infinite reference would allow any number.
        is_close = same | (np.isfinite(distance) & (distance <= atol + rtol * np.abs(wide_expected)))
    of_floats = f"{atol:.3g} + {rtol:g} x |reference|"
    step = _step(tensor, expected.ndim)
    steps = None if step is None else distance / step
    if steps is not None:
        grid_steps = 1 if tolerance.grid_steps is None else tolerance.grid_steps
        lsb = grid_steps if expected.dtype.kind == "f" else tolerance.lsb + tolerance.of_backends
        rounding = np.spacing(np.abs(expected)) / step if expected.dtype.kind == "f" else 0.0  # of 16 bits it shows
        within = steps <= lsb + 1e-3 + rounding
        allowed = f"{lsb} LSB"
        same = same | (steps <= 1e-3 + rounding)  # the same step of the grid
        if expected.dtype.kind == "f" and (tolerance.atol is not None or tolerance.rtol is not None):
            within, allowed = within | is_close, f"{allowed} or {of_floats}"
    elif expected.dtype.kind == "f":
        within, allowed = is_close, of_floats
    elif tolerance.of_backends and expected.dtype in (np.int16, np.uint16):  # wider integers are counts or indices
        within, allowed = distance <= tolerance.of_backends, f"{tolerance.of_backends} LSB"
    else:
        within = same
        allowed = "no difference"
    finite_steps = None if steps is None or not steps.size or not np.isfinite(steps).all() else steps
    if finite_steps is None:
        histogram = _decades(distance)
    else:
        rounded = np.where(same, -1, np.rint(finite_steps))
        histogram = _counted((label, (rounded >= low) & (rounded <= high)) for label, low, high in _LSB_BINS)
    return Difference(
        name=tensor.name,
        dtype=tensor.dtype,
        elements=int(same.size),
        differing=int(np.count_nonzero(~same)),
        max_abs=float(distance.max(initial=0.0)) if np.isfinite(distance).all() else None,
        max_lsb=None if finite_steps is None else round(float(finite_steps.max())),
        allowed=allowed,
        within=bool(within.all()),
        histogram=histogram,
        worst=_worst(distance, expected, actual),
    )


def _step(tensor: Tensor, rank: int) -> Array | None:
    """Return the step of a tensor's grid: 1 for integers, the scale for floats; None: no grid."""
    kind = np.dtype(tensor.dtype).kind
    if kind == "f" and tensor.scale is not None:
        scale = np.asarray(tensor.scale, dtype=np.float64)
        if scale.size == 1 or tensor.axis is None:
            return scale[:1]
        shape = [1] * rank
        shape[tensor.axis + 1] = scale.size
        return scale.reshape(shape)
    return np.ones(1) if has_steps(tensor) else None


def has_steps(tensor: Tensor) -> bool:
    """Whether `Tolerance.lsb` applies to a tensor: it has 8-bit integers, or integers with a scale."""
    dtype = np.dtype(tensor.dtype)
    return dtype.kind in "iu" and (tensor.scale is not None or dtype.itemsize == 1)


def _decades(distance: Array) -> tuple[tuple[str, int], ...]:
    """Count the elements by the power of ten of their difference."""
    powers = np.floor(np.log10(distance[(distance > 0) & np.isfinite(distance)])).astype(int)
    decades = ((f"1e{power} to 1e{power + 1}", powers == power) for power in sorted(set(powers.tolist())))
    return _counted([(EQUAL, distance == 0), *decades, ("not finite", np.isinf(distance))])


def _counted(rows: Iterable[tuple[str, Array]]) -> tuple[tuple[str, int], ...]:
    return tuple((label, int(np.count_nonzero(which))) for label, which in rows if which.any())


def _worst(distance: Array, expected: Array, actual: Array) -> str:
    if not distance.size or not distance.any():
        return "all elements are equal"
    index = tuple(map(int, np.unravel_index(int(distance.argmax()), distance.shape)))
    where = f"sample {index[0]}" + (f", element [{','.join(map(str, index[1:]))}]" if index[1:] else "")
    return f"largest difference: {where}: expected {expected[index]}, found {actual[index]}"
