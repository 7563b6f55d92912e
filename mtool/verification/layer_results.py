"""What an operator computed over all samples, beside what the reference has for it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mtool.device.session.verify import Tolerance, compare
from mtool.manifest import Operand, Operator, Tensor
from mtool.stages.samples import Array
from mtool.verification.layer_report import Layer


@dataclass(slots=True)
class Found:
    """An operator's results: those of the present sample, which may be several parts, and a row for each before.

    `operand` is as it is at the present sample's run-time sizes, `operands` are those of the rows.
    """

    operator: Operator
    operand: Operand
    expected: list[Array] = field(default_factory=list)
    actual: list[Array] = field(default_factory=list)
    samples: list[tuple[Array, Array]] = field(default_factory=list)
    operands: list[Operand] = field(default_factory=list)
    ties: int = 0

    def end_sample(self) -> None:
        """Join the parts, which are rows."""
        if self.expected:
            several = len(self.expected) > 1
            self.operands.append(self.operand)
            self.samples.append(
                (np.concatenate(self.expected, axis=1), np.concatenate(self.actual, axis=1))
                if several
                else (self.expected[0], self.actual[0])
            )
        self.expected, self.actual = [], []


def layer_of(found: Found, allowed: Tolerance, against: str) -> Layer:
    """Return the comparison of an operator's results with the reference's."""
    operand = found.operand
    if not found.operator.backend:
        allowed = replace(allowed, of_backends=0)
    tensor = operand.source.tensor if operand.source else operand.value
    if not found.samples:
        return Layer(found.operator, tensor, None, 0)
    described = Tensor(
        name=tensor, c_name="", dtype=operand.dtype, shape=operand.shape, bytes=operand.bytes, arena_offset=None
    )
    expected, actual = (
        [{tensor: array} for array in _of_one_shape(arrays)] for arrays in zip(*found.samples, strict=True)
    )
    report = compare([described], expected, actual, tolerance=allowed, reference=against)
    return Layer(found.operator, tensor, report.outputs[0], found.ties)


def _of_one_shape(arrays: Sequence[Array]) -> list[Array]:
    """Return arrays of several run-time sizes, padded with zeros to the largest."""
    if len({array.shape for array in arrays}) == 1:
        return list(arrays)
    largest = tuple(map(max, zip(*(array.shape for array in arrays), strict=True)))
    return [
        np.pad(array, [(0, most - size) for most, size in zip(largest, array.shape, strict=True)]) for array in arrays
    ]
