"""One description of many: what a model is at several sizes becomes what it is at any.

A model is imported for a few values of its run-time sizes. What comes of that has to be of one structure; whole
numbers in it that differ become formulas of the sizes. So no operator has to know of sizes that are not numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from mtool.base.formulas import Formula, Point, fitted
from mtool.compiler.ir.expr import Expr
from mtool.compiler.ir.parametric_reals import real_formula
from mtool.compiler.ir.types import Array

_FEW = 64  # elements of an array that may each follow a formula

At = Callable[[Mapping[str, int]], Any]
"""What a thing is at given sizes."""


class DifferError(Exception):
    """Things that are not of one structure, or numbers in them that follow no formula; the message says where."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A thing that is what `at` returns; `is_fixed`: the same at all sizes."""

    at: At
    is_fixed: bool = False


@dataclass(slots=True)
class Joiner:
    """Joins what was made at several points.

    names: of the run-time sizes.
    points: their values, in the order of the things that are joined.
    period: formulas are for sizes alone that leave the remainders of the points when they are divided by it.
    scales: of the model's tensors, that floats may be made of.
    """

    names: tuple[str, ...]
    points: tuple[Point, ...]
    period: int = 1
    scales: tuple[float, ...] = ()
    _expressions: dict[tuple[int, ...], tuple[Joined, Sequence[Any]]] = field(default_factory=dict)

    def formula(self, values: Sequence[int]) -> Formula | None:
        """Return the formula of numbers; None: they follow none."""
        return fitted(self.names, self.points, [int(value) for value in values], self.period)

    def join(self, things: Sequence[Any], where: str = "") -> Joined:
        """Return the thing at any sizes.

        Raises:
            DifferError: they are not of one structure.
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
            return self._sequence(things, where)
        if isinstance(first, Mapping):
            return self._mapping(things, where)
        if is_dataclass(first):
            return self._record(things, where)
        if all(other == first for other in things):
            return _fixed(first)
        if isinstance(first, bool) or not isinstance(first, int | float):
            raise DifferError(f"{where}: {_shown(things)}")
        return self._number(things, where)

    def _number(self, things: Sequence[Any], where: str) -> Joined:
        if isinstance(things[0], int):
            formula = self.formula(things)
            if formula is not None:
                return Joined(formula.at)
        else:
            real = real_formula(self.formula, self.names, self.points, things, self.scales)
            if real is not None:
                return Joined(real.at)
        raise DifferError(f"{where}: {_shown(things)} follow no formula")

    def _sequence(self, things: Sequence[Any], where: str) -> Joined:
        kind = type(things[0])
        if len({len(thing) for thing in things}) != 1:
            raise DifferError(f"{where}: {_shown([len(thing) for thing in things])} parts")
        parts = [self.join(each, f"{where}[{number}]") for number, each in enumerate(zip(*things, strict=True))]
        if all(part.is_fixed for part in parts):
            return _fixed(things[0])
        if hasattr(kind, "_fields"):
            return Joined(lambda sizes: kind(*(part.at(sizes) for part in parts)))
        return Joined(lambda sizes: kind(part.at(sizes) for part in parts))

    def _mapping(self, things: Sequence[Any], where: str) -> Joined:
        keys = list(things[0])
        if any(set(thing) != set(keys) for thing in things):
            raise DifferError(f"{where}: other keys")
        parts = {key: self.join([thing[key] for thing in things], f"{where} {key}".strip()) for key in keys}
        if all(part.is_fixed for part in parts.values()):
            return _fixed(dict(things[0]))
        return Joined(lambda sizes: {key: part.at(sizes) for key, part in parts.items()})

    def _record(self, things: Sequence[Any], where: str) -> Joined:
        kind = type(things[0])
        names = [one.name for one in fields(kind) if one.init]
        parts = {
            name: self.join([getattr(thing, name) for thing in things], f"{where}.{name}" if where else name)
            for name in names
        }
        if all(part.is_fixed for part in parts.values()):
            return _fixed(things[0])
        return Joined(lambda sizes: kind(**{name: part.at(sizes) for name, part in parts.items()}))

    def _expression(self, things: Sequence[Expr], where: str) -> Joined:
        """Join expressions, in which parts may be shared: each set of parts is joined once."""
        key = tuple(map(id, things))
        known = self._expressions.get(key)
        if known is not None:
            return known[0]
        first = things[0]
        if any(
            (thing.op, thing.dtype, len(thing.args)) != (first.op, first.dtype, len(first.args)) for thing in things
        ):
            raise DifferError(f"{where}: another expression")
        value = self.join([thing.value for thing in things], f"{where} {first.op}")
        args = [self.join([thing.args[n] for thing in things], where) for n in range(len(first.args))]
        if value.is_fixed and all(arg.is_fixed for arg in args):
            joined = _fixed(first)
        else:
            made: dict[tuple[int, ...], Expr] = {}

            def at(sizes: Mapping[str, int]) -> Expr:
                point = tuple(sizes.values())
                if point not in made:
                    made[point] = Expr(first.op, first.dtype, tuple(arg.at(sizes) for arg in args), value.at(sizes))
                return made[point]

            joined = Joined(at)
        self._expressions[key] = joined, things  # which keeps the identities
        return joined

    def _array(self, things: Sequence[Array], where: str) -> Joined:
        first = things[0]
        if len({(thing.dtype, thing.ndim) for thing in things}) != 1:
            raise DifferError(f"{where}: arrays of another kind")
        shapes = [thing.shape for thing in things]
        if len(set(shapes)) > 1:
            return self._beginnings(things, where)
        if all(np.array_equal(thing, first, equal_nan=thing.dtype.kind == "f") for thing in things):
            return _fixed(first)
        if first.size > _FEW or first.dtype.kind not in "iuf":
            raise DifferError(f"{where}: a constant's values depend on the sizes")
        rows = [[thing.reshape(-1)[n].item() for thing in things] for n in range(first.size)]
        parts = [self.join(row, where) for row in rows]
        dtype, shape = first.dtype, first.shape
        return Joined(lambda sizes: np.array([part.at(sizes) for part in parts], dtype).reshape(shape))

    def _beginnings(self, things: Sequence[Array], where: str) -> Joined:
        """Join arrays each of which is the beginning of a larger one, in every dimension."""
        longest = max(things, key=lambda thing: thing.size)
        sizes_of = [self.formula([thing.shape[n] for thing in things]) for n in range(longest.ndim)]
        for thing in things:
            part = longest[tuple(slice(size) for size in thing.shape)]
            if part.shape != thing.shape or not np.array_equal(part, thing, equal_nan=thing.dtype.kind == "f"):
                raise DifferError(f"{where}: a constant's values depend on the sizes")
        if None in sizes_of:
            raise DifferError(f"{where}: {_shown([thing.shape for thing in things])} follow no formula")
        formulas = [one for one in sizes_of if one is not None]

        def at(sizes: Mapping[str, int]) -> Array:
            shape = tuple(formula.at(sizes) for formula in formulas)
            if any(size > most for size, most in zip(shape, longest.shape, strict=True)):
                raise DifferError(f"{where}: a constant is needed beyond what is known of it")
            return np.ascontiguousarray(longest[tuple(slice(size) for size in shape)])

        return Joined(at)


def _fixed(thing: Any) -> Joined:
    return Joined(lambda sizes: thing, is_fixed=True)


def _shown(things: Sequence[Any]) -> str:
    texts = list(dict.fromkeys(str(thing) for thing in things))
    return ", ".join(texts[:4]) + (", …" if len(texts) > 4 else "")
