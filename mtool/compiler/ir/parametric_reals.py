"""Floats that follow the run-time sizes: whole numbers, inverses of such, and scales that are divided by such."""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mtool.base.formulas import Formula, Point

_MOST = 1 << 16  # that a scale is divided by, at the first point
_EPSILON = 2.0**-23  # of a ratio of two float32

FormulaOf = Callable[[Sequence[int]], Formula | None]


@dataclass(frozen=True, slots=True)
class RealFormula:
    """A float that is a whole number, or a number divided by a whole one.

    `is_inverse`: it is divided; `is_single`: the quotient is float32. `numerator` is what is divided, and `divisor` a
    scale that the quotient is divided by.
    """

    formula: Formula
    is_inverse: bool
    is_single: bool
    numerator: float = 1.0
    divisor: float = 1.0

    def at(self, sizes: Mapping[str, int]) -> float:
        """Return its value."""
        number = self.formula.at(sizes)
        if not self.is_inverse:
            return float(number)
        if not self.is_single:
            return self.numerator / number
        return float(np.float32(self.numerator) / np.float32(number) / np.float32(self.divisor))

    def c(self, prefix: str, *, is_single: bool) -> str:
        """Return it as C, of type float or double; `prefix` stands before the names of the sizes."""
        text = f"({'float' if is_single else 'double'}){self.formula.c(prefix)}"
        if not self.is_inverse:
            return text
        mark = "f" if is_single else ""
        last = f" / {np.float32(self.divisor)!s}f" if self.divisor != 1 else ""
        return f"({np.float32(self.numerator)!s}{mark} / {text}{last})"


def real_formula(
    formula: FormulaOf,
    names: Sequence[str],
    points: Sequence[Point],
    values: Sequence[float],
    scales: Collection[float] = (),
) -> RealFormula | None:
    """Return the formula that floats follow exactly; None: they follow none.

    Args:
        formula: returns that of whole numbers at the points.
        names: of the run-time sizes.
        points: values of them.
        values: what the formula has to be at each.
        scales: of the model's tensors, which may be divided by a whole number and by one another.
    """
    if not all(np.isfinite(value) for value in values):
        return None
    if all(float(value).is_integer() for value in values):
        found = formula([int(value) for value in values])
        return None if found is None else RealFormula(found, is_inverse=False, is_single=False)
    if any(value == 0 for value in values):
        return None
    whole = [round(1 / value) for value in values]
    found = formula(whole) if 0 not in whole else None
    reals = [] if found is None else [RealFormula(found, is_inverse=True, is_single=single) for single in (True, False)]
    for real in itertools.chain(reals, _divided(formula, values, scales)):
        sizes = (dict(zip(names, point, strict=True)) for point in points)
        if all(real.at(at) == value for at, value in zip(sizes, values, strict=True)):
            return real
    return None


def _divided(formula: FormulaOf, values: Sequence[float], scales: Collection[float]) -> Iterator[RealFormula]:
    """Yield formulas of a scale that is divided by a whole number, as a mean's is by how many elements there are.

    The result may be divided by another scale, in float32 too.
    """
    numbers = np.asarray(values, np.float64)
    if not scales or np.any(numbers.astype(np.float32) != numbers) or np.any(numbers <= 0):
        return
    firsts = np.arange(1, _MOST, dtype=np.float64)[:, None]
    candidates = firsts * (numbers[0] / numbers)
    near = np.abs(candidates - np.rint(candidates)) <= np.minimum(candidates * _EPSILON, 0.1)
    fitting = np.flatnonzero(near.all(axis=1))
    divisors = np.rint(candidates[fitting[0]]) if len(fitting) else np.zeros(1)
    found = formula([int(number) for number in divisors]) if divisors.min() >= 1 else None
    if found is None:
        return
    quotient = numbers[0] * divisors[0]
    for scale in scales:
        near_by = [other for other in (1.0, *scales) if abs(scale / other / quotient - 1) < 2 * _EPSILON]
        for divisor in near_by:
            yield RealFormula(found, is_inverse=True, is_single=True, numerator=scale, divisor=divisor)
