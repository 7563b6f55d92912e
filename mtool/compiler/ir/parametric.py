"""Generalize a model from a few sizes to all sizes.

A model is imported for a few values of its run-time sizes. The results must have the same structure; whole numbers
that differ become formulas of the sizes. So operators only ever handle sizes that are numbers.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from mtool.base.formulas import Formula, Point, fitted
from mtool.base.frozen import frozen
from mtool.compiler.ir.expr import Expr
from mtool.compiler.ir.types import Array

# Floats that follow the run-time sizes: whole numbers, inverses of such, and scales that are divided by such.


_MAX_DIVISOR = 1 << 16  # that a scale is divided by, at the first point
_EPSILON = 2.0**-23  # of a ratio of two float32
FormulaOf = Callable[[Sequence[int]], Formula | None]


@frozen
class RealFormula:
    """A float that is a whole number, or a number divided by a whole number.

    `is_inverse`: it is a quotient, of `numerator`; `is_single`: the quotient is float32. `divisor` is a scale that the
    quotient is divided by.
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
        """Return it as C, of type float or double; `prefix` precedes the names of the sizes."""
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
    """Return a formula that gives these floats exactly; None: there is none.

    Args:
        formula: returns the formula of whole numbers at the points.
        names: the names of the run-time sizes.
        points: their values.
        values: the float at each point.
        scales: the scales of the model's tensors, which may be divided by a whole number and by one another.
    """
    if not all(np.isfinite(value) for value in values):
        return None
    if all(float(value).is_integer() for value in values):
        fit = formula([int(value) for value in values])
        return None if fit is None else RealFormula(fit, is_inverse=False, is_single=False)
    if any(value == 0 for value in values):
        return None
    inverses = [round(1 / value) for value in values]
    fit = formula(inverses) if 0 not in inverses else None
    reals = [] if fit is None else [RealFormula(fit, is_inverse=True, is_single=single) for single in (True, False)]
    for real in itertools.chain(reals, _divided(formula, values, scales)):
        sizes = (dict(zip(names, point, strict=True)) for point in points)
        if all(real.at(at) == value for at, value in zip(sizes, values, strict=True)):
            return real
    return None


def _divided(formula: FormulaOf, values: Sequence[float], scales: Collection[float]) -> Iterator[RealFormula]:
    """Yield formulas of a scale that is divided by a whole number, such as the number of elements of a mean.

    The result may be divided by another scale, in float32 too.
    """
    numbers = np.asarray(values, np.float64)
    if not scales or np.any(numbers.astype(np.float32) != numbers) or np.any(numbers <= 0):
        return
    firsts = np.arange(1, _MAX_DIVISOR, dtype=np.float64)[:, None]
    candidates = firsts * (numbers[0] / numbers)
    near = np.abs(candidates - np.rint(candidates)) <= np.minimum(candidates * _EPSILON, 0.1)
    fitting = np.flatnonzero(near.all(axis=1))
    divisors = np.rint(candidates[fitting[0]]) if len(fitting) else np.zeros(1)
    fit = formula([int(number) for number in divisors]) if divisors.min() >= 1 else None
    if fit is None:
        return
    quotient = numbers[0] * divisors[0]
    for scale in scales:
        near_by = [other for other in (1.0, *scales) if abs(scale / other / quotient - 1) < 2 * _EPSILON]
        for divisor in near_by:
            yield RealFormula(fit, is_inverse=True, is_single=True, numerator=scale, divisor=divisor)


_FEW = 64  # elements of an array that may each follow a formula
At = Callable[[Mapping[str, int]], Any]
"""Returns the value at given sizes."""


class DifferError(Exception):
    """The structures differ, or their numbers follow no formula; the message says where."""


@frozen
class Joined:
    """A value that depends on the sizes, as returned by `at`; `is_fixed`: it is the same at all sizes."""

    at: At
    is_fixed: bool = False


@dataclass(slots=True)
class Joiner:
    """Joins the results for several points into one for all sizes.

    names: the names of the run-time sizes.
    points: their values, in the order of the results.
    period: formulas hold only for sizes with the same remainders modulo `period` as the points.
    scales: the scales of the model's tensors, from which floats may be computed.
    """

    names: tuple[str, ...]
    points: tuple[Point, ...]
    period: int = 1
    scales: tuple[float, ...] = ()
    _expressions: dict[tuple[int, ...], tuple[Joined, Sequence[Any]]] = field(default_factory=dict)

    def formula(self, values: Sequence[int]) -> Formula | None:
        """Return a formula that gives these numbers; None: there is none."""
        return fitted(self.names, self.points, [int(value) for value in values], self.period)

    def join(self, things: Sequence[Any], where: str = "") -> Joined:
        """Return the joined value for any sizes.

        Raises:
            DifferError: the structures differ.
        """
        first = things[0]
        if all(other is first for other in things):
            return _fixed(first)
        kind = type(first)
        if any(type(other) is not kind for other in things):
            raise DifferError(f"{where}: {_shown(things)}")
        if isinstance(first, Expr):
            return self._expression(things, where)
        if isinstance(first, np.ndarray):
            return self._array(things, where)
        if isinstance(first, tuple | list):
            if len({len(thing) for thing in things}) != 1:
                raise DifferError(f"{where}: {_shown([len(thing) for thing in things])} parts")
            columns: list[tuple[str, Sequence[Any]]]
            columns = [(f"{where}[{number}]", values) for number, values in enumerate(zip(*things, strict=True))]
            is_named = hasattr(kind, "_fields")
            return self._parts(first, columns, lambda parts: kind(*parts) if is_named else kind(parts))
        if isinstance(first, Mapping):
            if any(set(thing) != set(first) for thing in things):
                raise DifferError(f"{where}: the keys differ")
            columns = [(f"{where} {key}".strip(), [thing[key] for thing in things]) for key in first]
            return self._parts(first, columns, lambda parts: dict(zip(first, parts, strict=True)))
        if is_dataclass(first):
            names = [f.name for f in fields(kind) if f.init]
            columns = [(f"{where}.{name}".lstrip("."), [getattr(thing, name) for thing in things]) for name in names]
            return self._parts(first, columns, lambda parts: kind(**dict(zip(names, parts, strict=True))))
        if all(other == first for other in things):
            return _fixed(first)
        joined: Formula | RealFormula | None = None
        if isinstance(first, int) and not isinstance(first, bool):
            joined = self.formula(things)
        elif isinstance(first, float):
            joined = real_formula(self.formula, self.names, self.points, things, self.scales)
        else:
            raise DifferError(f"{where}: {_shown(things)}")
        if joined is None:
            raise DifferError(f"{where}: no formula gives {_shown(things)}")
        return Joined(joined.at)

    def _parts(
        self, first: Any, columns: Iterable[tuple[str, Sequence[Any]]], build: Callable[[list[Any]], Any]
    ) -> Joined:
        """Join the parts of composite values: each part's path and its values; `build` reassembles them."""
        parts = [self.join(values, where) for where, values in columns]
        if all(part.is_fixed for part in parts):
            return _fixed(first)
        return Joined(lambda sizes: build([part.at(sizes) for part in parts]))

    def _expression(self, things: Sequence[Expr], where: str) -> Joined:
        """Join expressions, in which parts may be shared: each set of parts is joined once."""
        key = tuple(map(id, things))
        cached = self._expressions.get(key)
        if cached is not None:
            return cached[0]
        first = things[0]
        if len({(thing.op, thing.dtype, len(thing.args)) for thing in things}) != 1:
            raise DifferError(f"{where}: the expressions differ")
        value = self.join([thing.value for thing in things], f"{where} {first.op}")
        args = [self.join(column, where) for column in zip(*(thing.args for thing in things), strict=True)]
        joined = _fixed(first)
        if not (value.is_fixed and all(arg.is_fixed for arg in args)):
            cache: dict[tuple[int, ...], Expr] = {}

            def at(sizes: Mapping[str, int]) -> Expr:
                point = tuple(sizes.values())
                if point not in cache:
                    cache[point] = Expr(first.op, first.dtype, tuple(arg.at(sizes) for arg in args), value.at(sizes))
                return cache[point]

            joined = Joined(at)
        self._expressions[key] = joined, things  # which keeps the identities
        return joined

    def _array(self, things: Sequence[Array], where: str) -> Joined:
        """Join arrays: of few elements that may differ, or each the beginning of a larger one in every dimension."""
        first, depends = things[0], DifferError(f"{where}: the values of a constant depend on the sizes")
        if len({(thing.dtype, thing.ndim) for thing in things}) != 1:
            raise DifferError(f"{where}: the arrays have different types or ranks")
        longest = max(things, key=lambda thing: thing.size)
        parts = [longest[tuple(map(slice, thing.shape))] for thing in things]
        are_beginnings = all(map(_are_equal, parts, things))
        if len({thing.shape for thing in things}) == 1:
            if are_beginnings:
                return _fixed(first)
            if first.size > _FEW or first.dtype.kind not in "iuf":
                raise depends
            elements = [(where, item) for item in zip(*(thing.reshape(-1).tolist() for thing in things), strict=True)]
            return self._parts(first, elements, lambda parts: np.array(parts, first.dtype).reshape(first.shape))
        if not are_beginnings:
            raise depends
        formulas = [self.formula(sizes) for sizes in zip(*(thing.shape for thing in things), strict=True)]
        if None in formulas:
            raise DifferError(f"{where}: no formula gives {_shown([thing.shape for thing in things])}")

        def at(sizes: Mapping[str, int]) -> Array:
            shape = tuple(formula.at(sizes) for formula in formulas if formula is not None)
            if any(size > most for size, most in zip(shape, longest.shape, strict=True)):
                raise DifferError(f"{where}: a constant would have to be larger than at any of the known sizes")
            return np.ascontiguousarray(longest[tuple(map(slice, shape))])

        return Joined(at)


def _are_equal(a: Array, b: Array) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _fixed(thing: Any) -> Joined:
    return Joined(lambda sizes: thing, is_fixed=True)


def _shown(things: Sequence[Any]) -> str:
    texts = list(dict.fromkeys(str(thing) for thing in things))
    return ", ".join(texts[:4]) + (", …" if len(texts) > 4 else "")
